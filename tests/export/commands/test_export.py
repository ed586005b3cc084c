"""mx-export from run folder to bundle, and how it refuses."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ....engine.aligner import Aligner
from ....engine.bundle.bundle import Bundle
from ....export import bundling
from ....export.check import conversion, verification
from ....export.check.probe import make_feeds, open_session
from ....export.commands.export import main
from ....trainer.networks.weights import load_network
from ...support.random_runs import write_run


def export(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def exported(random_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    path = tmp_path_factory.mktemp("out") / "de-en.mx"
    dtypes = [x for p in ("fp32", "fp16", "int8") for x in ("--dtype", p)]
    result = export(random_run, "-o", path, "--langs", "de-en", *dtypes)
    assert result.exit_code == 0, result.output
    return path, result


@pytest.mark.slow
def test_the_bundle(random_run: Path, exported: tuple[Path, Result]) -> None:
    bundle = Bundle.load(exported[0])
    assert bundle.languages == ("de", "en")
    assert bundle.name == "de-en"
    assert bundle.max_length == 40
    assert set(bundle.dtypes) == {"fp32", "fp16", "int8"}
    assert (random_run / "src.spm").read_bytes() == bundle.read_file("src.spm")
    manifest = bundle.manifest
    assert manifest.measured["fp32"]["largest_difference"] < 1e-5
    assert 0 <= manifest.measured["int8"]["link_f1"] <= 1
    assert "agreement of the directions on 60 pairs" in manifest.thresholds.chosen
    assert manifest.training["signature"].startswith("mx-train|v:")
    assert str(random_run) not in (exported[0] / "manifest.json").read_text()
    card = bundle.read_file("README.md").decode()
    assert card.startswith("# de-en\n") and "de to en" in card


def test_what_it_says(exported: tuple[Path, Result]) -> None:
    said = exported[1].stderr
    assert "fused: 4 StaticAttention, 4 MaskedAttention, 2 LeakyAttention, " in said
    assert "4 NormGradient, 2 LeakyPosterior, 1 Symmetrize" in said
    assert "links of the posterior against those by the whole vocabulary: F1 " in said
    assert "fp32 posterior: largest difference from PyTorch" in said
    assert "model.fp16.onnx 0." in said
    assert exported[1].stdout == ""


def test_a_bundle_is_read_both_ways(exported: tuple[Path, Result]) -> None:
    ways = ("prior", "posterior")
    aligners = {way: Aligner.load(exported[0], read=way, backend="cpu") for way in ways}
    soft = {way: aligner.soft("x1 x2 x3", "y1 y2").fwd for way, aligner in aligners.items()}
    assert not np.allclose(soft["prior"], soft["posterior"])
    assert "|read:prior|" in aligners["prior"].signature()
    usual = Aligner.load(exported[0], backend="cpu")
    assert usual.signature() == aligners["posterior"].signature()
    kept = json.loads((exported[0] / "manifest.json").read_text())
    prior = Bundle.load(exported[0]).choose_reading("prior")
    assert prior.threshold() == kept["readings"]["prior"]["thresholds"]["aer"]
    assert "posterior: the same attention" in prior.read_file("README.md").decode()


def test_every_graph_gives_pytorch_scores(random_run: Path, exported: tuple[Path, Result]) -> None:
    model, _ = load_network(random_run)
    batch = make_feeds([np.array([5, 6, 7], np.int32)], [np.array([8, 9], np.int32)])
    wanted = verification.run_network(model, batch)["scores"]
    bundle = Bundle.load(exported[0])
    for dtype, allowed in (("fp32", 1e-5), ("fp16", 0.01), ("int8", 0.1)):
        (found,) = open_session(bundle.read_graph(dtype)).run(["scores"], batch)
        np.testing.assert_allclose(found, wanted, atol=allowed)


@pytest.mark.slow
def test_the_same_run_gives_the_same_bundle(
    random_run: Path, exported: tuple[Path, Result], tmp_path: Path
) -> None:
    path = tmp_path / "again.zip"
    result = export(random_run, "-o", path, "--langs", "de-en", "--name", "de-en", "-q")
    assert result.exit_code == 0 and result.output == ""
    first, again = Bundle.load(exported[0]), Bundle.load(path)
    for dtype in again.dtypes:
        assert first.read_graph(dtype) == again.read_graph(dtype)


@pytest.mark.slow
def test_separate_vocabularies_gold_and_zip(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", joint_vocab=False, tied=False, norm="post")
    lines = {"src": "x1 x2 x3\n" * 3, "tgt": "y1 y2 y3\n" * 3, "gold": "0-0 1-1 2p2\n" * 3}
    for name, text in lines.items():
        (tmp_path / name).write_text(text)
    gold = [x for n in lines for x in ("--gold" if n == "gold" else f"--gold-{n}", tmp_path / n)]
    result = export(run, "-o", tmp_path / "m", "--zip", "--dtype", "fp32", *gold)
    assert result.exit_code == 0, result.output
    bundle = Bundle.load(tmp_path / "m.zip")
    src, tgt = bundle.tokenizers
    assert src is not tgt
    assert "3 pairs with gold links" in bundle.manifest.thresholds.chosen
    assert 0 <= bundle.manifest.measured["fp32"]["aer"] <= 1
    assert bundle.languages == ("und", "und")


@pytest.mark.slow
def test_without_any_text(random_run: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(random_run, bare, ignore=shutil.ignore_patterns("cache"))
    result = export(bare, "-o", tmp_path / "m.mx")
    assert result.exit_code == 0, result.output
    assert "int8 left out: int8 needs 50 pairs of text" in result.stderr
    bundle = Bundle.load(tmp_path / "m.mx")
    assert bundle.dtypes == ("fp32", "fp16")
    assert bundle.threshold() == 0.45
    result = export(bare, "-o", tmp_path / "n.mx", "--dtype", "int8")
    assert result.exit_code == 2
    assert not (tmp_path / "n.mx").exists()


# ---- refusals ----


def refused(tmp_path: Path, *arguments: object) -> str:
    """One line, exit code 2, nothing written."""
    before = set(tmp_path.iterdir())
    result = export(*arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("mx-export: ")
    assert "Traceback" not in result.stderr
    assert set(tmp_path.iterdir()) == before
    return result.stderr


def test_gold_files_that_do_not_fit_are_refused_before_the_work(
    random_run: Path, tmp_path: Path
) -> None:
    for name, text in (("src", "x1\n"), ("tgt", "y1\n"), ("gold", "0-0\n0-0\n")):
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in ("src", "tgt", "gold")]
    message = refused(tmp_path, random_run, "-o", tmp_path / "m.mx", "--test", *files)
    assert "has 2 lines" in message and "fused" not in message
    (tmp_path / "none").write_text("")
    message = refused(
        tmp_path, random_run, "-o", tmp_path / "m.mx", "--test", *[tmp_path / "none"] * 3
    )
    assert "has no sentences with gold links" in message


def test_gold_files_cannot_be_pipes(random_run: Path, tmp_path: Path) -> None:
    """They are read twice: nothing would be left the second time."""
    os.mkfifo(tmp_path / "pipe")
    message = refused(
        tmp_path, random_run, "-o", tmp_path / "m.mx", "--test", *[tmp_path / "pipe"] * 3
    )
    assert "is a pipe" in message


def test_a_graph_that_differs_is_not_exported(
    random_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(verification.GRAPH_TOLERANCE, "fp32", 1e-12)
    said = refused(tmp_path, random_run, "-o", tmp_path / "m.mx")
    assert "the fp32 graph differs from the PyTorch model" in said


@pytest.mark.slow
def test_a_half_graph_that_differs_is_left_out_unless_it_is_wanted(
    random_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(verification.GRAPH_TOLERANCE, "fp16", 1e-12)
    said = refused(tmp_path, random_run, "-o", tmp_path / "m.mx", "--dtype", "fp16")
    assert "the fp16 graph differs from the PyTorch model" in said
    result = export(random_run, "-o", tmp_path / "m.mx")
    assert result.exit_code == 0 and "fp16 left out: the fp16 graph differs" in result.stderr
    left = Bundle.load(tmp_path / "m.mx").dtypes
    assert "fp32" in left and "fp16" not in left


def test_an_attention_that_is_not_recognised(
    random_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bundling, "fuse_attention", lambda graph, config: (graph, {"Symmetrize": 1})
    )
    said = refused(tmp_path, random_run, "-o", tmp_path / "m.mx")
    assert "0 mx.MaskedAttention instead of 4" in said


@pytest.mark.slow
def test_int8_that_is_not_good_enough_is_left_out(
    random_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it becomes good enough by rounding."""
    monkeypatch.setattr(conversion, "link_f1", lambda *links: conversion.LEAST_INT8_F1 - 1e-5)
    result = export(random_run, "-o", tmp_path / "m.mx")
    assert f"link f1 {conversion.LEAST_INT8_F1}" in result.stderr
    assert "int8 left out: it must keep a link F1" in result.stderr
    assert Bundle.load(tmp_path / "m.mx").dtypes == ("fp32", "fp16")


def test_wrong_flags(random_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.mx"
    assert "two codes such as de-en" in refused(
        tmp_path, random_run, "-o", out, "--langs", "german"
    )
    assert "belong together" in refused(tmp_path, random_run, "-o", out, "--gold", "x")
    assert "there is no run folder" in refused(tmp_path, tmp_path / "none", "-o", out)
    assert "has no model.safetensors" in refused(tmp_path, tmp_path, "-o", out)
    assert "its folder does not exist" in refused(
        tmp_path, random_run, "-o", tmp_path / "a" / "m.mx"
    )
    missing = refused(tmp_path, random_run, "-o", out, "--probe", tmp_path / "a", tmp_path / "b")
    assert "does not exist" in missing


def test_the_old_name_of_a_flag_is_answered_with_the_new_one(
    random_run: Path, tmp_path: Path
) -> None:
    said = refused(tmp_path, random_run, "-o", tmp_path / "m.mx", "--precision", "fp32")
    assert said == "mx-export: --precision is now --dtype\n"


def test_an_existing_bundle(exported: tuple[Path, Result], random_run: Path) -> None:
    before = Bundle.load(exported[0]).digest
    assert "exists already" in refused(exported[0].parent, random_run, "-o", exported[0])
    assert Bundle.load(exported[0]).digest == before


def test_a_vocabulary_of_another_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["model"]["src_vocab"] += 1
    (run / "config.json").write_text(json.dumps(config))
    assert "weights do not fit" in refused(tmp_path, run, "-o", tmp_path / "m.mx")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom mx_align.export.commands.export import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'onnx', 'numpy', 'onnxruntime'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--dtype" in done.stdout

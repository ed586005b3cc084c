"""mx-analyze: the paper's analyses."""

import json
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ....engine.links.link_files import Gold
from ....trainer.analysis import paper as analysis
from ....trainer.analysis.paper import (
    Observation,
    links_by_direction,
    norm_table,
    prediction_table,
    punctuation_effect,
)
from ....trainer.commands import analyze as analysis_cli
from ....trainer.data.gold import GoldPairs
from ....trainer.loop.train import train_network
from ....trainer.networks.mask_align import MaskAlign
from ....trainer.run.folder import load_run


def gold(sure, possible=()):
    return Gold(frozenset(sure), frozenset(sure) | frozenset(possible))


def seen(fwd, bwd, src_null, tgt_null, src_predicted, tgt_predicted):
    fwd, bwd = np.array(fwd), np.array(bwd)
    rest = map(np.array, (src_null, tgt_null, src_predicted, tgt_predicted))
    return Observation((), (), fwd * bwd, fwd, bwd, *rest)


def test_the_table_of_a_pair_counted_by_hand():
    one = seen(
        fwd=[[0.9, 0.1, 0.2], [0.0, 0.8, 0.1]], bwd=[[0.9, 0.1, 0.0], [0.1, 0.3, 0.4]],
        src_null=[0.0, 0.5], tgt_null=[0.0, 0.1, 0.6],
        src_predicted=[True, True], tgt_predicted=[True, False, False],
    )  # fmt: skip
    table = prediction_table([one], [gold({(0, 0), (1, 1), (1, 2)})])
    # Target words: right and right; predicted wrong, aligned right; NULL has more than any word.
    assert table["fwd"] == {"cPcA": 1, "wPcA": 1, "cPwA": 0, "wPwA": 1}
    # Source words: right; predicted right, but NULL has more.
    assert table["bwd"] == {"cPcA": 1, "wPcA": 0, "cPwA": 1, "wPwA": 0}
    assert table["both"] == {"cPcA": 2, "wPcA": 1, "cPwA": 1, "wPwA": 1}
    assert links_by_direction(one, 0.24) == {
        "soft": [(0, 0), (1, 1)], "fwd": [(0, 0), (1, 1)], "bwd": [(0, 0)],
    }  # fmt: skip


def test_the_effect_of_the_final_punctuation():
    """A model that links everything to the last word of the source."""

    def weigh(src, tgt):
        cells = np.zeros((len(src), len(tgt)))
        cells[-1] = 1
        return SimpleNamespace(scores=cells, fwd=cells, bwd=cells, src_null=np.ones(len(src)),
                               tgt_null=np.zeros(len(tgt)))  # fmt: skip

    pairs = GoldPairs([["ja", "."], ["ja"]], [["yes", "."], ["yes"]],
                      [gold({(0, 0), (1, 1)}), gold({(0, 0)})])  # fmt: skip
    first = [weigh(*pair) for pair in zip(pairs.src, pairs.tgt, strict=True)]
    found = punctuation_effect(weigh, pairs, 0.5, first)
    assert found["with_final_punctuation"] == 1
    assert found["aer"]["as it is"]["fwd"] == pytest.approx(1 - 4 / 6)
    assert found["aer"]["judged without it"]["fwd"] == pytest.approx(1 - 2 / 3)
    assert found["aer"]["without it"]["fwd"] == pytest.approx(1 - 4 / 5)


@pytest.mark.parametrize("word, is_mark", [(".", True), ("。", True), ("...", True), ("€", True),
                                           ("a.", False), ("", False)])  # fmt: skip
def test_punctuation(word, is_mark):
    assert analysis.is_punctuation(word) == is_mark


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "run"


@pytest.fixture
def trained(run, start, corpus):
    if not run.exists():
        files = {"gold_src": str(corpus[0]), "gold_tgt": str(corpus[1])}
        links = run.parent / "gold.talp"
        links.write_text("0-0\n" * 120)
        train_network(*start(run, {**files, "gold": str(links)}))
    return run


@pytest.mark.slow
def test_norms_are_those_of_the_network(trained):
    observer, _ = analysis_cli.load_observer(trained, None)
    assert isinstance(observer.model, MaskAlign)
    table = norm_table(observer, GoldPairs([["w1", ",", "."], []], [["w2"], ["w3"]], []))
    assert set(table["fwd"]) == {"[NULL]", "word", "punctuation", "final punctuation"}
    last = str(observer.model.config.decoder_layers - 1)
    cross = observer.model.fwd.requires_grad_(False).decoder.cross[last]
    null = table["fwd"]["[NULL]"]
    assert null["value"] == pytest.approx(float(cross.null_value.norm()), rel=1e-5)
    wanted = float((cross.out.weight @ cross.null_value).norm())
    assert null["transformed"] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.slow
def test_the_observer_sees_what_the_model_does(trained):
    observer, _ = analysis_cli.load_observer(trained, None)
    found = observer(["w1", "w2"], ["Größe1", "Größe2", "Größe3"])
    assert found.fwd.shape == found.scores.shape == (2, 3)
    assert found.src_null.shape == found.src_predicted.shape == (2,)
    assert np.all((found.fwd >= 0) & (found.fwd <= 1))
    assert np.all(found.scores <= np.maximum(found.fwd.max(), found.bwd.max()))
    empty = observer([], ["a"])
    assert empty.fwd.shape == (0, 1) and links_by_direction(empty, 0.1)["fwd"] == []


@pytest.mark.slow
def test_the_command_on_a_run(trained, tmp_path):
    maps = tmp_path / "maps"
    arguments = [str(trained), "--maps", "2,4-5", "-o", str(maps)]
    done = CliRunner().invoke(analysis_cli.main, arguments)
    assert done.exit_code == 0, done.output
    assert "cPcA" in done.stdout and "[NULL]" in done.stdout and "without it" in done.stdout
    assert len(list(maps.glob("*.svg"))) == 9 and (maps / "4.fwd.svg").exists()
    done = CliRunner().invoke(analysis_cli.main, [str(trained), "--json"])
    found = json.loads(done.stdout)
    assert sum(found["prediction"]["fwd"].values()) == 120
    assert found["punctuation"]["pairs"] == 120


@pytest.mark.slow
def test_a_bundle_says_what_its_run_says(trained, tmp_path):
    pytest.importorskip("onnx")
    from ....export.commands.export import main as export

    path = tmp_path / "de-en.mx"
    flags = ["-o", path, "--langs", "de-en", "--dtype", "fp32"]
    made = CliRunner().invoke(export, list(map(str, [trained, *flags])))
    assert made.exit_code == 0, made.output
    names = ("gold_src", "gold_tgt", "gold")
    texts = load_run(trained)[1]
    gold = [part for n in names for part in ("--" + n.replace("_", "-"), getattr(texts, n))]

    def analysed(model, *more):
        done = CliRunner().invoke(analysis_cli.main, [str(model), *gold, *more])
        assert done.exit_code == 0, done.output
        return done.stdout

    same = ("--threshold", "0.05", "--json")
    run, bundle = (json.loads(analysed(model, *same)) for model in (trained, path))
    assert bundle["punctuation"] == run["punctuation"]
    assert {"prediction", "norms"} & set(bundle) == set()  # it has no part that predicts
    maps = tmp_path / "maps"
    text = analysed(path, "--maps", "3", "-o", str(maps))
    assert "without it" in text and "cPcA" not in text
    assert sorted(one.name for one in maps.iterdir()) == ["3.bwd.svg", "3.fwd.svg", "3.soft.svg"]


def test_a_model_that_predicts_nothing(trained, monkeypatch):
    """A student gives weights as others do, but was never asked for a masked word."""
    teacher = analysis_cli.load_observer(trained, None)[0]

    def student(*batch):
        with torch.inference_mode():
            return teacher.model(*batch)

    other = analysis.Observer(student, teacher.tokenizers)
    assert np.array_equal(other(["w1"], ["w2"]).scores, teacher(["w1"], ["w2"]).scores)
    monkeypatch.setattr(analysis_cli, "load_observer", lambda run, read: (other, 0.1))
    done = CliRunner().invoke(analysis_cli.main, [str(trained), "--json"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)) == {"model", "threshold", "punctuation"}


@pytest.mark.slow
def test_maps_as_png(trained, tmp_path, monkeypatch):
    pytest.importorskip("resvg_py")
    arguments = [str(trained), "--maps", "1", "--png", "-o", str(tmp_path)]
    assert CliRunner().invoke(analysis_cli.main, arguments).exit_code == 0
    svg, png = (tmp_path / "1.soft.svg").read_text(), (tmp_path / "1.soft.png").read_bytes()
    width, height = struct.unpack(">2I", png[16:24])
    assert png.startswith(b"\x89PNG") and f'width="{width / 4:g}" height="{height / 4:g}"' in svg
    monkeypatch.setitem(sys.modules, "resvg_py", None)  # not installed
    done = CliRunner().invoke(analysis_cli.main, arguments)
    assert done.exit_code == 2 and 'pip install "mx-align[png]"' in done.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--maps", "121"], "the gold set has 120"),
        (["--gold", "x"], "give --gold-src"),
        (["--maps", "0"], "no list of lines"),
    ],
)
def test_mistakes(trained, arguments, message):
    done = CliRunner().invoke(analysis_cli.main, [str(trained), *arguments])
    assert done.exit_code == 2 and message in done.stderr


def test_what_is_neither_run_nor_bundle(tmp_path):
    files = {name: tmp_path / name for name in ("gold_src", "gold_tgt", "gold")}
    for name, text in (("gold_src", "a\n"), ("gold_tgt", "b\n"), ("gold", "0-0\n")):
        files[name].write_text(text)
    flags = [part for n, p in files.items() for part in ("--" + n.replace("_", "-"), str(p))]
    done = CliRunner().invoke(analysis_cli.main, [str(Path(tmp_path)), *flags])
    assert done.exit_code == 2 and done.stderr.startswith("mx-analyze: ")


def test_one_thread_is_enough(trained):
    analysis_cli.load_observer(trained, None)
    assert torch.get_num_threads() == 1

import json
import re
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ...engine.aligner import Aligner
from ...engine.alignment import Alignment
from ...engine.bundle import installed
from ...engine.commands.align import main as align_command
from ...engine.errors import BackendError, BundleError, InputError, MxError, NoModelError
from ..support.bundles import write_toy

SRC = ["die Katze saß auf der Matte", "", "The Cat", "hello \u3000 x"]
TGT = ["the cat sat on the mat", "the", "die Katze", "y"]


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy") / "toy.mx").path


@pytest.fixture(scope="module")
def aligner(path) -> Aligner:
    return Aligner.load(path, nulls=True)


def test_pair_batch_and_stream_agree(aligner):
    streamed = list(aligner.align(iter(SRC), iter(TGT), chunk=2))
    assert streamed == aligner.align_batch(SRC, TGT)
    assert streamed == [aligner.align_pair(s, t) for s, t in zip(SRC, TGT, strict=True)]
    assert isinstance(streamed[0], Alignment)


def test_an_alignment_is_its_links(aligner):
    found = aligner.align_pair(SRC[0], TGT[0])
    assert found.src == tuple(SRC[0].split(" ")) and found.tgt == tuple(TGT[0].split(" "))
    assert list(found) == found.links == sorted(found.links)
    assert len(found) == len(found.scores) > 0
    assert str(found) == " ".join(f"{i}-{j}" for i, j in found)
    assert all(0.15 <= score <= 1 for score in found.scores)
    assert 0 < found.score <= 1


def test_sequences_of_words_are_taken_as_they_are(aligner):
    words = ["two words", "\u3000", ""]
    found = aligner.align_pair(words, ["a b"])
    assert found.src == tuple(words)
    assert all(i < 3 and j < 1 for i, j in found)


def test_one_string_is_a_type_error_that_names_the_way(aligner):
    with pytest.raises(TypeError, match="align_pair for one pair"):
        next(aligner.align("die Katze", "the cat"))


def test_an_empty_side_has_no_links_and_sure_nulls(aligner):
    found = aligner.align_pair("a b", "")
    assert found.links == [] and found.score == 0.0
    assert found.src_null == [1.0, 1.0] and found.tgt_null == []


@pytest.mark.parametrize("long", [1, 30])
def test_soft_matrices_hold_the_links(path, long):
    aligner = Aligner.load(path, nulls=True)
    src, tgt = " ".join([SRC[0]] * long), " ".join([TGT[0]] * long)
    soft, found = aligner.soft(src, tgt), aligner.align_pair(src, tgt)
    assert soft.scores.shape == (6 * long, 6 * long) == soft.fwd.shape == soft.bwd.shape
    above = np.argwhere(soft.scores >= np.float32(aligner.rule.threshold))
    assert [tuple(row) for row in above.tolist()] == found.links
    assert [float(soft.scores[link]) for link in found.links] == found.scores
    np.testing.assert_allclose(soft.src_null, found.src_null, atol=1e-6)
    np.testing.assert_allclose(soft.tgt_null, found.tgt_null, atol=1e-6)


def test_soft_of_an_empty_side(aligner):
    soft = aligner.soft("a b", "")
    assert soft.scores.shape == (2, 0)
    assert soft.src_null.tolist() == [1.0, 1.0]


def test_sides_of_different_lengths(aligner):
    got = []
    with pytest.raises(InputError, match="the target ends after 3 sentences"):
        for found in aligner.align(SRC, TGT[:3], chunk=2):
            got.append(found)
    assert len(got) == 3
    with pytest.raises(InputError, match="4 source sentences but 3"):
        aligner.align_batch(SRC, TGT[:3])


def test_many_threads_share_one_aligner(aligner):
    wanted = aligner.align_batch(SRC, TGT)
    with ThreadPoolExecutor(4) as pool:
        for made in pool.map(lambda _: list(aligner.align(SRC, TGT)), range(12)):
            assert made == wanted


def test_stopping_early_and_starting_anew(aligner):
    running = aligner.align(iter(lambda: "the cat", None), iter(lambda: "die Katze", None), chunk=8)
    first = [next(running) for _ in range(20)]
    running.close()
    assert len({str(found) for found in first}) == 1


def test_what_links_are_optimized_for_and_thresholds(path):
    counts = [
        len(Aligner.load(path, optimize_for=goal).align_pair(SRC[0], TGT[0]))
        for goal in ("precision", "aer", "recall")
    ]
    assert counts == sorted(counts) and counts[0] < counts[2]
    for wrong in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(MxError, match="above 0 and at most 1"):
            Aligner.load(path, threshold=wrong)
    with pytest.raises(MxError, match="no symmetrization"):
        Aligner.load(path, symmetrize="median")


def test_backends(path):
    with pytest.raises(BackendError, match=r"TensorRT: .* is not installed"):
        Aligner.load(path, backend="trt")
    with pytest.raises(BackendError, match="there is no backend 'tpu'"):
        Aligner.load(path, backend="tpu")
    with pytest.raises(BundleError, match="has no int8 graph; it has fp32"):
        Aligner.load(path, backend="cpu", dtype="int8")
    assert "cpu" in Aligner.load(path, backend="cpu").describe()
    assert re.fullmatch(
        r"mx-align\|v:[0-9.]+\|model:toy#[0-9a-f]{8}\|backend:cpu\|prec:fp32\|sym:soft\|thr:0.15"
        r"\|cut:20,60",
        Aligner.load(path, backend="cpu").signature(),
    )


def test_installed_models(tmp_path, monkeypatch):
    monkeypatch.setattr(installed, "MODELS", tmp_path / "models")
    with pytest.raises(NoModelError, match="none is installed"):
        Aligner.load().align_pair("a", "b")
    (tmp_path / "models").mkdir()
    write_toy(tmp_path / "models" / "small.mx")
    assert Aligner.load().bundle.name == "toy"
    assert Aligner.load(langs="de-en").bundle.name == "toy"
    write_toy(tmp_path / "models" / "other.mx", seed=2)
    with pytest.raises(NoModelError, match=r"which model\? installed: other, small"):
        Aligner.load().soft("a", "b")
    with pytest.raises(BundleError, match="there are several models for de-en: other, small"):
        Aligner.load(langs="de-en")
    assert Aligner.load(langs="small").bundle.path.name == "small.mx"
    with pytest.raises(NoModelError, match="no model for fi-hu; installed: other, small"):
        next(Aligner.load(langs="fi-hu").align(["a"], ["b"]))
    with pytest.raises(MxError, match="no language 'frensh'; did you mean french"):
        Aligner.load(langs="frensh-en")


def test_the_package_names_what_it_has():
    assert import_module("mx_align").Aligner is Aligner
    with pytest.raises(AttributeError):
        import_module("mx_align").Nothing  # noqa: B018


def test_examples_of_the_documentation_run(path, tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "docs" / "align.md").read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert examples
    monkeypatch.chdir(tmp_path)
    (tmp_path / "de-en.mx").symlink_to(path)
    (tmp_path / "corpus.de").write_text("das Haus\nein Hund\n")
    (tmp_path / "corpus.en").write_text("the house\na dog\n")
    names: dict = {}
    for example in examples:
        exec(example, names)
    assert capsys.readouterr().out


# ---- files ----


@pytest.fixture
def corpus_files(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("c.src", SRC * 5), ("c.tgt", TGT * 5)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return tmp_path


def test_files_give_the_links_of_sentences_and_the_bytes_of_the_command(
    path, aligner, corpus_files
):
    summary = aligner.align_files("c.src", "c.tgt", output="links", scores="scores", chunk_pairs=3)
    lines = Path("links").read_text().splitlines()
    assert lines == [str(found) for found in aligner.align(SRC * 5, TGT * 5)]
    assert summary.total.pairs == 20 and summary.resumed == 0
    assert summary.signatures == [aligner.signature()]
    for form in ("scored", "talp", "jsonl", "a3"):
        aligner.align_files(Path("c.src"), Path("c.tgt"), output="library", format=form)
        line = ["c.src", "c.tgt", "-m", str(path), "-o", "command", "--format", form, "-q"]
        assert CliRunner().invoke(align_command, line).exit_code == 0
        assert Path("library").read_bytes() == Path("command").read_bytes()


def test_a_stopped_run_over_files_goes_on(aligner, corpus_files):
    def stop(total, resumed):
        if total.pairs == 9:
            raise InterruptedError

    chunks = {"output": "out", "chunk_pairs": 3}
    with pytest.raises(InterruptedError):
        aligner.align_files("c.src", "c.tgt", on_progress=stop, **chunks)
    assert Path("out.partial").is_dir() and not Path("out").exists()
    seen = []
    summary = aligner.align_files(
        "c.src", "c.tgt", on_progress=lambda total, resumed: seen.append(total.pairs), **chunks
    )
    assert summary.resumed == 9 and seen == [12, 15, 18, 20]
    assert Path("out").read_text().splitlines() == [
        str(found) for found in aligner.align(SRC * 5, TGT * 5)
    ]


def test_files_are_averaged_shown_and_reported(path, aligner, corpus_files):
    Path("other").write_text("0-0:0.9\n\n0-0:0.9\n\n" * 5)
    found = aligner.align_files(
        "c.src", "c.tgt", output="out", average=["other"], report="r.json", html="page.html"
    )
    assert found.signatures == [aligner.signature().replace("thr:0.15", "thr:0.05") + "|avg:1@0.42"]
    report = json.loads(Path("r.json").read_text())
    assert report["pairs"] == report["corpus"]["pairs"] == 20 and Path("page.html").exists()
    with pytest.raises(MxError, match="--average is for soft links only"):
        Aligner.load(path, symmetrize="union").align_files("c.src", "c.tgt", average=["other"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xml"}, "format must be one of pharaoh"),
        ({"shard": (3, 2)}, r"shard must be \(i, n\)"),
        ({"average": "links"}, "average must be a list"),
        ({"chunk_pairs": 0}, "chunk_pairs must be at least 1"),
        ({"scores": "s"}, "--scores needs -o OUT"),
        ({"output": "c.src"}, "would be overwritten"),
    ],
)
def test_options_for_files_that_cannot_be(aligner, corpus_files, options, message):
    with pytest.raises(MxError, match=message):
        aligner.align_files("c.src", "c.tgt", **options)


def test_a_misspelt_option_is_named(path):
    with pytest.raises(MxError, match="no option 'outptu'; there are separator, "):
        Aligner.load(path).align_files("c.src", "c.tgt", outptu="links")

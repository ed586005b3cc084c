import re
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from ...engine import aligner as module
from ...engine.aligner import Aligner, Alignment
from ...engine.errors import BackendError, BundleError, InputError, MxError
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


def test_wishes_and_thresholds(path):
    counts = [
        len(Aligner.load(path, wish=wish).align_pair(SRC[0], TGT[0]))
        for wish in ("precision", "aer", "recall")
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
    monkeypatch.setattr(module, "__file__", str(tmp_path / "aligner.py"))
    with pytest.raises(BundleError, match="none is installed"):
        Aligner.load()
    (tmp_path / "models").mkdir()
    write_toy(tmp_path / "models" / "small.mx")
    assert Aligner.load().bundle.name == "toy"
    assert Aligner.load(langs="de-en").bundle.name == "toy"
    write_toy(tmp_path / "models" / "other.mx", seed=2)
    with pytest.raises(BundleError, match=r"which model\? installed: other, small"):
        Aligner.load()
    with pytest.raises(BundleError, match="there are several models for de-en: other, small"):
        Aligner.load(langs="de-en")
    assert Aligner.load(langs="small").bundle.path.name == "small.mx"
    with pytest.raises(BundleError, match="no model for xx-yy; installed: other, small"):
        Aligner.load(langs="xx-yy")


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

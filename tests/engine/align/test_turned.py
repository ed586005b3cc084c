"""A model for de-en serves en-de: the sides change places, the links change back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ....engine import aligner as aligner_module
from ....engine.aligner import Aligner, installed
from ....engine.bundle.bundle import Bundle, write_bundle
from ....engine.errors import BundleError, MxError
from ...support.bundles import write_toy

SRC = ["die Katze saß auf der Matte", "", "The Cat", "a\tb  c ", "hello"]
TGT = ["the cat sat on the mat", "the", "die Katze", "d", "x y z"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy") / "toy.mx").path  # of de-en


def in_languages(bundle: Path, path: Path, src: str, tgt: str) -> None:
    """A copy of the bundle for other languages."""
    old = Bundle.load(bundle)
    files = {name: old.read(name) for name in old.manifest.files}
    write_bundle(path, replace(old.manifest, languages=(src, tgt)), files)


@pytest.mark.parametrize(
    ("mode", "other"),
    [("soft", "soft"), ("forward", "backward"), ("backward", "forward"), ("union", "union")],
)
def test_links_are_those_of_the_changed_sides(bundle, mode, other):
    turned = Aligner.load(bundle, langs="en-de", symmetrize=mode, nulls=True)
    plain = Aligner.load(bundle, langs="de-en", symmetrize=other, nulls=True)
    assert turned.swapped and not plain.swapped
    found, wanted = turned.align_batch(SRC, TGT), plain.align_batch(TGT, SRC)
    for one, two in zip(found, wanted, strict=True):
        assert one.links == sorted((i, j) for j, i in two.links)
        scores = dict(zip(two.links, two.scores, strict=True))
        assert one.scores == [scores[j, i] for i, j in one.links]
        assert (one.src, one.tgt) == (two.tgt, two.src)
        assert (one.src_null, one.tgt_null) == (two.tgt_null, two.src_null)
    assert any(one.links for one in found)
    assert "|turned|" in turned.signature() and "turned" not in plain.signature()


def test_the_matrix_is_turned_too(bundle):
    turned, plain = Aligner.load(bundle, langs="en-de"), Aligner.load(bundle)
    one, two = turned.soft(SRC[0], TGT[0]), plain.soft(TGT[0], SRC[0])
    assert one.scores.shape == (6, 6) and one.src == two.tgt
    np.testing.assert_array_equal(one.scores, two.scores.T)
    np.testing.assert_array_equal(one.fwd, two.bwd.T)
    np.testing.assert_array_equal(one.src_null, two.tgt_null)


def test_a_page_shows_the_directions_of_the_users_sides(bundle):
    from ....engine.view.digest import Picked
    from ....engine.view.model import views

    turned = Aligner.load(bundle, langs="en-de")
    words = tuple(SRC[0].split()), tuple(TGT[0].split())
    (view,) = views(turned, [Picked(1, *words, [], [], 0.0)])
    for mode, links in (("forward", view.fwd), ("backward", view.bwd)):
        wanted = Aligner.load(bundle, langs="en-de", symmetrize=mode).align_pair(SRC[0], TGT[0])
        assert links == wanted.links and links


@pytest.fixture
def models(bundle, tmp_path, monkeypatch):
    for name, src, tgt in (("de-en", "de", "en"), ("fr", "en", "fr"), ("fr2", "en", "fr")):
        in_languages(bundle, tmp_path / f"{name}.mx", src, tgt)
    found = {path.stem: path for path in sorted(tmp_path.glob("*.mx"))}
    monkeypatch.setattr(aligner_module, "installed_models", lambda: found)
    return found


def test_the_fitting_model_is_found_in_either_order(models):
    assert installed("de-en") == installed("en-de") == models["de-en"]
    assert installed("fr2") == models["fr2"]
    names = r"installed: de-en, fr, fr2 \(either way round\)"
    with pytest.raises(BundleError, match=rf"no model for fi-hu; {names}; give the path of one"):
        installed("fi-hu")
    with pytest.raises(BundleError, match="several models for en-fr: fr, fr2"):
        installed("en-fr")
    with pytest.raises(
        BundleError, match=rf"which model\? {names}; choose with langs, or give the"
    ):
        installed()


@pytest.mark.parametrize("langs", ["en_fr", "en", "", "en-fr ", "de-en-fr"])
def test_languages_are_two_codes(bundle, models, langs):
    for model in (None, bundle):
        with pytest.raises(MxError, match=f"must be two codes such as de-en, not '{langs}'"):
            Aligner.load(model, langs=langs)
    assert not Aligner.load(bundle, langs="fi-hu").swapped


@pytest.mark.parametrize("name", ["en-de", "fr2"])
def test_languages_given_as_a_path(models, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BundleError, match=f"no model bundle {name}; .* give langs {name} to use"):
        Aligner.load(name)
    with pytest.raises(BundleError, match=r"no model bundle fi-hu; check the path$"):
        Aligner.load("fi-hu")


def test_one_model_may_serve_several_pairs(bundle, tmp_path, monkeypatch):
    """Alone, too, it is not used before it is known which side is which."""
    in_languages(bundle, tmp_path / "joint.mx", "de+fr", "en")
    found = {"joint": tmp_path / "joint.mx"}
    monkeypatch.setattr(aligner_module, "installed_models", lambda: found)
    for langs, turned in (("de-en", False), ("FR-en", False), ("en-fr", True), ("en-de", True)):
        assert installed(langs) == found["joint"]
        assert Aligner.load(langs=langs).swapped == turned
    with pytest.raises(BundleError, match=r"no model for de-fr; installed: de-en, fr-en \("):
        installed("de-fr")
    with pytest.raises(BundleError, match=r"which model\? installed: de-en, fr-en \(.*langs"):
        installed()

"""Which bundle is found: by path, by languages in either order, by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from ....engine.aligner import Aligner
from ....engine.bundle import installed
from ....engine.bundle.bundle import Bundle
from ....engine.bundle.installed import find_installed
from ....engine.bundle.manifest import parse_languages
from ....engine.bundle.writing import write_bundle
from ....engine.errors import BundleError, MxError
from ...support.bundles import write_toy


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy") / "toy.mx").path  # of de-en


def in_languages(bundle: Path, path: Path, src: str, tgt: str) -> None:
    """A copy of the bundle for other languages."""
    old = Bundle.load(bundle)
    files = {name: old.read_file(name) for name in old.manifest.files}
    write_bundle(path, replace(old.manifest, languages=(src, tgt)), files)


@pytest.fixture
def models(bundle, tmp_path, monkeypatch):
    for name, src, tgt in (("de-en", "de", "en"), ("fr", "en", "fr"), ("fr2", "en", "fr")):
        in_languages(bundle, tmp_path / f"{name}.mx", src, tgt)
    found = {path.stem: path for path in sorted(tmp_path.glob("*.mx"))}
    monkeypatch.setattr(installed, "installed_models", lambda: found)
    return found


def test_the_fitting_model_is_found_in_either_order(models):
    assert find_installed("de-en") == find_installed("en-de") == models["de-en"]
    assert find_installed("fr2") == models["fr2"]
    names = r"installed: de-en, fr, fr2 \(either way round\)"
    with pytest.raises(BundleError, match=rf"no model for fi-hu; {names}; give the path of one"):
        find_installed("fi-hu")
    with pytest.raises(BundleError, match="several models for en-fr: fr, fr2"):
        find_installed("en-fr")
    with pytest.raises(
        BundleError, match=rf"which model\? {names}; choose with langs, or give the"
    ):
        find_installed()


def test_languages_have_many_names(models):
    for langs in ("deu-eng", "DE-en", "german-english", "en_US-de"):
        assert find_installed(langs) == models["de-en"]


def test_many_pairs_are_told_in_one(bundle, tmp_path):
    in_languages(bundle, tmp_path / "some.mx", "de+fr+it+nl+pl+sv+tr", "en")
    in_languages(bundle, tmp_path / "any.mx", "de+fr+it", "de+en+fr+it")
    some, every = (Bundle.load(tmp_path / f"{name}.mx") for name in ("some", "any"))
    assert some.told_pairs == ["en with any of de fr it nl pl sv tr"]
    assert every.told_pairs == ["any two of de en fr it"]
    assert len(every.language_pairs) == 9 and "de-de" not in every.language_pairs
    orders = [every.language_order(langs) for langs in ("fr-it", "it-fr", "en-it", "it-en")]
    assert orders == [1, 1, -1, 1]


def test_an_underscore_stands_for_the_hyphen_inside_a_code():
    assert parse_languages("de-en") == ("de", "en")
    assert parse_languages("de+zh_Hans-en") == ("de+zh-Hans", "en")


@pytest.mark.slow
@pytest.mark.parametrize("langs", ["en", "de-", "d-en", "", "frensh-en"])
def test_languages_are_two_names(bundle, models, langs):
    for model in (None, bundle):
        with pytest.raises(MxError, match=r"must be two, such as de-en|there is no language"):
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
    monkeypatch.setattr(installed, "installed_models", lambda: found)
    for langs, swapped in (("de-en", False), ("FR-en", False), ("en-fr", True), ("en-de", True)):
        assert find_installed(langs) == found["joint"]
        assert Aligner.load(langs=langs).swapped == swapped
    with pytest.raises(BundleError, match=r"no model for de-fr; installed: de-en, fr-en \("):
        find_installed("de-fr")
    with pytest.raises(BundleError, match=r"which model\? installed: de-en, fr-en \(.*langs"):
        find_installed()

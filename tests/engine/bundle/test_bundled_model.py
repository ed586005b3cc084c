"""The model that ships with the package: found by language, and it aligns without PyTorch."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from ....engine.aligner import Aligner
from ....engine.bundle.installed import find_installed, installed_models
from ....engine.commands import align as cli
from ....engine.commands.view import main as view
from ....engine.errors import MxError
from ...support.guarded import run_guarded

DATA = Path(__file__).parents[2] / "data"


def lines(name: str) -> list[str]:
    return (DATA / name).read_text("utf-8").split("\n")[:-1]


@pytest.mark.slow
def test_the_sample_is_aligned_without_torch():
    files = [str(DATA / "sample.en"), str(DATA / "sample.fr"), "--langs", "en-fr"]
    code = f"from mx_align.engine.commands.align import main; main({files}, prog_name='mx-align')"
    done = run_guarded({"torch", "triton", "mx_align.trainer", "mx_align.export"}, code)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split("\n")[:-1]
    src, tgt = lines("sample.en"), lines("sample.fr")
    assert len(found) == len(src) == len(tgt)
    for links, s, t in zip(found, src, tgt, strict=True):
        pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
        assert pairs == sorted(set(pairs))
        assert all(i < len(s.split(" ")) and j < len(t.split(" ")) for i, j in pairs)
        assert bool(pairs) == bool(s and t)
    assert found[0] == "0-0 1-1 2-2 3-3 4-4"  # the house is small . / la maison est petite .


def test_adjectives_change_places():
    aligner = Aligner.load(langs="en-fr")
    links = aligner.align_pair("the federal government agrees", "le gouvernement fédéral accepte")
    assert {(0, 0), (1, 2), (2, 1), (3, 3)} <= set(links.links)


def test_german_is_aligned_both_ways():
    src, tgt = "das haus ist nicht klein .", "the house is not small ."
    wanted = [(k, k) for k in range(6)]
    assert Aligner.load(langs="de-en").align_pair(src, tgt).links == wanted
    assert Aligner.load(langs="EN-DE").align_pair(tgt, src).links == wanted


def test_case_and_accents_may_be_missing():
    aligner = Aligner.load(langs="en-fr")
    found = [
        aligner.align_pair("the committee was created", tgt).links
        for tgt in ("le comité a été créé", "LE COMITÉ A ÉTÉ CRÉÉ", "le comite a ete cree")
    ]
    assert found[0] == found[1]
    assert all({(0, 0), (1, 1), (3, 4)} <= set(links) for links in found)


# A pair for each script and family, of words that every model of these languages must know.
KNOWN = {
    "es": ("the house is small", "la casa es pequeña"),
    "nl": ("the house is small", "het huis is klein"),
    "pl": ("the old man and the sea", "stary człowiek i morze"),
    "ru": ("i see a big house", "я вижу большой дом"),
    "el": ("the water and the bread", "το νερό και το ψωμί"),
    "fi": ("the new book is here", "uusi kirja on täällä"),
    "hu": ("where is the water", "hol van a víz"),
    "tr": ("a new book", "yeni bir kitap"),
    "he": ("the big house", "הבית הגדול"),
    "ar": ("a new book", "كتاب جديد"),
    "hi": ("water and milk", "पानी और दूध"),
    "zh": ("i love you", "我 爱 你"),
    "ja": ("water and milk", "水 と 牛乳"),
    "ko": ("a new book", "새로운 책"),
    "vi": ("a new book", "một cuốn sách mới"),
}
SURE = {
    "es": {(0, 0), (1, 1), (2, 2), (3, 3)}, "nl": {(0, 0), (1, 1), (2, 2), (3, 3)},
    "pl": {(1, 0), (3, 2), (5, 3)}, "ru": {(0, 0), (1, 1), (3, 2), (4, 3)},
    "el": {(1, 1), (2, 2), (4, 4)}, "fi": {(1, 0), (2, 1), (3, 2), (4, 3)},
    "hu": {(0, 0), (1, 1), (3, 3)}, "tr": {(1, 0), (2, 2)}, "he": {(2, 0), (1, 1)},
    "ar": {(2, 0), (1, 1)}, "hi": {(0, 0), (1, 1), (2, 2)}, "zh": {(0, 0), (1, 1), (2, 2)},
    "ja": {(0, 0), (1, 1), (2, 2)}, "ko": {(1, 0), (2, 1)}, "vi": {(1, 3), (2, 2)},
}  # fmt: skip


@pytest.mark.parametrize("language", KNOWN)
def test_plain_words_are_aligned_in_many_languages(language):
    english, other = KNOWN[language]
    found = set(Aligner.load(langs=f"en-{language}").align_pair(english, other).links)
    assert SURE[language] <= found
    turned = Aligner.load(langs=f"{language}-en").align_pair(other, english).links
    assert {(j, i) for i, j in turned} == found


def test_languages_without_a_model_are_named():
    assert list(installed_models()) == ["multilingual"]
    with pytest.raises(MxError, match=r"no model for th-en; installed: any two of ar bg") as found:
        Aligner.load(langs="th-en").align_pair("a", "b")
    with pytest.raises(MxError, match=r"which model\? installed: any two of .*choose") as other:
        Aligner.load().align_pair("a", "b")
    assert " -" not in f"{found.value} {other.value}"  # no flags, which are of commands


def test_the_models_are_listed():
    result = CliRunner().invoke(cli.main, ["--list-models"])
    assert result.exit_code == 0
    for name in installed_models():
        assert result.stdout.startswith(f"{name}: ") and " MB, " in result.stdout


def test_each_command_names_the_flags_it_has(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    files = [str(DATA / "sample.en"), str(DATA / "sample.fr")]
    for command, made in ((cli.main, True), (view, False)):
        model_only = ["--method", "model"] if made else []
        none = CliRunner().invoke(command, [*files, "--langs", "th-en", *model_only])
        assert none.exit_code == 2 and "(either way round); give one with -m" in none.stderr
        assert ("--train-on-input" in none.stderr) == made
        path = CliRunner().invoke(command, [*files, "-m", "en-fr"])
        assert path.exit_code == 2 and "or give --langs en-fr to use" in path.stderr


@pytest.mark.slow
def test_how_a_given_model_reads_the_sides_is_said(tmp_path):
    # Of names that tell no language.
    files, model = [str(tmp_path / "first"), str(tmp_path / "second")], find_installed("en-fr")
    for name, path in zip(("en", "fr"), files, strict=True):
        shutil.copy(DATA / f"sample.{name}", path)
    line = [*files, "-m", str(model)]
    note = "mx-align: reading the source as one of 36 languages (--list-models) and the target "
    said = CliRunner().invoke(cli.main, line).stderr
    assert said.startswith(note) and said.count("reading") == 1
    assert CliRunner().invoke(cli.main, [*line, "--quiet"]).stderr == ""
    assert "reading" not in CliRunner().invoke(cli.main, [*line, "--langs", "en-fr"]).stderr
    nameless = shutil.copytree(model, tmp_path / "nameless.mx")
    manifest = json.loads((model / "manifest.json").read_bytes())
    (nameless / "manifest.json").write_text(json.dumps({**manifest, "languages": ["und", "und"]}))
    unknown = CliRunner().invoke(cli.main, [*files, "-m", str(nameless)])
    assert unknown.exit_code == 0 and "reading" not in unknown.stderr


@pytest.mark.slow
def test_a_model_for_other_languages_is_not_used_in_silence(tmp_path):
    model = str(find_installed("de-en"))
    (tmp_path / "pairs").write_text("a ||| b\n")
    for langs, warned in (("th-en", True), ("en-de", False), ("FR-EN", False)):
        line = [str(tmp_path / "pairs"), "-m", model, "--langs", langs]
        result = CliRunner().invoke(cli.main, line)
        said = f"warning: {model} is a model for any two of ar " in result.stderr
        assert result.exit_code == 0 and said == warned


def test_the_models_are_small_and_say_where_they_come_from():
    folders = installed_models().values()
    assert sum(f.stat().st_size for path in folders for f in path.iterdir()) < 18e6
    for path in folders:
        card = (path / "README.md").read_text("utf-8")
        for part in ("AER", "Licence of the data", "Cost:", "## Limits"):
            assert part in card


def test_lines_of_open_files_are_read_without_their_newline():
    aligner = Aligner.load(langs="en-fr")
    with open(DATA / "sample.en", encoding="utf-8") as src, open(DATA / "sample.fr") as tgt:
        found = list(aligner.align(src, tgt))
    assert [a.links for a in found] == [
        a.links for a in aligner.align(lines("sample.en"), lines("sample.fr"))
    ]
    assert found[0].src == ("the", "house", "is", "small", ".")


def test_pages_are_drawn_by_language(tmp_path):
    files = [str(DATA / "sample.en"), str(DATA / "sample.fr")]
    page = tmp_path / "page.html"
    result = CliRunner().invoke(view, [*files, "--langs", "en-fr", "-o", str(page)])
    assert result.exit_code == 0 and page.stat().st_size > 1000, result.output

"""Teachers: files of links, runs, bundles, and mixtures of them."""

import pytest

from ....engine.bundle.installed import installed_models
from ....engine.errors import InputError, MxError
from ....trainer.data.teacher_links import TeacherLinks
from ....trainer.loop.train import train_network
from ....trainer.run.folder import RunCommand, prepare_run
from ....trainer.run.texts import Texts
from ....trainer.teachers.teachers import (
    average_teachers,
    load_bundle_teacher,
    load_run_teacher,
    read_link_lines,
)

PAIRS = [(["a", "b"], ["c"]), (["d"], ["e", "f"]), ([], ["g"])]


def read_links(tmp_path, *lines):
    path = tmp_path / "links"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return list(read_link_lines(path, PAIRS))


def test_a_file_gives_its_links_and_scores(tmp_path):
    found = read_links(tmp_path, "1-0 0-0:0.25", "0-1:7", "")
    assert found == [[(0, 0, 0.25), (1, 0, 1.0)], [(0, 1, 1.0)], []]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0-0", "0-2", ""], "line 2: link 0-2 is outside its sentences of 1 and 2 words"),
        (["0-0", "0-0"], "ends after 2 lines but the text goes on"),
        (["0-0", "0-0", "", ""], "has more lines than the text, which has 3"),
        (["0-0", "zero", ""], "line 2: 'zero' is not a link"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, lines, message):
    with pytest.raises(InputError, match=message):
        read_links(tmp_path, *lines)


def test_a_mixture_is_the_mean():
    one = [[(0, 0, 1.0), (1, 1, 0.3)], []]
    other = [[(0, 0, 0.5), (2, 2, 0.9)], [(3, 3, 1.0)]]
    assert list(average_teachers([one, other])) == [[(0, 0, 0.75), (2, 2, 0.45)], [(3, 3, 0.5)]]


def test_a_user_s_links_teach(start, corpus, tmp_path, read_log):
    """Also for the pairs that are held out, which are lines of the same file."""
    n = len(corpus[0].read_text("utf-8").split("\n")) - 1
    path = tmp_path / "user.links"
    path.write_text("0-0\n" * n, "utf-8")
    run = tmp_path / "run"
    _, _, data, *_ = start(run, {"teacher": [str(path)]}, kind="student", refine=2)
    found = list(data.links.iterate_pairs())
    assert len(found) == len(data.train) and all(pair == [(0, 0, 1.0)] for pair in found)
    assert data.valid_links is not None
    assert len(data.valid_links.offsets) == len(data.valid) + 1


@pytest.mark.slow
def test_runs_and_bundles_teach(start, tmp_path):
    from ....export.bundling import export_run
    from ....export.options import ExportOptions

    run, bundle = tmp_path / "teacher", tmp_path / "teacher.zip"
    train_network(*start(run, {"valid_last": 10}, steps=12, warm_start="statistical"))
    options = ExportOptions(run=str(run), output=str(bundle), dtype=("fp32",))
    export_run(options, lambda note: None)
    pairs = [(["w1", "w2", "w3"], ["Größe1", "Größe2"]), ([], ["Größe1"])]
    from_run = load_run_teacher(run)
    for teacher in (from_run, load_bundle_teacher(bundle, None, print)):
        found = list(teacher(pairs))
        assert len(found) == 2 and not found[1]
        assert all(0 <= i < 3 and 0 <= j < 2 and 0 < w <= 1 for i, j, w in found[0])
    long = [["w1"] * 300, ["Größe1"]]
    assert list(from_run([long])) == [[]]  # of more pieces than it learned from
    _, _, data, *_ = start(
        tmp_path / "student", {"teacher": [str(run), str(bundle), "statistical"]}, kind="student"
    )
    assert isinstance(data.links, TeacherLinks) and len(data.links.links)


def test_a_model_is_turned_to_the_languages_of_the_text():
    (path,) = set(installed_models().values())
    notes = []
    pair = ["the", "house", "is", "small", "."], ["la", "maison", "est", "petite", "."]
    (turned,) = load_bundle_teacher(path, "en-fr", notes.append)([pair])
    (straight,) = load_bundle_teacher(path, "fr-en", notes.append)([pair[::-1]])
    assert turned and not notes
    assert sorted((j, i, w) for i, j, w in turned) == sorted(straight)
    load_bundle_teacher(path, "sw-zu", notes.append)
    load_bundle_teacher(path, None, notes.append)
    assert "is a model for" in notes[0] and "not for sw-zu" in notes[0]
    assert "reads SRC as" in notes[1] and "--langs turns it round" in notes[1]


def test_a_teacher_that_would_teach_nothing_is_refused(start, tmp_path):
    with pytest.raises(MxError, match="--teacher teaches nothing with --warm-start none"):
        start(tmp_path / "run", {"teacher": ["statistical"]}, warm_start="none")


def test_an_unknown_teacher_is_refused(start, tmp_path):
    with pytest.raises(InputError, match="there is no such link file, bundle or run folder"):
        start(tmp_path / "run", {"teacher": [str(tmp_path / "nobody")]}, kind="student")


@pytest.fixture
def link_lines(corpus, tmp_path):
    """Writes a file with a line for each pair of the corpus, and some more."""

    def write(more=0):
        n = len(corpus[0].read_text("utf-8").split("\n")) - 1
        path = tmp_path / "user.links"
        path.write_text("0-0\n" * (n + more), "utf-8")
        return path

    return write


@pytest.mark.parametrize("held", [0, 10])
@pytest.mark.parametrize("more", [1, -1])
def test_a_file_must_be_as_long_as_the_text(start, link_lines, tmp_path, more, held):
    texts = {"teacher": ["statistical", str(link_lines(more))], "valid_last": held}
    with pytest.raises(InputError, match=r"has \d+ lines but the text has \d+ pairs"):
        start(tmp_path / "run", texts, kind="student")
    assert not (tmp_path / "run" / "src.spm").exists()  # nothing was computed before


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "is not a model bundle"),
        (("manifest.json",), r"manifest\.json"),
        (("config.json",), r"has no model\.safetensors"),
    ],
)
def test_folders_that_cannot_teach_are_refused_at_once(start, tmp_path, files, message):
    folder = tmp_path / "teacher"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("{}", "utf-8")
    with pytest.raises(MxError, match=message):
        start(tmp_path / "run", {"teacher": [str(folder)]}, kind="student")
    assert not (tmp_path / "run" / "src.spm").exists()


def test_languages_that_are_none_are_refused_at_once(start, tmp_path):
    with pytest.raises(MxError, match="two codes such as de-en"):
        start(tmp_path / "run", {"teacher": ["statistical"], "langs": "foo"}, kind="student")
    assert not (tmp_path / "run" / "src.spm").exists()


def test_a_trained_run_keeps_its_teacher(start, link_lines, tmp_path):
    path = link_lines()
    texts = {"teacher": [str(path)]}
    train_network(*start(tmp_path / "run", texts, kind="student", steps=2))
    path.write_text(path.read_text("utf-8").replace("0-0", "0-0:0.9"), "utf-8")
    with pytest.raises(MxError, match=r"was taught by .* as it was before"):
        start(tmp_path / "run", texts, kind="student", steps=4)
    path.unlink()
    with pytest.raises(InputError, match=r"there is no such link file|is gone"):
        start(tmp_path / "run", texts, kind="student", steps=4)


def test_restart_does_not_delete_the_teacher(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    texts = Texts("a", "b", teacher=[str(run)])
    with pytest.raises(MxError, match="would delete"):
        prepare_run(RunCommand(run, texts, "student", restart=True), lambda note: None)


def test_restart_does_not_delete_the_copy_of_a_text(start, corpus, tmp_path):
    train_network(*start(tmp_path / "run", kind="student", steps=2))
    copy = tmp_path / "run" / "text" / "src"
    copy.parent.mkdir()
    copy.write_bytes(corpus[0].read_bytes())
    command = RunCommand(
        tmp_path / "run", Texts(str(copy), str(corpus[1])), "student", restart=True
    )
    with pytest.raises(MxError, match="would delete"):
        prepare_run(command, lambda note: None)
    assert copy.exists()


def test_restart_with_a_teacher_that_cannot_teach_deletes_nothing(
    start, link_lines, corpus, tmp_path
):
    run = tmp_path / "run"
    train_network(*start(run, kind="student", steps=2))
    texts = Texts(*map(str, corpus), teacher=[str(link_lines(-1))])
    with pytest.raises(MxError, match="lines but the text has"):
        prepare_run(RunCommand(run, texts, "student", restart=True), lambda note: None)
    assert (run / "model.safetensors").exists()


def test_another_teacher_is_checked_though_there_are_links(start, link_lines, tmp_path):
    """Of the one before, in a run that was not trained."""
    run = tmp_path / "run"
    start(run, kind="student")
    before = (run / "src.spm").stat().st_mtime_ns
    texts = {"teacher": [str(link_lines(-1))]}
    with pytest.raises(InputError, match="lines but the text has"):
        start(run, texts, kind="student", vocab_size=310)
    assert not (run / "src.spm").exists() or (run / "src.spm").stat().st_mtime_ns == before


def test_teachers_are_part_of_a_run(start, tmp_path):
    """Another teacher for an untrained run makes other links."""
    run = tmp_path / "run"
    _, _, first, *_ = start(run, kind="student")
    n = first.train.counts.read + first.valid.counts.read
    path = tmp_path / "few.links"
    path.write_text("0-0\n" * n, "utf-8")
    _, _, second, *_ = start(run, {"teacher": [str(path)]}, kind="student")
    assert len(first.links.links) > len(second.links.links) == len(first.train)


def test_a_teacher_without_links_is_refused(start, tmp_path):
    path = tmp_path / "none.links"
    _, _, data, *_ = start(tmp_path / "run", kind="student")
    path.write_text("\n" * (data.train.counts.read + data.valid.counts.read), "utf-8")
    with pytest.raises(MxError, match=r"none\.links found no link in"):
        start(tmp_path / "other", {"teacher": [str(path)]}, kind="student")

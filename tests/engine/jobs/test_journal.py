import errno
import gzip
import json
import os
from pathlib import Path

import pytest

from ....engine.errors import MxError
from ....engine.jobs.journal import Journal, folder_of
from ....engine.text.files import read_lines

SETTINGS = {"how": "soft", "one_based": False}


def write(journal, data: bytes, whole: bool = True, digest: str = "d") -> None:
    journal.append([data] * len(journal.targets), 2, digest, [2, 0, 0, 0, 1, 4], whole)


def test_nothing_has_its_final_name_before_the_end(tmp_path):
    targets = [tmp_path / "out", tmp_path / "scores"]
    with Journal.open(targets, SETTINGS) as journal:
        write(journal, b"0-0\n")
        assert not targets[0].exists()
        journal.finish()
    assert [path.read_bytes() for path in targets] == [b"0-0\n"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "scores"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_at_the_end_so_chunks_leave_no_trace(tmp_path, suffix):
    made = []
    for name, parts in (("a", [b"0-0\n1-1\n"]), ("b", [b"0-0\n", b"1-1\n"])):
        target = tmp_path / f"{name}{suffix}"
        with Journal.open([target], SETTINGS) as journal:
            for part in parts:
                write(journal, part)
            journal.finish()
        assert list(read_lines(target)) == ["0-0", "1-1"]
        made.append(target.read_bytes())
    assert made[0] == made[1]


def test_goes_on_behind_the_last_record(tmp_path):
    target = tmp_path / "out"
    with Journal.open([target], SETTINGS) as journal:
        write(journal, b"first\n", digest="x")
    folder = folder_of(target)
    with open(folder / "part0", "ab") as file:
        file.write(b"half a li")  # written before a kill, without a record
    with open(folder / "journal", "ab") as file:
        file.write(b'{"pairs": 2, "dig')  # a record cut by the kill
    with Journal.open([target], SETTINGS) as journal:
        assert [record.digest for record in journal.records] == ["x"]
        write(journal, b"second\n")
    with Journal.open([target], SETTINGS) as journal:
        assert len(journal.records) == 2
        journal.finish()
    assert target.read_bytes() == b"first\nsecond\n"


def test_a_chunk_cut_short_by_the_end_of_the_input_is_made_again(tmp_path):
    target = tmp_path / "out"
    with Journal.open([target], SETTINGS) as journal:
        write(journal, b"first\n")
        write(journal, b"too short\n", whole=False)
    with Journal.open([target], SETTINGS) as journal:
        assert len(journal.records) == 1
        journal.finish()
    assert target.read_bytes() == b"first\n"


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_killed_while_files_get_their_names(tmp_path, moved):
    targets = [tmp_path / "a", tmp_path / "b.gz"]
    with Journal.open(targets, SETTINGS) as journal:
        write(journal, b"line\n")
        journal._note({"complete": True})
    folder = folder_of(targets[0])
    if moved:
        (folder / "part0").rename(targets[0])
    if moved == 2:
        (folder / "part1").unlink()
        targets[1].write_bytes(gzip.compress(b"line\n"))
    with Journal.open(targets, SETTINGS) as journal:
        assert journal.complete
        journal.finish()
    assert targets[0].read_bytes() == b"line\n"
    assert gzip.decompress(targets[1].read_bytes()) == b"line\n"
    assert not folder.exists()


def test_notes_are_kept_until_the_end_and_get_no_name(tmp_path):
    target = tmp_path / "out"
    with Journal.open([target], SETTINGS, notes=True) as journal:
        assert list(journal.notes()) == []
        for data in (b"first\n", b"second\n"):
            journal.append([data, b"on " + data], 2, "d", [2, 0, 0, 0, 1, 4], True)
    with open(folder_of(target) / "part1", "ab") as file:
        file.write(b"on nothing\n")  # without a record
    with Journal.open([target], SETTINGS) as journal:
        assert list(journal.notes()) == []  # nobody wants them now
    with Journal.open([target], SETTINGS, notes=True) as journal:
        assert list(journal.notes()) == [b"on first", b"on second"]
        journal.finish()
    assert target.read_bytes() == b"first\nsecond\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_notes_cannot_begin_in_the_middle(tmp_path):
    with Journal.open([tmp_path / "out"], SETTINGS) as journal:
        write(journal, b"line\n")
    begun = pytest.raises(MxError, match=r"begun without --report or --html.*--restart")
    with begun, Journal.open([tmp_path / "out"], SETTINGS, notes=True):
        pass


def test_other_settings_are_named(tmp_path):
    target = tmp_path / "out"
    with Journal.open([target], SETTINGS) as journal:
        write(journal, b"line\n")
    changed = {**SETTINGS, "one_based": True}
    with (
        pytest.raises(MxError, match=r"one-based False, now True.*--restart"),
        Journal.open([target], changed),
    ):
        pass
    with Journal.open([target], changed, restart=True) as journal:
        assert journal.records == []
        write(journal, b"new\n")
        journal.finish()
    assert target.read_bytes() == b"new\n"


def test_settings_that_say_little_are_put_in_words(tmp_path):
    target = tmp_path / "out"
    sizes = {"how": "a|thr:0.1", "model": "12ab", "average": [12800]}
    with Journal.open([target], sizes) as journal:
        write(journal, b"line\n")
    changed = {"how": "a|thr:0.2", "model": "34cd", "average": [6400]}
    with pytest.raises(MxError) as found, Journal.open([target], changed):
        pass
    said = "with other files given with --average; signature 'a|thr:0.1', now 'a|thr:0.2'; another"
    assert f"{said} model; repeat" in str(found.value)


@pytest.mark.parametrize("whole", [None, False])
def test_without_a_finished_chunk_it_is_begun_anew(tmp_path, whole):
    """Whatever it was begun with: a first try must not be in the way of the second."""
    target = tmp_path / "out"
    with Journal.open([target, tmp_path / "scores"], SETTINGS, notes=True) as journal:
        if whole is not None:
            journal.append([b"too short\n"] * 3, 2, "d", [2, 0, 0, 0, 1, 4], whole)
    for _ in range(2):
        with Journal.open([target], {**SETTINGS, "one_based": True}) as journal:
            assert journal.records == [] and not journal.complete
    with Journal.open([target], SETTINGS) as journal:
        write(journal, b"new\n")
        journal.finish()
    assert target.read_bytes() == b"new\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_empty_output_that_is_complete_is_not_begun_anew(tmp_path):
    target = tmp_path / "out"
    with Journal.open([target], SETTINGS) as journal:
        journal._note({"complete": True})
    other = Journal.open([target], {**SETTINGS, "one_based": True})
    with pytest.raises(MxError, match="one-based False, now True"), other:
        pass


def test_two_at_once(tmp_path):
    again = Journal.open([tmp_path / "out"], SETTINGS)
    busy = pytest.raises(MxError, match="another mx-align is writing")
    with Journal.open([tmp_path / "out"], SETTINGS), busy, again:
        pass


def test_damage_is_noticed(tmp_path):
    target = tmp_path / "out"
    with Journal.open([target], SETTINGS) as journal:
        write(journal, b"line\n")
    folder = folder_of(target)
    (folder / "part0").write_bytes(b"li")
    with (
        pytest.raises(MxError, match=r"2 bytes where the journal says 5"),
        Journal.open([target], SETTINGS),
    ):
        pass
    journal = (folder / "journal").read_bytes()
    (folder / "journal").write_bytes(b"\0\0\n" + journal)
    with pytest.raises(MxError, match="damaged"), Journal.open([target], SETTINGS):
        pass
    header = journal.split(b"\n")[0]
    (folder / "journal").write_bytes(header + b"\n" + json.dumps({"x": 1}).encode() + b"\n")
    with pytest.raises(MxError, match="damaged"), Journal.open([target], SETTINGS):
        pass


def test_no_folder_or_something_in_the_way(tmp_path):
    with (
        pytest.raises(MxError, match="create it first"),
        Journal.open([tmp_path / "no" / "out"], SETTINGS),
    ):
        pass
    (tmp_path / "out.partial").write_text("mine")
    with pytest.raises(MxError, match="in the way"), Journal.open([tmp_path / "out"], SETTINGS):
        pass


def test_a_target_on_another_disk_or_behind_a_link(tmp_path, monkeypatch):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    replace = os.replace

    def other_disk(source, target):
        if "part" in Path(source).name:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, target)

    monkeypatch.setattr(os, "replace", other_disk)
    targets = [tmp_path / "link", tmp_path / "b.gz"]
    with Journal.open(targets, SETTINGS) as journal:
        write(journal, b"line\n")
        journal.finish()
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"line\n"
    assert gzip.decompress(targets[1].read_bytes()) == b"line\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.gz", "link", "real"]

import errno
import gzip
import os
from pathlib import Path

import pytest

from ....engine.errors import MxError
from ....engine.jobs.output_files import OutputFiles, partial_folder
from ....engine.text.files import read_lines
from ....engine.types import Counts

SETTINGS = {"how": "soft", "one_based": False}
COUNTS = Counts(pairs=2, links=1, words=4)


def write(output, data: bytes, whole: bool = True, digest: str = "d") -> None:
    output.append_chunk([data] * len(output.targets), COUNTS, digest, whole)


def test_nothing_has_its_final_name_before_the_end(tmp_path):
    targets = [tmp_path / "out", tmp_path / "scores"]
    with OutputFiles(targets, SETTINGS) as output:
        write(output, b"0-0\n")
        assert not targets[0].exists()
        output.finish()
    assert [path.read_bytes() for path in targets] == [b"0-0\n"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "scores"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_at_the_end_so_chunks_leave_no_trace(tmp_path, suffix):
    made = []
    for name, parts in (("a", [b"0-0\n1-1\n"]), ("b", [b"0-0\n", b"1-1\n"])):
        target = tmp_path / f"{name}{suffix}"
        with OutputFiles([target], SETTINGS) as output:
            for part in parts:
                write(output, part)
            output.finish()
        assert list(read_lines(target)) == ["0-0", "1-1"]
        made.append(target.read_bytes())
    assert made[0] == made[1]


def test_goes_on_behind_the_last_record(tmp_path):
    target = tmp_path / "out"
    with OutputFiles([target], SETTINGS) as output:
        write(output, b"first\n", digest="x")
    folder = partial_folder(target)
    with open(folder / "part0", "ab") as file:
        file.write(b"half a li")  # written before a kill, without a record
    with open(folder / "journal", "ab") as file:
        file.write(b'{"pairs": 2, "dig')  # a record cut by the kill
    with OutputFiles([target], SETTINGS) as output:
        assert [record["digest"] for record in output.records] == ["x"]
        write(output, b"second\n")
    with OutputFiles([target], SETTINGS) as output:
        assert len(output.records) == 2
        output.finish()
    assert target.read_bytes() == b"first\nsecond\n"


def test_the_journal_of_an_earlier_version_says_so(tmp_path):
    folder = partial_folder(tmp_path / "out")
    folder.mkdir()
    (folder / "journal").write_bytes(b'{"how": "soft", "mx-align": 1, "targets": ["out"]}\n')
    with pytest.raises(MxError, match="another version"), OutputFiles([tmp_path / "out"], SETTINGS):
        pass
    with OutputFiles([tmp_path / "out"], SETTINGS, restart=True) as output:
        assert not output.records


def test_files_of_others_are_left_alone(tmp_path):
    folder = partial_folder(tmp_path / "out")
    folder.mkdir()
    (folder / "part0").write_text("mine")
    strange = pytest.raises(MxError, match="has files but no links of mx-align")
    with strange, OutputFiles([tmp_path / "out"], SETTINGS, restart=True):
        pass
    (folder / "part0").unlink()
    with OutputFiles([tmp_path / "out"], SETTINGS) as output:
        (folder / "mine").write_text("mine")
        write(output, b"line\n")
        output.finish()
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_a_chunk_cut_short_by_the_end_of_the_input_is_made_again(tmp_path):
    target = tmp_path / "out"
    with OutputFiles([target], SETTINGS) as output:
        write(output, b"first\n")
        write(output, b"too short\n", whole=False)
    with OutputFiles([target], SETTINGS) as output:
        assert len(output.records) == 1
        output.finish()
    assert target.read_bytes() == b"first\n"


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_killed_while_files_get_their_names(tmp_path, moved):
    targets = [tmp_path / "a", tmp_path / "b.gz"]
    with OutputFiles(targets, SETTINGS) as output:
        write(output, b"line\n")
        output.append({"complete": True})
    folder = partial_folder(targets[0])
    if moved:
        (folder / "part0").rename(targets[0])
    if moved == 2:
        (folder / "part1").unlink()
        targets[1].write_bytes(gzip.compress(b"line\n"))
    with OutputFiles(targets, SETTINGS) as output:
        assert output.complete
        output.finish()
    assert targets[0].read_bytes() == b"line\n"
    assert gzip.decompress(targets[1].read_bytes()) == b"line\n"
    assert not folder.exists()


def test_notes_are_kept_until_the_end_and_get_no_name(tmp_path):
    target = tmp_path / "out"
    with OutputFiles([target], SETTINGS, notes=True) as output:
        assert list(output.read_notes()) == []
        for data in (b"first\n", b"second\n"):
            output.append_chunk([data, b"on " + data], COUNTS, "d", True)
    with open(partial_folder(target) / "part1", "ab") as file:
        file.write(b"on nothing\n")  # without a record
    with OutputFiles([target], SETTINGS) as output:
        assert list(output.read_notes()) == []  # nobody wants them now
    with OutputFiles([target], SETTINGS, notes=True) as output:
        assert list(output.read_notes()) == [b"on first", b"on second"]
        output.finish()
    assert target.read_bytes() == b"first\nsecond\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_notes_cannot_begin_in_the_middle(tmp_path):
    with OutputFiles([tmp_path / "out"], SETTINGS) as output:
        write(output, b"line\n")
    begun = pytest.raises(MxError, match=r"begun without --report or --html.*--restart")
    with begun, OutputFiles([tmp_path / "out"], SETTINGS, notes=True):
        pass


def test_other_settings_are_named(tmp_path):
    target = tmp_path / "out"
    with OutputFiles([target], SETTINGS) as output:
        write(output, b"line\n")
    changed = {**SETTINGS, "one_based": True}
    with (
        pytest.raises(MxError, match=r"one-based False, now True.*--restart"),
        OutputFiles([target], changed),
    ):
        pass
    with OutputFiles([target], changed, restart=True) as output:
        assert output.records == []
        write(output, b"new\n")
        output.finish()
    assert target.read_bytes() == b"new\n"


def test_settings_that_say_little_are_put_in_words(tmp_path):
    target = tmp_path / "out"
    sizes = {"how": "a|thr:0.1", "model": "12ab", "average": [12800]}
    with OutputFiles([target], sizes) as output:
        write(output, b"line\n")
    changed = {"how": "a|thr:0.2", "model": "34cd", "average": [6400]}
    with pytest.raises(MxError) as found, OutputFiles([target], changed):
        pass
    said = "with other files given with --average; signature 'a|thr:0.1', now 'a|thr:0.2'; another"
    assert f"{said} model; repeat" in str(found.value)


@pytest.mark.parametrize("whole", [None, False])
def test_without_a_finished_chunk_it_is_begun_anew(tmp_path, whole):
    """Whatever it was begun with: a first try must not be in the way of the second."""
    target = tmp_path / "out"
    with OutputFiles([target, tmp_path / "scores"], SETTINGS, notes=True) as output:
        if whole is not None:
            output.append_chunk([b"too short\n"] * 3, COUNTS, "d", whole)
    for _ in range(2):
        with OutputFiles([target], {**SETTINGS, "one_based": True}) as output:
            assert output.records == [] and not output.complete
    with OutputFiles([target], SETTINGS) as output:
        write(output, b"new\n")
        output.finish()
    assert target.read_bytes() == b"new\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_empty_output_that_is_complete_is_not_begun_anew(tmp_path):
    target = tmp_path / "out"
    with OutputFiles([target], SETTINGS) as output:
        output.append({"complete": True})
    other = OutputFiles([target], {**SETTINGS, "one_based": True})
    with pytest.raises(MxError, match="one-based False, now True"), other:
        pass


def test_two_at_once(tmp_path):
    again = OutputFiles([tmp_path / "out"], SETTINGS)
    busy = pytest.raises(MxError, match="another mx-align is writing")
    with OutputFiles([tmp_path / "out"], SETTINGS), busy, again:
        pass


@pytest.mark.parametrize("file", ["part0", "journal"])
def test_flipped_bytes_are_noticed_and_made_again(tmp_path, file):
    target = tmp_path / "out"
    for where in range(1, 6):  # somewhere in the second chunk or its record
        with OutputFiles([target], SETTINGS, restart=True) as output:
            write(output, b"first line\n")
            begun = (output.folder / file).stat().st_size
            write(output, b"second line\n")
            write(output, b"third line\n")
        data = bytearray((partial_folder(target) / file).read_bytes())
        data[begun + where] ^= 1
        (partial_folder(target) / file).write_bytes(data)
        with OutputFiles([target], SETTINGS) as output:
            assert len(output.records) == 1
            write(output, b"second line\n")
            output.finish()
        assert target.read_bytes() == b"first line\nsecond line\n"


def test_a_journal_without_its_first_line_is_damaged(tmp_path):
    with OutputFiles([tmp_path / "out"], SETTINGS) as output:
        write(output, b"line\n")
    journal = partial_folder(tmp_path / "out") / "journal"
    journal.write_bytes(b"\0\0\n" + journal.read_bytes())
    with pytest.raises(MxError, match="damaged"), OutputFiles([tmp_path / "out"], SETTINGS):
        pass


def test_what_was_removed_after_the_end_is_made_again(tmp_path):
    target = tmp_path / "out"
    with OutputFiles([target], SETTINGS) as output:
        write(output, b"line\n")
        output.append({"complete": True})
    (partial_folder(target) / "part0").unlink()
    with OutputFiles([target], SETTINGS) as output:
        assert not output.complete and not output.records


def test_links_that_somebody_planted_are_not_followed(tmp_path):
    target, treasure = tmp_path / "out", tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "part0").write_text("mine")
    partial_folder(target).symlink_to(treasure)
    with pytest.raises(MxError, match="in the way"), OutputFiles([target], SETTINGS):
        pass
    partial_folder(target).unlink()
    for name in ("lock", "part0"):
        partial_folder(target).mkdir(exist_ok=True)
        with OutputFiles([target], SETTINGS, restart=True) as output:
            write(output, b"line\n")
        (partial_folder(target) / name).unlink()
        (partial_folder(target) / name).symlink_to(treasure / "part0")
        with pytest.raises(MxError, match="is a link"), OutputFiles([target], SETTINGS):
            pass
        (partial_folder(target) / name).unlink()
    assert (treasure / "part0").read_text() == "mine"


@pytest.mark.parametrize("name", ["journal", "lock", "part0"])
def test_a_folder_of_that_name_that_is_the_users_own_survives(tmp_path, name):
    folder = partial_folder(tmp_path / "out")
    folder.mkdir()
    (folder / name).write_text("mine\n")
    for restart in (False, True):
        with (
            pytest.raises(MxError, match=r"in the way|no links of mx-align"),
            OutputFiles([tmp_path / "out"], SETTINGS, restart=restart),
        ):
            pass
    assert (folder / name).read_text() == "mine\n"


def test_modes_of_replaced_files_are_kept(tmp_path):
    targets = [tmp_path / "a", tmp_path / "b.gz"]
    for target in targets:
        target.write_bytes(b"old")
        target.chmod(0o604)
    with OutputFiles(targets, SETTINGS) as output:
        assert output.folder.stat().st_mode & 0o777 == 0o700
        write(output, b"line\n")
        output.finish()
    assert [path.stat().st_mode & 0o777 for path in targets] == [0o604] * 2


def test_no_folder_or_something_in_the_way(tmp_path):
    with (
        pytest.raises(MxError, match="create it first"),
        OutputFiles([tmp_path / "no" / "out"], SETTINGS),
    ):
        pass
    (tmp_path / "out.partial").write_text("mine")
    with pytest.raises(MxError, match="in the way"), OutputFiles([tmp_path / "out"], SETTINGS):
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
    with OutputFiles(targets, SETTINGS) as output:
        write(output, b"line\n")
        output.finish()
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"line\n"
    assert gzip.decompress(targets[1].read_bytes()) == b"line\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.gz", "link", "real"]

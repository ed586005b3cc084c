import hashlib
import os
import subprocess
import sys

import pytest

from ...engine import storage
from ...engine.errors import MxError
from ...engine.storage import (
    atomic_write,
    file_sha256,
    hash_file,
    hold_lock,
    open_own_file,
    replace_path,
)


def test_atomic_write_replaces_only_when_complete(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="stop"), atomic_write(path) as file:
        file.write(b"half")
        raise ValueError("stop")
    assert path.read_bytes() == b"old"
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


def test_atomic_write_follows_links(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_digests_are_of_all_bytes(tmp_path):
    data = os.urandom(3 << 20)
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(b"")
    assert file_sha256(tmp_path / "a") == hashlib.sha256(data).hexdigest()
    running = hashlib.blake2b(b"first")
    hash_file(tmp_path / "b", hash_file(tmp_path / "a", running))
    assert running.digest() == hashlib.blake2b(b"first" + data).digest()


def test_a_lock_keeps_others_out_and_names_its_holder(tmp_path):
    path = tmp_path / "lock"
    with hold_lock(path, "busy"):
        holder = rf"^in use by process {os.getpid()} on "
        with pytest.raises(MxError, match=holder), hold_lock(path, "in use by {holder}"):
            pytest.fail("not reached")
        assert path.read_text()
    assert path.read_text() == ""
    with hold_lock(path, "busy"):
        pass


def test_a_killed_process_leaves_no_lock(tmp_path):
    code = f"""
import os
from pathlib import Path
from mx_align.engine.storage import hold_lock
with hold_lock(Path({str(tmp_path / "lock")!r}), "busy"):
    os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert (tmp_path / "lock").read_text().startswith("process ")
    with hold_lock(tmp_path / "lock", "busy"):
        pass


def test_leftovers_of_dead_writers_are_swept_and_nothing_else(tmp_path):
    """A writer that lives, a name of the user's own and other targets stay."""
    code = f"""
import os
from mx_align.engine.storage import atomic_write, replace_path
with atomic_write({str(tmp_path / "out")!r}) as file, replace_path({str(tmp_path / "f")!r}) as made:
    made.mkdir()
    (made / "x").write_text("half")
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code])
    assert len(os.listdir(tmp_path)) == 2
    (tmp_path / ".out.mine.tmp").write_text("mine")
    with atomic_write(tmp_path / "out") as first:
        with atomic_write(tmp_path / "out") as second:
            second.write(b"second")
        first.write(b"first")
    assert (tmp_path / "out").read_bytes() == b"first"
    assert len(os.listdir(tmp_path)) == 3
    with replace_path(tmp_path / "f") as made:
        made.write_bytes(b"whole")
    assert sorted(os.listdir(tmp_path)) == [".out.mine.tmp", "f", "out"]


def test_modes_are_kept_and_links_not_followed(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with atomic_write(path) as file:
        file.write(b"new")
    assert path.stat().st_mode & 0o777 == 0o640
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(MxError, match="is a link"):
        open_own_file(tmp_path / "link")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_in_one_step(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(storage, "_find_renameat2", lambda: None)
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "old").touch()
    with pytest.raises(ValueError, match="stop"), replace_path(tmp_path / "f") as made:
        made.mkdir()
        raise ValueError("stop")
    assert os.listdir(tmp_path / "f") == ["old"]
    with replace_path(tmp_path / "f") as made:
        made.mkdir()
        (made / "new").touch()
    assert os.listdir(tmp_path / "f") == ["new"]
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_of_anothers_is_no_lock(tmp_path):
    (tmp_path / "lock").write_text("my precious notes")
    with pytest.raises(MxError, match="no lock of ours"), hold_lock(tmp_path / "lock", "busy"):
        pass
    assert (tmp_path / "lock").read_text() == "my precious notes"

import hashlib
import os
import subprocess
import sys

import pytest

from ...engine.errors import MxError
from ...engine.storage import atomic_write, file_sha256, hash_file, hold_lock


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

"""The files of a run: found again from anywhere, and copied if they can be read only once."""

import os
import threading

import pytest

from ....engine.errors import MxError
from ....trainer.run.texts import Texts, copy_streams, resolve_paths


def test_pipes_are_copied_and_paths_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "links")
    (tmp_path / "bundle.mx").mkdir()
    given = Texts("pipe", "t", teacher=("bundle.mx", "statistical", "links"))
    found = resolve_paths(given, run)
    assert found.src == str(run / "text" / "src") and found.tgt == str(tmp_path / "t")
    copy = run / "text" / "teacher-2"
    assert found.teacher == (str(tmp_path / "bundle.mx"), "statistical", str(copy))
    writes = {"pipe": "a b\nc\n", "links": "0-0\n\n"}
    threads = [
        threading.Thread(target=(tmp_path / name).write_text, args=(text,))
        for name, text in writes.items()
    ]
    for thread in threads:
        thread.start()
    copy_streams(given, run)
    for thread in threads:
        thread.join()
    assert (run / "text" / "src").read_text() == writes["pipe"]
    assert copy.read_text() == writes["links"]


def test_standard_input_is_read_once(tmp_path):
    with pytest.raises(MxError, match="only one of the files"):
        resolve_paths(Texts("-", "-"), tmp_path)
    with pytest.raises(MxError, match="only one of the files"):
        resolve_paths(Texts("-", "t", teacher=("-",)), tmp_path)

"""What is written while a run goes on."""

import json

import pytest

from ....engine.errors import MxError
from ....trainer.loop import progress as module
from ....trainer.loop.progress import Monitor, Progress
from ....trainer.networks.losses import MaskAlignLoss

VALUES = dict.fromkeys(MaskAlignLoss.terms, 1.5)


def test_a_resumed_log_drops_what_came_after_the_checkpoint(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    Monitor(tmp_path, quiet=True).start(Progress(step=2))
    assert log.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_lines_for_people_and_for_programs(tmp_path, capsys):
    monitor = Monitor(tmp_path)
    monitor.start(Progress())
    monitor.step(Progress(step=1000, pieces=50), VALUES, 0.1, 2000)
    monitor.validation(Progress(step=1000), {"step": 1000, "accuracy": 0.25}, True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "step 1,000/2,000  loss 1.5000" in captured.err
    assert "step 1,000: accuracy 0.2500  (best)" in captured.err
    first, second = map(json.loads, (tmp_path / "log.jsonl").read_text().split("\n")[:-1])
    assert first["loss"] == 1.5 and first["lr"] == 0.1 and second["accuracy"] == 0.25


def test_processes_that_are_not_the_first_are_silent(tmp_path, capsys):
    monitor = Monitor(tmp_path, active=False)
    monitor.start(Progress(step=5))
    monitor.step(Progress(step=6), VALUES, 0.1, 2000)
    assert capsys.readouterr().err == "" and not list(tmp_path.iterdir())


def test_tensorboard_gets_the_numbers_if_it_is_there(tmp_path, monkeypatch):
    seen = []

    class Board:
        def add_scalar(self, *values):
            seen.append(values)

    monkeypatch.setattr(module, "open_tensorboard", lambda run, step: Board())
    monitor = Monitor(tmp_path, quiet=True)
    assert not list(tmp_path.iterdir())  # a folder must stay empty until the run begins
    monitor.start(Progress())
    monitor.step(Progress(step=3), VALUES, 0.1, 2000)
    assert ("loss", 1.5, 3) in seen


def test_a_log_that_cannot_be_written(tmp_path):
    monitor = Monitor(tmp_path / "gone", quiet=True)
    with pytest.raises(MxError, match=r"cannot write .*log\.jsonl"):
        monitor.write({"step": 1})

"""A process of several dies in the middle; the launcher starts all again and nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

STEPS = 100
ON_LINUX = Path("/proc/self/environ").exists()


def torchrun(corpus, run, arguments) -> subprocess.Popen:
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    line += [
        "--max-restarts=3",
        "--monitor-interval=0.1",
        "-m",
        "mx_align.trainer",
        *map(str, corpus),
    ]
    with open(run.with_suffix(".log"), "wb") as log:
        return subprocess.Popen(
            [*line, "-o", str(run), *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
        )


def workers(run: Path) -> dict[int, tuple[int, int]]:
    """Rank -> process and how often it was restarted, of those that train in this folder."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().split(b"\0")
            pairs = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone meanwhile
        values = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
        if str(run).encode() in line and b"LOCAL_RANK" in values:
            restarts = int(values.get(b"TORCHELASTIC_RESTART_COUNT", b"0"))
            found[int(values[b"RANK"])] = int(place.name), restarts
    return found


def finish(process: subprocess.Popen, run: Path) -> None:
    assert process.wait(300) == 0, run.with_suffix(".log").read_text()


def wait_for(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("the run ended before it could be disturbed")


@pytest.mark.slow
@pytest.mark.skipif(not ON_LINUX, reason="looks for the processes in /proc")
def test_a_lost_process_changes_nothing(corpus, tmp_path, train_arguments, read_log):
    settings = {"steps": STEPS, "save_every": 10, "eval_every": 50, "ema": 0.0, "keep": 2}
    arguments = train_arguments(**settings)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(torchrun(corpus, whole, arguments), whole)

    process = torchrun(corpus, broken, arguments)
    try:
        wait_for(lambda: list((broken / "checkpoints").glob("step-*")), process)
        lost, _ = wait_for(lambda: workers(broken), process)[1]
        os.kill(lost, signal.SIGKILL)
        wait_for(lambda: {1} == {restarts for _, restarts in workers(broken).values()}, process)
        finish(process, broken)
    finally:
        process.terminate()  # the launcher ends the others
    steps = [line["step"] for line in read_log(broken)]
    assert steps[-1] == STEPS and len(set(steps)) == STEPS
    assert [step for step in steps if step < 10 and steps.count(step) > 1] == []  # went on
    one, two = (load_file(run / "model.safetensors") for run in (whole, broken))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=0, msg=name)

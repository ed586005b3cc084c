"""Two processes on the CPU learn what one learns."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from safetensors.torch import load_file

from ....engine.errors import MxError
from ....trainer.loop.devices import (
    World,
    explain_compiler_errors,
    join_world,
    launch_processes,
    meet_processes,
)
from ....trainer.loop.train import train_network


@pytest.mark.slow
def test_two_processes_equal_one(corpus, start, tmp_path, run_command, train_arguments, read_log):
    """Also with accumulation; dropout is off, since it differs between devices by design."""
    settings = {"dropout": 0.0, "micro_tokens": 40, "optimizer": "adam", "steps": 8, "ema": 0.0}
    assert train_network(*start(tmp_path / "one", **settings)) == 0
    flags = [*train_arguments(**settings), "--preset", "tiny"]
    done = run_command(*corpus, "-o", tmp_path / "two", *flags, "--gpus", "2")
    assert done.returncode == 0, done.stderr
    one, two = (read_log(tmp_path / run) for run in ("one", "two"))
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys() and a["step"] == b["step"] and a["pieces"] == b["pieces"]
        for name in a:
            assert a[name] == pytest.approx(b[name], rel=2e-3, abs=1e-4), (a["step"], name)
    weights = [load_file(tmp_path / run / "model.safetensors") for run in ("one", "two")]
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-2, atol=1e-4, msg=name)


@pytest.mark.slow
def test_torchrun_and_an_error_in_the_first_process(corpus, tmp_path, train_arguments):
    """The launcher of torch itself; the other process ends without a traceback."""
    (tmp_path / "short").write_text("a b\n")
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    line += [
        "-m",
        "mx_align.trainer",
        str(corpus[0]),
        str(tmp_path / "short"),
        "-o",
        str(tmp_path / "r"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*line, *train_arguments()], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode != 0
    assert "short ends after 1 lines" in done.stderr and "Connection closed" not in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without CUDA")
def test_missing_devices_are_named():
    with pytest.raises(MxError, match=r"--gpus 3, but torch finds 0 CUDA devices"):
        launch_processes(3, "auto", [])
    with (
        pytest.raises(MxError, match="--device cuda, but torch finds no CUDA device"),
        join_world("cuda"),
    ):
        pass


def test_one_process_needs_no_launcher():
    with join_world("cpu") as world:
        assert (world.rank, world.size, world.device.type) == (0, 1, "cpu")
        assert world.any(True) and not world.any(False)


def test_compiling_without_a_compiler_is_explained(monkeypatch, start, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MxError, match="needs a C\\+\\+ compiler and found no no-such-compiler"):
        train_network(*start(tmp_path, compile=True))


def test_a_failure_of_the_compiler_is_one_line():
    from torch._dynamo.exc import BackendCompilerFailed

    with (
        pytest.raises(MxError, match=r"^--compile failed .*; the same command without it"),
        explain_compiler_errors(),
    ):
        raise BackendCompilerFailed("inductor", ValueError("bad\nvery long"), None)
    with pytest.raises(RuntimeError, match=r"^other"), explain_compiler_errors():
        raise RuntimeError("other")


@pytest.mark.slow
def test_gpus_need_no_cpp_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    network = torch.nn.Linear(1, 1)
    World(torch.device("cuda")).compile(network)
    assert network._compiled_call_impl is not None


@pytest.mark.slow
def test_processes_meet_those_of_their_own_round():
    """Also when the store has all that an earlier round has left, and the first one is late."""
    shared = torch.distributed.HashStore()

    def start(delays):
        def one(rank):
            time.sleep(delays[rank])
            return meet_processes(shared, rank, len(delays), timedelta(seconds=60))

        with ThreadPoolExecutor(len(delays)) as pool:
            return list(pool.map(one, range(len(delays))))

    for delays in ((0, 0.1, 0.2), (0.3, 0, 0), (0, 0, 0.1), (0.1, 0)):
        stores = start(delays)
        stores[0].set("delays", str(delays))
        assert {store.get("delays") for store in stores} == {str(delays).encode()}
    with pytest.raises(MxError, match="process 1 of 2 did not hear from the first one"):
        meet_processes(shared, 1, 2, timedelta(seconds=0.1))

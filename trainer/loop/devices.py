"""Devices and processes: one CPU or GPU, or many through torch's launcher.

All that differs between one process and several; the loop sees a `World`.
"""

import contextlib
import logging
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ...engine.errors import MxError

TIMEOUT = timedelta(hours=12)  # which the first process may take to tokenise

Autocast = Callable[[], AbstractContextManager[Any]]


@contextlib.contextmanager
def explain_compiler_errors() -> Iterator[None]:
    """Tell a failure of torch's compiler inside the block in one line, not in pages of C++."""
    try:
        yield
    except RuntimeError as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        first = str(error).strip().split("\n")[0]
        raise MxError(
            f"--compile failed ({first}); the same command without it goes on from the last "
            "checkpoint, or begins anew if there is none"
        ) from error


@dataclass(frozen=True)
class World:
    """This process's place among all, and its device."""

    device: torch.device
    rank: int = 0
    size: int = 1

    def wrap(self, module: nn.Module) -> nn.Module:
        """Let the processes exchange the gradients of a module, if there are several."""
        if self.size == 1:
            return module
        # Exchanges gradients of several processes while backward still runs.
        ids = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=ids)

    def compile(self, module: nn.Module) -> None:
        """Let torch compile the module when it is first used, for batches of any size."""
        usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
        compiler = os.environ.get("CXX", usual)  # as torch chooses it
        if self.device.type == "cpu" and shutil.which(compiler) is None:
            raise MxError(
                f"--compile needs a C++ compiler and found no {compiler}; install it (such as "
                "`apt install g++`), name another one in CXX, or train without --compile"
            )
        module.compile(dynamic=True)

    def sync_gradients(self, module: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Return a context that exchanges gradients in the last micro-batch of a step only."""
        if isinstance(module, DistributedDataParallel) and not last:
            return module.no_sync()
        return contextlib.nullcontext()

    def sum(self, values: Tensor) -> Tensor:
        """Add up the values of all processes."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def any(self, value: bool) -> bool:
        """Tell whether any process says yes."""
        return bool(self.sum(torch.tensor(float(value), device=self.device)) > 0)

    def make_autocast(self, dtype: str) -> tuple[Autocast, torch.amp.GradScaler]:
        """Return the autocast context and the gradient scaler (needed by fp16 only)."""
        cuda = self.device.type == "cuda"
        if dtype == "auto":
            dtype = ("bf16" if torch.cuda.is_bf16_supported() else "fp16") if cuda else "fp32"
        scaler = torch.amp.GradScaler(self.device.type, enabled=dtype == "fp16" and cuda)
        if dtype == "fp32":
            return contextlib.nullcontext, scaler
        kind = torch.bfloat16 if dtype == "bf16" else torch.float16
        return lambda: torch.autocast(self.device.type, dtype=kind), scaler


def launch_processes(processes: int, device: str, arguments: list[str]) -> int:
    """Run `mx_align.trainer` with these arguments in as many processes; return the exit code."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    found = torch.cuda.device_count()
    if device != "cpu" and found < processes:
        raise MxError(
            f"--gpus {processes}, but torch finds {found} CUDA devices; "
            "`--device cpu` runs the processes on the CPU"
        )
    share = max(1, (os.cpu_count() or 1) // processes)
    os.environ.setdefault("OMP_NUM_THREADS", str(share))  # the launcher would take one
    logging.disable(logging.ERROR)  # the processes report for themselves
    command = ["--standalone", f"--nproc-per-node={processes}", "--module", "mx_align.trainer"]
    try:
        run.run(run.parse_args([*command, *arguments]))
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        return code if code > 0 else 128 - code
    except SignalException as error:
        return 128 + error.sigval
    return 0


@contextlib.contextmanager
def join_world(device: str = "auto") -> Iterator[World]:
    """Join the processes this one was launched with."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
    if cuda and not torch.cuda.is_available():
        raise MxError(
            "--device cuda, but torch finds no CUDA device; install a CUDA build of torch"
        )
    if size == 1:
        yield World(torch.device("cuda", 0) if cuda else torch.device("cpu"))
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if cuda and local >= torch.cuda.device_count():
        raise MxError(f"process {local + 1} of this machine has no CUDA device of its own")
    if cuda:
        torch.cuda.set_device(local)
    shared, rank, size = next(dist.rendezvous("env://", timeout=TIMEOUT))
    store, kind = meet_processes(shared, rank, size), "nccl" if cuda else "gloo"
    dist.init_process_group(kind, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        yield World(torch.device("cuda", local) if cuda else torch.device("cpu"), rank, size)
    finally:
        dist.destroy_process_group()


def meet_processes(
    shared: dist.Store, rank: int, size: int, timeout: timedelta = TIMEOUT
) -> dist.Store:
    """Return a part of the launcher's store for the processes that are started together now.

    The launcher keeps its store when it starts lost processes again, and torch would take the
    addresses of those for ours and wait for them (pytorch issue 135712). How often it did so is
    no name for a part: each machine counts for itself. So rank 0 gives a new name and answers
    all who ask for it; one that lost processes have left there is never answered.
    """
    name, end = secrets.token_hex(8), time.monotonic() + timeout.total_seconds()
    if rank == 0:
        shared.set("round", name)
        for other in range(1, size):
            shared.set(f"{name}/{other}/{shared.get(f'{name}/{other}').decode()}", "yes")
        return dist.PrefixStore(name, shared)
    while time.monotonic() < end:
        given = shared.get("round").decode()
        shared.set(f"{given}/{rank}", name)
        with contextlib.suppress(dist.DistStoreError):  # not answered, or not yet: look again
            shared.wait([f"{given}/{rank}/{name}"], timedelta(seconds=1))
            return dist.PrefixStore(given, shared)
    raise MxError(f"process {rank} of {size} did not hear from the first one within {timeout}")

"""Run commands in forked processes and let something go wrong at a chosen point of their writing.

A *point* is whatever changes a disk: opening to write, renaming, deleting, syncing. Commands run
for real, in a process of their own; only the libraries were loaded before, by the one that forks.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_POINTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

Kind = Literal["none", "kill", "kill after", "full disk"]


@dataclass(frozen=True)
class Fault:
    """What goes wrong: a kill or a full disk at the n-th point, or a kill after some seconds."""

    kind: Kind = "none"
    at: float = 0


NONE = Fault()


@dataclass(frozen=True)
class Ending:
    """How a process ended: its exit code, negative for a signal, what it said, what it took."""

    code: int
    said: str
    points: int
    fired: bool  # the fault happened
    kilobytes: int
    seconds: float  # of the CPU


@dataclass(frozen=True)
class Job:
    """A process that runs, to be waited for."""

    process: int
    told: Path
    shared: mmap.mmap

    def wait(self, seconds: float = 300, kill_after: float | None = None) -> Ending:
        """Return how it ended, killed after `kill_after` seconds; it must end in `seconds`."""
        if kill_after is not None:
            timer = threading.Timer(kill_after, os.kill, (self.process, signal.SIGKILL))
        else:
            timer = threading.Timer(seconds, os.kill, (self.process, signal.SIGABRT))
        timer.start()
        _, status, usage = os.wait4(self.process, 0)
        timer.cancel()
        code = os.waitstatus_to_exitcode(status)
        fired = bool(self.shared[8]) or code == -signal.SIGKILL
        said = self.told.read_text("utf-8", "replace") if self.told.exists() else ""
        self.told.unlink(missing_ok=True)
        points = int.from_bytes(self.shared[:8], "little")
        return Ending(code, said, points, fired, usage.ru_maxrss, usage.ru_utime + usage.ru_stime)


def start_job(
    command: Callable[..., Any], arguments: Sequence[object], work: Path,
    fault: Fault = NONE, prepare: Callable[[], object] | None = None,
) -> Job:  # fmt: skip
    """Fork a process that runs a command with a fault; `prepare` is called in it before."""
    shared = mmap.mmap(-1, 16)
    told = work.parent / f"told.{time.monotonic_ns()}"
    process = os.fork()
    if process:
        return Job(process, told, shared)
    code = 70
    try:
        handle = os.open(told, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", closefd=False) for n in (1, 2))
        os.chdir(work)
        if prepare:
            prepare()
        _install_hook(fault, shared)
        command([*map(str, arguments)], standalone_mode=False)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # at once: libraries do not expect to be ended in a fork


def run_job(
    command: Callable[..., Any], arguments: Sequence[object], work: Path,
    fault: Fault = NONE, prepare: Callable[[], object] | None = None,
) -> Ending:  # fmt: skip
    """Run a command to its end, whatever that is."""
    job = start_job(command, arguments, work, fault, prepare)
    return job.wait(kill_after=fault.at if fault.kind == "kill after" else None)


def limit_memory(megabytes: int) -> None:
    """Let this process have no more than so much address space beyond what it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def list_tree(folder: Path) -> dict[str, bytes | None]:
    """Return all files below a folder with their bytes, and folders with None."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def adopt_orphans() -> None:
    """Let processes whose parent was killed become children of this one, to be waited for."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def _install_hook(fault: Fault, shared: mmap.mmap) -> None:
    """Count points in the shared memory, and let the fault happen at its own."""
    count = 0

    def meet_point(writes: bool) -> None:
        nonlocal count
        count += 1
        shared[:8] = count.to_bytes(8, "little")
        if fault.kind == "kill" and count == fault.at:
            shared[8] = 1
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.kind == "full disk" and count >= fault.at and writes:
            shared[8] = 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def watch(event: str, values: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = values
            writing = set(mode or "") & set("wax+") if mode else flags & _WRITING
            if writing and not isinstance(path, int) and os.fspath(path) not in (os.devnull, None):
                meet_point(True)
        elif event in _POINTS:
            meet_point(event == "os.mkdir")

    sync = os.fsync

    def watched_sync(handle: int) -> None:
        meet_point(True)
        sync(handle)

    os.fsync = watched_sync
    sys.addaudithook(watch)

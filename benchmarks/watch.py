"""Measures what a command costs: wall and CPU seconds, peak memory of it and all it starts.

Knows processes, of Linux in detail. Does not know what the commands do.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

EVERY = 0.25  # seconds between two looks at the memory
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cost:
    """Of one command, or of several one after another."""

    wall: float = 0.0
    cpu: float = 0.0
    peak_mb: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.wall + other.wall, self.cpu + other.cpu, max(self.peak_mb, other.peak_mb))

    def round_values(self) -> dict[str, float]:
        return {name: round(value, 1) for name, value in asdict(self).items()}


class CommandError(Exception):
    """A command that failed, with the end of what it said."""


def run_command(
    command: Sequence[str],
    log: Path,
    *,
    stdout: Path | None = None,
    env: dict[str, str] | None = None,
) -> Cost:
    """Run a command to its end, with what it says in `log`; what it prints goes to `stdout`."""
    began = time.monotonic()
    with open(log, "ab") as said, open(stdout or os.devnull, "wb") as printed:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed if stdout else said,
            stderr=said,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    watcher = Watcher(process.pid)
    watcher.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)  # its own session, so nobody else is in the group
        raise
    finally:
        watcher.stop()
    process.returncode = os.waitstatus_to_exitcode(status)  # or Popen would wait for it again
    if process.returncode:
        end = log.read_text("utf-8", "replace").rstrip().split("\n")[-5:]
        raise CommandError(
            f"{' '.join(map(str, command))}\nended with {process.returncode}: " + "\n".join(end)
        )
    # The largest single process, which the kernel never misses, or what was seen together.
    peak = max(usage.ru_maxrss / 1024, watcher.peak / 1024)
    return Cost(time.monotonic() - began, usage.ru_utime + usage.ru_stime, peak)


class Watcher(threading.Thread):
    """Looks at the memory of a process and its descendants, now and then; `peak` is in KB."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak = pid, 0
        self.ended = threading.Event()

    def run(self) -> None:
        seen = 0
        while not self.ended.wait(EVERY):
            processes = process_tree(self.pid)
            held = sum(resident_kb(pid) for pid in processes)
            # To count shared pages once is slow: only when there is more than ever before.
            if held > 1.02 * seen:
                seen = held
                one = len(processes) == 1
                self.peak = max(self.peak, held if one else sum(map(proportional_kb, processes)))

    def stop(self) -> None:
        self.ended.set()
        self.join()


def process_tree(pid: int) -> list[int]:
    """List a process and its descendants; those that ended meanwhile are left out."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for tasks in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                waiting += map(int, tasks.read_text().split())
            except OSError:
                continue
    return found


def resident_kb(pid: int) -> int:
    """Return KB of memory a process holds; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE // 1024
    except (OSError, IndexError):
        return 0


def proportional_kb(pid: int) -> int:
    """Return KB of memory a process holds, its share of the pages that it shares."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().split("\n")
    except OSError:
        return resident_kb(pid)
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)

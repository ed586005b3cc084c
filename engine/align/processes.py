"""Run chunks in worker processes: the parent hands out lines and takes results back in order.

Workers are fresh interpreters (`worker`) that talk through pipes, so that it works the same on
every system and needs no guard in the user's program. Does not know what is done with a chunk.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import IO, Any

from ..errors import MxError

# Chunks that a worker has: one is computed while the next one travels.
_CHUNKS_EACH = 2
_SIZE_BYTES = 8
_END = object()


def write_message(stream: IO[bytes], value: Any) -> None:
    """Write a value and its size."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(_SIZE_BYTES, "little"))
    stream.write(data)
    stream.flush()


def read_message(stream: IO[bytes]) -> Any:
    """Read what `write_message` wrote; EOFError at the end."""
    size = stream.read(_SIZE_BYTES)
    if len(size) < _SIZE_BYTES:
        raise EOFError
    data = stream.read(int.from_bytes(size, "little"))
    return pickle.loads(data)


class Worker:
    """A process that calls one function again and again; a thread of ours waits for its answers."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        # It finds the modules where we do; -P: not those of the folder that we happen to be in.
        command = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]
        paths = os.pathsep.join(filter(None, sys.path))
        self.process = subprocess.Popen(
            [*command, "-m", f"{__package__}.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert self.process.stdin and self.process.stdout
        self._input, self._output = self.process.stdin, self.process.stdout
        self.send(function)

    def send(self, value: Any) -> None:
        """Hand over the next value."""
        try:
            write_message(self._input, value)
        except OSError:
            raise self.describe_death() from None

    def receive(self) -> Any:
        """Return the next result, or raise the error of the function."""
        try:
            result, error = read_message(self._output)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise self.describe_death() from None
        if error is not None:
            raise error
        return result

    def describe_death(self) -> MxError:
        """Say how the process ended."""
        code = self.process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        return MxError(
            f"a worker process {how}, see above if it said why; most often memory was short: "
            "the same command goes on, with fewer --workers"
        )

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        for stream in (self._input, self._output):
            with suppress(OSError):  # of what was not sent yet
                stream.close()
        self.process.wait()


def run_in_processes(
    function: Callable[[Any], Any], values: Iterable[Any], workers: int
) -> Iterator[Any]:
    """Yield what a picklable function makes of each value, in order, computed by `workers`.

    At most two values a worker are read ahead. An error of `values` is raised after the results of
    all values before it.
    """
    started: list[Worker] = []
    jobs: queue.Queue[tuple[int, Any] | None] = queue.Queue()
    slots = threading.Semaphore(_CHUNKS_EACH * workers + 1)
    stop = threading.Event()
    # Results and errors wait here for their turn.
    settled: dict[int, tuple[Any, BaseException | None]] = {}
    changed = threading.Condition()

    def settle(number: int, value: Any, error: BaseException | None) -> None:
        with changed:
            settled[number] = value, error
            changed.notify()

    def read_values() -> None:
        """Queue the values; their end or error is settled as if it were one more."""
        number, end = 0, None
        try:
            slots.acquire()  # before a value is read
            for value in values:
                jobs.put((number, value))
                number += 1
                slots.acquire()
                if stop.is_set():
                    break
        except BaseException as error:
            end = error
        settle(number, _END, end)
        for _ in range(workers):
            jobs.put(None)

    def feed_worker() -> None:
        """Start a worker when there is something for it, and keep it busy until the values end."""
        sent: deque[int] = deque()
        more, worker = True, None
        try:
            while more or sent:
                while more and len(sent) < _CHUNKS_EACH:
                    try:
                        job = jobs.get(block=not sent)
                    except queue.Empty:  # rather wait for a result than for input
                        break
                    if job is None:
                        more = False
                        break
                    sent.append(job[0])
                    if worker is None:
                        worker = Worker(function)
                        started.append(worker)
                    worker.send(job[1])
                if sent and worker:
                    settle(sent[0], worker.receive(), None)
                    sent.popleft()
        except BaseException as error:
            for number in sent or [0]:
                settle(number, None, error)

    try:
        for target in (read_values, *[feed_worker] * workers):
            threading.Thread(target=target, daemon=True).start()
        for turn in count():
            with changed:
                while turn not in settled:
                    changed.wait()
                value, error = settled.pop(turn)
            if error is not None:
                raise error
            if value is _END:
                return
            yield value
            slots.release()
    finally:
        stop.set()
        slots.release()
        for worker in list(started):
            worker.stop()

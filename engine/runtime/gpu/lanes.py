"""Run batches on several GPUs at once, and halve those that do not fit.

What computes the model in a lane is in `onnx_cuda` or `tensorrt`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ...errors import BackendError
from ...types import Batch, Floats, PackedLinks, WordIds
from .cuda_driver import OutOfMemory
from .devices import Buffers, Device
from .link_finder import LinkFinder

GRAIN = 16  # sizes are rounded up to multiples of this: fewer, larger batches
LANES = 2  # of a device: one copies while the other computes

Arrays = Mapping[str, Floats]
T = TypeVar("T")
Columns = TypeVar("Columns", Batch, WordIds)


class Lane:
    """A stream of one device with its buffers and link finder; used by one thread at a time.

    A subclass computes the model.
    """

    def __init__(self, device: Device, finder: LinkFinder | None) -> None:
        self.device, self.finder = device, finder
        self._buffers = Buffers(device)
        self._stream = device.driver.new_stream()

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays:
        raise NotImplementedError

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        raise NotImplementedError

    def free_device_memory(self) -> None:
        self.device.make_current()
        self.device.driver.wait_stream(self._stream)  # a copy may be under way
        self._buffers.free_device_memory()

    def close(self) -> None:
        self.device.make_current()
        self.device.driver.wait_stream(self._stream)
        self._buffers.close()
        self.device.driver.free_stream(self._stream)


@dataclass(eq=False, repr=False)
class GpuBackend:
    """A backend over the lanes of all devices.

    Threads take whichever lane is free, so a faster device gets more batches; the pipeline puts
    results back in order.
    """

    name: str
    dtype: str
    lanes: Sequence[Lane]
    batch_tokens: int
    about: str
    opened: ExitStack  # closes lanes and devices

    grain = GRAIN
    steady = False  # libraries choose other kernels for other batches, which round differently

    def __post_init__(self) -> None:
        self.workers = len(self.lanes)
        self.finds_links = all(lane.finder for lane in self.lanes)
        self._free: queue.Queue[Lane] = queue.Queue()
        for lane in self.lanes:
            self._free.put(lane)
        self._taking_all = threading.Lock()
        self._most: int | None = None  # places of a batch that fitted, once one did not

    def describe(self) -> str:
        return self.about

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays:
        parts = self._run_in_parts(
            batch, lambda lane, rows: lane.run(_take_rows(batch, rows), outputs)
        )
        return {name: np.concatenate([part[name] for part in parts]) for name in outputs}

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        """Return word links of a batch, found on the GPU."""
        parts = self._run_in_parts(
            batch,
            lambda lane, rows: lane.links(
                _take_rows(batch, rows), _take_rows(words, rows), threshold
            ),
        )
        return parts[0] if len(parts) == 1 else _join_links(parts)

    def _run_in_parts(self, batch: Batch, work: Callable[[Lane, slice], T]) -> list[T]:
        """Return what `work` gives for the batch, or for parts of it, halved until they fit."""
        if not self.lanes:
            raise BackendError("the backend is closed")
        size = max(batch.src.shape[1], batch.tgt.shape[1])
        waiting, done = [slice(0, len(batch.src))], []
        while waiting:
            part = waiting.pop()
            rows = part.stop - part.start
            middle = (part.start + part.stop + 1) // 2
            # What is popped first comes first.
            halves = [slice(middle, part.stop), slice(part.start, middle)]
            if self._most is not None and rows > 1 and rows * size > self._most:
                waiting += halves
                continue
            lane = self._free.get()
            try:
                done.append(work(lane, part))
                continue
            except OutOfMemory:
                lane.free_device_memory()
            finally:
                self._free.put(lane)
            if rows == 1:
                done.append(self._run_alone(batch, part, work))
            else:
                # Remembered, so that the next batches need not fail first.
                self._most = max(size, rows * size // 2)
                waiting += halves
        return done

    def _run_alone(self, batch: Batch, part: slice, work: Callable[[Lane, slice], T]) -> T:
        """Return what `work` gives for a pair that did not fit beside the other lanes' memory."""
        with self._taking_all:  # two at once would wait for each other's lanes
            lanes = [self._free.get() for _ in self.lanes]
        try:
            for lane in lanes:
                lane.free_device_memory()
            return work(lanes[0], part)
        except OutOfMemory as error:
            lanes[0].free_device_memory()
            raise BackendError(
                f"a pair of {batch.src.shape[1]} and {batch.tgt.shape[1]} pieces does not "
                f"fit on the GPU ({error}); allow more with --gpu-memory, or --backend cpu"
            ) from error
        finally:
            for lane in lanes:
                self._free.put(lane)

    def close(self) -> None:
        """Give all memory back; nothing can be run any more."""
        self.lanes = ()
        self.opened.close()


def _take_rows(arrays: Columns, rows: slice) -> Columns:
    return type(arrays)(*(column[rows] for column in vars(arrays).values()))


def _join_links(parts: Sequence[PackedLinks]) -> PackedLinks:
    """Put the links of parts behind each other: the second part's start where the first's end."""
    before = np.cumsum([0, *(len(part.src) for part in parts[:-1])])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])
    }
    moved = [part.starts + first for part, first in zip(parts, before, strict=True)]
    return PackedLinks(**{**columns, "starts": np.concatenate(moved).astype(np.int32)})

"""GPUs as a backend: bounded memory, several streams, several devices, and batches that are halved
when they do not fit. Knows the driver and our kernels; what computes the model is a `Lane` of
`ort` or `trt`."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ...bundle.bundle import Bundle
from ...errors import BackendError
from ...types import Batch, PackedLinks, WordIds
from .cuda_driver import Driver, OutOfMemory
from .kernels.launch import Kernel, find_archive

Arrays = Mapping[str, npt.NDArray[np.float32]]
T = TypeVar("T")

SHARE = 0.8  # of the free memory, if no limit is given
GRAIN = 16  # sizes are rounded up to multiples of this: fewer, larger batches
_ALIGN = 256  # bytes; TensorRT and wide loads want it
_MAX_PIECES = 1 << 15  # a link is packed into 2 x 16 bits


@dataclass(frozen=True)
class GpuOptions:
    """What the user may say about GPUs."""

    memory: int | None = None  # bytes on each
    devices: tuple[int, ...] | None = None  # None: all


# ---- one device ----


class Device:
    """A GPU: its context, and memory up to a limit."""

    def __init__(self, driver: Driver, number: int, limit: int | None = None) -> None:
        self.driver = driver
        self.number = number
        self.name = driver.name(number)
        self.capability = driver.capability(number)
        self._context = driver.open(number)
        try:
            self.use()
            free, _ = driver.memory()
        except BaseException:
            driver.close(number)
            raise
        self.limit = limit if limit is not None else int(SHARE * free)
        self.used = 0
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()

    def use(self) -> None:
        """Make the device the calling thread's."""
        self.driver.use(self._context)

    def allocate(self, size: int) -> int:
        """Device memory; OutOfMemory beyond the limit, as when the GPU itself is full."""
        size = max(_ALIGN, size)
        with self._lock:
            if self.used + size > self.limit:
                raise OutOfMemory(
                    f"{size >> 20:,} MB more on GPU {self.number} would pass the limit of "
                    f"{self.limit >> 20:,} MB"
                )
            self.used += size
        try:
            pointer = self.driver.allocate(size)
        except BaseException:
            with self._lock:
                self.used -= size
            raise
        self._sizes[pointer] = size
        return pointer

    def free(self, pointer: int) -> None:
        # Forgotten first: once it is free, another thread may be given the same address.
        with self._lock:
            self.used -= self._sizes.pop(pointer)
        self.driver.free(pointer)

    def reserve(self, size: int) -> None:
        """Count memory that something else takes, such as an engine's weights."""
        with self._lock:
            self.used += size

    def close(self) -> None:
        """Give the context back; what still uses it, such as a runtime, keeps its own hold."""
        self.driver.close(self.number)


class Closes(Protocol):
    """Something that holds memory of a GPU."""

    def close(self) -> None: ...


def close_all(things: Iterable[Closes]) -> None:
    """Close everything, the last opened first, also when one of them fails."""
    with ExitStack() as stack:
        for thing in things:
            stack.callback(thing.close)


class Buffers:
    """Memory of one lane that grows as needed and is kept: of the device, and of the host."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._device: dict[str, tuple[int, int]] = {}
        self._host: dict[str, tuple[int, int]] = {}

    def on_device(self, name: str, size: int) -> int:
        """A pointer to at least `size` bytes; what was in them is lost when they grow."""
        pointer, room = self._device.get(name, (0, -1))
        if room < size:
            if room >= 0:
                del self._device[name]
                self.device.free(pointer)
            pointer = self.device.allocate(size)
            self._device[name] = pointer, size
        return pointer

    def on_host(self, name: str, size: int) -> int:
        """The address of at least `size` bytes that copies go to and from directly."""
        address, room = self._host.get(name, (0, -1))
        if room < size:
            if room >= 0:
                del self._host[name]
                self.device.driver.free_host(address)
            address = self.device.driver.allocate_host(max(1, size))
            self._host[name] = address, size
        return address

    def drop(self) -> None:
        """Give back device memory: the next, smaller batch may need it elsewhere."""
        while self._device:
            self.device.free(self._device.popitem()[1][0])

    def close(self) -> None:
        self.drop()
        while self._host:
            self.device.driver.free_host(self._host.popitem()[1][0])


def view(address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array over host memory at an address."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.empty(shape, dtype)
    raw = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
    flat: npt.NDArray[Any] = np.frombuffer(raw, np.dtype(dtype))
    return flat.reshape(shape)


def send(
    buffers: Buffers, name: str, arrays: Mapping[str, npt.NDArray[Any]], stream: int
) -> dict[str, int]:
    """Copy arrays to the device in one go; their pointers."""
    places, size = {}, 0
    for key, array in arrays.items():
        places[key] = size
        size += -(-array.nbytes // _ALIGN) * _ALIGN
    host, device = buffers.on_host(name, size), buffers.on_device(name, size)
    for key, array in arrays.items():
        view(host + places[key], array.shape, array.dtype)[...] = array
    buffers.device.driver.copy_in(device, host, size, stream)
    return {key: device + place for key, place in places.items()}


def fetch(
    buffers: Buffers, wanted: Mapping[str, tuple[int, Sequence[int]]], stream: int
) -> dict[str, npt.NDArray[np.float32]]:
    """Copy float32 arrays, given as pointer and shape, to the host, and wait for them."""
    driver = buffers.device.driver
    found = {}
    for name, (pointer, shape) in wanted.items():
        size = 4 * int(np.prod(shape))
        host = buffers.on_host(f"out {name}", size)
        driver.copy_out(host, pointer, size, stream)
        found[name] = view(host, shape, np.float32)
    driver.wait(stream)
    # The host memory is used again by the next batch.
    return {name: array.copy() for name, array in found.items()}


# ---- links ----


class LinkFinder:
    """The `symmetrize` kernel on a device: weights that are there already become links."""

    def __init__(self, device: Device, kernel: Kernel) -> None:
        self.device = device
        self.kernel = kernel

    def find(
        self,
        buffers: Buffers,
        weights: tuple[int, int],
        words: WordIds,
        threshold: float,
        stream: int,
    ) -> PackedLinks:
        """Links of a batch; `weights` are pointers to fwd and bwd, both (B, S, T) float32."""
        (batch, n_src), n_tgt = words.src.shape, words.tgt.shape[1]
        sent = {"src": words.src, "tgt": words.tgt, "spans": words.spans}
        given = send(buffers, "words", sent, stream)
        cells = batch * n_src * n_tgt
        # total | counts | starts | sentence scores: one copy brings all four.
        head = buffers.on_device("link counts", 4 * (1 + 3 * batch))
        links = buffers.on_device("links", 4 * cells)
        scores = buffers.on_device("link scores", 4 * cells)
        driver = self.device.driver
        driver.zero(head, 4, stream)
        strides = (n_src * n_tgt, n_tgt, 1)
        counts, starts, sentence = (head + 4 * (1 + k * batch) for k in range(3))
        self.kernel.launch(
            (batch,),
            (*weights, given["src"], given["tgt"], given["spans"], n_src, n_tgt, *strides,
             *strides, threshold, head, counts, starts, links, scores, sentence),
            stream,
        )  # fmt: skip
        return self._fetch(buffers, batch, (head, links, scores), cells, stream)

    def close(self) -> None:
        self.device.use()
        self.kernel.close()

    def _fetch(
        self, buffers: Buffers, batch: int, at: tuple[int, int, int], cells: int, stream: int
    ) -> PackedLinks:
        """The links alone cross the bus: first how many there are, with as many as are likely."""
        driver = self.device.driver
        head, links, scores = at
        likely = min(cells, 64 * batch)
        host = buffers.on_host("link counts", 4 * (1 + 3 * batch))
        driver.copy_out(host, head, 4 * (1 + 3 * batch), stream)
        pairs = buffers.on_host("links", 4 * likely)
        values = buffers.on_host("link scores", 4 * likely)
        driver.copy_out(pairs, links, 4 * likely, stream)
        driver.copy_out(values, scores, 4 * likely, stream)
        driver.wait(stream)
        total = int(view(host, (1,), np.int32)[0])
        if total > likely:
            pairs = buffers.on_host("links", 4 * total)
            values = buffers.on_host("link scores", 4 * total)
            driver.copy_out(pairs, links, 4 * total, stream)
            driver.copy_out(values, scores, 4 * total, stream)
            driver.wait(stream)
        counts, starts = view(host + 4, (2, batch), np.int32).copy()
        packed = view(pairs, (total,), np.int32)
        return PackedLinks(
            counts,
            starts,
            packed >> 16,
            packed & 0xFFFF,
            view(values, (total,), np.float32).copy(),
            view(host + 4 * (1 + 2 * batch), (batch,), np.float32).copy(),
        )


def link_finder(device: Device, bundle: Bundle) -> tuple[LinkFinder | None, str]:
    """The kernel of the bundle for this device; or why links are found on the CPU instead."""
    archive = find_archive(bundle, device.capability)
    entry = archive.entries.get(("symmetrize", "fp32")) if archive else None
    if archive is None or entry is None:
        major, minor = device.capability
        return None, f"the bundle has no kernels for sm_{major}{minor} (mx-export --kernels)"
    if bundle.max_length > _MAX_PIECES:
        return None, "the model's sentences are too long for the link kernel"
    try:
        return LinkFinder(device, Kernel(device.driver, archive, entry)), ""
    except BackendError as error:
        return None, str(error)


# ---- all devices ----


class Lane(Closes, Protocol):
    """A stream of one device with its own buffers; used by one thread at a time."""

    finds_links: bool

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays: ...

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks: ...

    def drop(self) -> None: ...


def check_outputs(wanted: Sequence[str], there: Collection[str]) -> None:
    """An error if a model does not give an output."""
    missing = [name for name in wanted if name not in there]
    if missing:
        raise BackendError(f"the model's graph does not give {', '.join(missing)}")


class Gpus:
    """A backend over the lanes of all devices. Threads take whichever lane is free, so a faster
    device gets more batches; the pipeline puts results back in order."""

    grain = GRAIN
    steady = False  # libraries choose other kernels for other batches, which round differently

    def __init__(
        self,
        name: str,
        precision: str,
        lanes: Sequence[Lane],
        batch_tokens: int,
        about: str,
        owned: Sequence[Closes] = (),
    ) -> None:
        self.name = name
        self.precision = precision
        self.batch_tokens = batch_tokens
        self.workers = len(lanes)
        self.finds_links = all(lane.finds_links for lane in lanes)
        self._about = about
        self._lanes = list(lanes)
        self._owned = list(owned)  # closed with the lanes, after them
        self._free: queue.Queue[Lane] = queue.Queue()
        for lane in lanes:
            self._free.put(lane)
        self._taking_all = threading.Lock()
        self._most: int | None = None  # places of a batch that fitted, once one did not

    def describe(self) -> str:
        return self._about

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays:
        parts = self._in_parts(batch, lambda lane, rows: lane.run(_rows(batch, rows), outputs))
        return {name: np.concatenate([part[name] for part in parts]) for name in outputs}

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        """Word links of a batch, found on the GPU."""
        parts = self._in_parts(
            batch, lambda lane, rows: lane.links(_rows(batch, rows), words.rows(rows), threshold)
        )
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _in_parts(self, batch: Batch, work: Callable[[Lane, slice], T]) -> list[T]:
        """What `work` gives for the batch, or for parts of it, halved until they fit."""
        if not self._lanes:
            raise BackendError("the backend is closed")
        size = max(batch.src.shape[1], batch.tgt.shape[1])
        waiting, done = [slice(0, len(batch.src))], []
        while waiting:
            part = waiting.pop()
            rows = part.stop - part.start
            if self._most is not None and rows > 1 and rows * size > self._most:
                waiting += _halves(part)
                continue
            lane = self._free.get()
            try:
                done.append(work(lane, part))
                continue
            except OutOfMemory:
                lane.drop()
            finally:
                self._free.put(lane)
            if rows == 1:
                done.append(self._alone(batch, part, work))
            else:
                # Remembered, so that the next batches need not fail first.
                self._most = max(size, rows * size // 2)
                waiting += _halves(part)
        return done

    def _alone(self, batch: Batch, part: slice, work: Callable[[Lane, slice], T]) -> T:
        """What `work` gives for a pair that did not fit beside the other lanes' memory."""
        with self._taking_all:  # two at once would wait for each other's lanes
            lanes = [self._free.get() for _ in self._lanes]
        try:
            for lane in lanes:
                lane.drop()
            return work(lanes[0], part)
        except OutOfMemory as error:
            lanes[0].drop()
            raise BackendError(
                f"a pair of {batch.src.shape[1]} and {batch.tgt.shape[1]} pieces does not "
                f"fit on the GPU ({error}); allow more with --gpu-memory, or --backend cpu"
            ) from error
        finally:
            for lane in lanes:
                self._free.put(lane)

    def close(self) -> None:
        """Give all memory back; nothing can be run any more."""
        things = [*self._owned, *self._lanes]
        self._lanes, self._owned, self._free = [], [], queue.Queue()
        close_all(things)


def _halves(part: slice) -> list[slice]:
    """The second half, then the first: what is popped first comes first."""
    middle = (part.start + part.stop + 1) // 2
    return [slice(middle, part.stop), slice(part.start, middle)]


def _rows(batch: Batch, rows: slice) -> Batch:
    return Batch(*(column[rows] for column in vars(batch).values()))


def _joined(parts: Sequence[PackedLinks]) -> PackedLinks:
    before = np.cumsum([0, *(len(part.src) for part in parts[:-1])])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])
    }
    moved = [part.starts + first for part, first in zip(parts, before, strict=True)]
    return PackedLinks(**{**columns, "starts": np.concatenate(moved).astype(np.int32)})


def open_devices(options: GpuOptions, driver: Driver | None = None) -> list[Device]:
    """The GPUs that may be used; an error if there is none, or not the one asked for."""
    driver = driver or Driver()
    count = driver.count()
    if not count:
        raise BackendError("there is no NVIDIA GPU here")
    numbers = options.devices if options.devices is not None else tuple(range(count))
    for number in numbers:
        if not 0 <= number < count:
            raise BackendError(f"there is no GPU {number}; they are numbered 0 to {count - 1}")
    opened: list[Device] = []
    try:
        for number in numbers:
            opened.append(Device(driver, number, options.memory))
    except BaseException:
        close_all(opened)
        raise
    return opened


def described(devices: Sequence[Device]) -> str:
    """Like "2 x NVIDIA L4"."""
    names = [device.name for device in devices]
    return " + ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))

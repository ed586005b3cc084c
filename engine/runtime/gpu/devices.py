"""Use GPUs: one device each, its memory up to a limit, and copies between it and the host.

Does not know models or links.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import BackendError
from ..backends import GpuOptions
from .cuda_driver import Driver, OutOfMemory

_FREE_SHARE = 0.8  # of the free memory is used if no limit is given: runtimes need some themselves
_ALIGNMENT = 256  # bytes; TensorRT and wide loads want it


class Device:
    """A GPU: its context, and memory up to a limit."""

    def __init__(self, driver: Driver, number: int, limit: int | None = None) -> None:
        self.driver = driver
        self.number = number
        self.name = driver.device_name(number)
        self.capability = driver.capability(number)
        self._context = driver.retain_context(number)
        try:
            self.make_current()
            free, _ = driver.memory_sizes()
        except BaseException:
            driver.release_context(number)
            raise
        self.limit = limit if limit is not None else int(_FREE_SHARE * free)
        self.used = 0
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()

    def make_current(self) -> None:
        """Make the device the calling thread's."""
        self.driver.set_context(self._context)

    def allocate(self, size: int) -> int:
        """Allocate device memory; OutOfMemory beyond the limit, as when the GPU itself is full."""
        size = max(_ALIGNMENT, size)
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
        """Count memory that something else takes, such as a model's weights."""
        with self._lock:
            self.used += size

    def close(self) -> None:
        """Give the context back; what still uses it, such as a runtime, keeps its own hold."""
        self.driver.release_context(self.number)


def open_devices(
    options: GpuOptions, opened: ExitStack, driver: Driver | None = None
) -> list[Device]:
    """Open the GPUs that may be used; an error if there is none, or not the one asked for.

    `opened` closes them.
    """
    driver = driver or Driver()
    count = driver.count_devices()
    if not count:
        raise BackendError("there is no NVIDIA GPU here")
    numbers = options.devices if options.devices is not None else tuple(range(count))
    for number in numbers:
        if not 0 <= number < count:
            raise BackendError(f"there is no GPU {number}; they are numbered 0 to {count - 1}")
    return [
        opened.enter_context(closing(Device(driver, number, options.memory))) for number in numbers
    ]


def describe_devices(devices: Sequence[Device], dtype: str, notes: Iterable[str]) -> str:
    """Name the devices, like "2 x NVIDIA L4", the dtype, and what is noted of them."""
    names = [device.name for device in devices]
    counts = " + ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return f"{counts}, {dtype}, {' | '.join(dict.fromkeys(notes))}"


# ---- memory and copies ----


class Buffers:
    """Named memory that grows as needed and is kept: of a device, and of the host."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._device: dict[str, tuple[int, int]] = {}  # name: pointer, size
        self._host: dict[str, tuple[int, int]] = {}

    def on_device(self, name: str, size: int) -> int:
        """Return a pointer to at least `size` bytes; what was in them is lost when they grow."""
        return _grow_buffer(self._device, name, size, self.device.allocate, self.device.free)

    def on_host(self, name: str, size: int) -> int:
        """Return the address of at least `size` bytes that copies go to and from directly."""
        driver = self.device.driver
        return _grow_buffer(self._host, name, size, driver.allocate_host, driver.free_host)

    def free_device_memory(self) -> None:
        """Give back device memory: the next, smaller batch may need it elsewhere."""
        while self._device:
            self.device.free(self._device.popitem()[1][0])

    def close(self) -> None:
        self.free_device_memory()
        while self._host:
            self.device.driver.free_host(self._host.popitem()[1][0])


def _grow_buffer(
    kept: dict[str, tuple[int, int]],
    name: str,
    size: int,
    allocate: Callable[[int], int],
    free: Callable[[int], None],
) -> int:
    address, room = kept.get(name, (0, -1))
    if room < size:
        if room >= 0:
            del kept[name]
            free(address)
        address = allocate(max(1, size))
        kept[name] = address, size
    return address


def view_host(address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array over host memory at an address."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.empty(shape, dtype)
    raw = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
    flat: npt.NDArray[Any] = np.frombuffer(raw, np.dtype(dtype))
    return flat.reshape(shape)


def send_arrays(
    buffers: Buffers, name: str, arrays: Mapping[str, npt.NDArray[Any]], stream: int
) -> dict[str, int]:
    """Copy arrays to the device in one go, into the buffer `name`; return their pointers."""
    places, size = {}, 0
    for key, array in arrays.items():
        places[key] = size
        size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    host, device = buffers.on_host(name, size), buffers.on_device(name, size)
    for key, array in arrays.items():
        view_host(host + places[key], array.shape, array.dtype)[...] = array
    buffers.device.driver.copy_in(device, host, size, stream)
    return {key: device + place for key, place in places.items()}


def fetch_arrays(
    buffers: Buffers,
    wanted: Mapping[str, tuple[int, Sequence[int]]],
    stream: int,
    dtype: npt.DTypeLike = np.float32,
) -> dict[str, npt.NDArray[Any]]:
    """Copy arrays, given as pointer and shape, to the host, and wait for them."""
    driver = buffers.device.driver
    found = {}
    for name, (pointer, shape) in wanted.items():
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        host = buffers.on_host(f"out {name}", size)
        driver.copy_out(host, pointer, size, stream)
        found[name] = view_host(host, shape, dtype)
    driver.wait_stream(stream)
    # The host memory is used again by the next batch.
    return {name: array.copy() for name, array in found.items()}

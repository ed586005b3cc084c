"""Call the CUDA driver: every use of it in the engine goes through `Driver`.

Pointers and streams are plain integers. A call that fails raises BackendError with the driver's
own name for the reason, or OutOfMemory. Does not keep anything: memory and contexts are the
callers' to give back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ...errors import BackendError
from ..backends import INSTALL_BINDINGS

NO_DRIVER = "no NVIDIA driver is installed here"
_CTYPES = {"i32": ctypes.c_int32, "fp32": ctypes.c_float}


class OutOfMemory(BackendError):
    """The GPU, or the share of it that was allowed, is full."""


class Driver:
    """The driver, initialised; one object serves all devices."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver
        except ModuleNotFoundError:
            raise BackendError(f"cuda-bindings is not installed; {INSTALL_BINDINGS}") from None
        self._cuda: Any = driver
        try:
            self._call(driver.cuInit, 0)
        except (RuntimeError, OSError):  # the bindings' own error when they find no library
            raise BackendError(NO_DRIVER) from None

    def _call(self, function: Any, *arguments: Any) -> Any:
        status, *values = function(*arguments)
        if int(status) != 0:
            name = getattr(status, "name", str(status))
            if name == "CUDA_ERROR_OUT_OF_MEMORY":
                raise OutOfMemory("the GPU is out of memory")
            raise BackendError(f"CUDA: {function.__name__} failed with {name}")
        return values[0] if len(values) == 1 else tuple(values)

    # ---- devices ----

    def cuda_version(self) -> tuple[int, int]:
        """Return the CUDA version that the driver supports, like (12, 9)."""
        number = int(self._call(self._cuda.cuDriverGetVersion))
        return number // 1000, number % 1000 // 10

    def count_devices(self) -> int:
        return int(self._call(self._cuda.cuDeviceGetCount))

    def device_name(self, device: int) -> str:
        raw = self._call(self._cuda.cuDeviceGetName, 100, device)
        return bytes(raw).split(b"\0")[0].decode()

    def capability(self, device: int) -> tuple[int, int]:
        """Return the compute capability, like (8, 0)."""
        attribute = self._cuda.CUdevice_attribute
        major = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        minor = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        return (
            int(self._call(self._cuda.cuDeviceGetAttribute, major, device)),
            int(self._call(self._cuda.cuDeviceGetAttribute, minor, device)),
        )

    def retain_context(self, device: int) -> Any:
        """Return the device's own context, which ONNX Runtime and TensorRT use too."""
        return self._call(self._cuda.cuDevicePrimaryCtxRetain, device)

    def set_context(self, context: Any) -> None:
        """Make a context the calling thread's."""
        self._call(self._cuda.cuCtxSetCurrent, context)

    def release_context(self, device: int) -> None:
        self._call(self._cuda.cuDevicePrimaryCtxRelease, device)

    def memory_sizes(self) -> tuple[int, int]:
        """Return free and total bytes of the current context's device."""
        free, total = self._call(self._cuda.cuMemGetInfo)
        return int(free), int(total)

    # ---- memory ----

    def allocate(self, size: int) -> int:
        return int(self._call(self._cuda.cuMemAlloc, size))

    def free(self, pointer: int) -> None:
        self._call(self._cuda.cuMemFree, pointer)

    def allocate_host(self, size: int) -> int:
        """Allocate memory of the host that copies need not go around."""
        return int(self._call(self._cuda.cuMemAllocHost, size))

    def free_host(self, address: int) -> None:
        self._call(self._cuda.cuMemFreeHost, address)

    def copy_in(self, pointer: int, address: int, size: int, stream: int) -> None:
        """Copy from the host to the device."""
        self._call(self._cuda.cuMemcpyHtoDAsync, pointer, address, size, stream)

    def copy_out(self, address: int, pointer: int, size: int, stream: int) -> None:
        """Copy from the device to the host."""
        self._call(self._cuda.cuMemcpyDtoHAsync, address, pointer, size, stream)

    def fill_zeros(self, pointer: int, size: int, stream: int) -> None:
        self._call(self._cuda.cuMemsetD8Async, pointer, 0, size, stream)

    # ---- streams ----

    def new_stream(self) -> int:
        flags = self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        return int(self._call(self._cuda.cuStreamCreate, flags))

    def free_stream(self, stream: int) -> None:
        self._call(self._cuda.cuStreamDestroy, stream)

    def wait_stream(self, stream: int) -> None:
        """Wait until all work on the stream is done."""
        self._call(self._cuda.cuStreamSynchronize, stream)

    # ---- kernels ----

    def load_module(self, image: bytes) -> Any:
        """Load a cubin, or PTX that ends with a zero byte."""
        return self._call(self._cuda.cuModuleLoadData, image)

    def unload_module(self, module: Any) -> None:
        self._call(self._cuda.cuModuleUnload, module)

    def get_function(self, module: Any, name: str, shared: int) -> Any:
        """Return a kernel of a module, allowed to use this many bytes of shared memory."""
        found = self._call(self._cuda.cuModuleGetFunction, module, name.encode())
        if shared > 48 << 10:  # what every GPU grants without being asked
            attribute = self._cuda.CUfunction_attribute
            most = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call(self._cuda.cuFuncSetAttribute, found, most, shared)
        return found

    def launch(
        self,
        function: Any,
        grid: Sequence[int],
        threads: int,
        shared: int,
        stream: int,
        kinds: Sequence[str],
        values: Sequence[int | float],
    ) -> None:
        """Start a kernel; `kinds` are the types of its arguments, "*…" for pointers."""
        types = tuple(_CTYPES.get(kind, ctypes.c_void_p) for kind in kinds)
        pack = tuple(values), types
        block = threads, 1, 1
        self._call(self._cuda.cuLaunchKernel, function, *grid, *block, shared, stream, pack, 0)

"""A recording fake of the CUDA driver, which `cuda_driver` calls.

"Device memory" is memory of the host under its real address, so that what the fake is told to copy
and compute really happens, and links can be compared with those of the CPU.
"""

import ctypes
import io
import itertools
import json
import re
import threading
import zipfile
from dataclasses import asdict

import numpy as np

from ...engine.errors import BackendError
from ...engine.runtime.gpu.cuda_driver import OutOfMemory
from ...engine.runtime.gpu.devices import view_host
from ...engine.runtime.gpu.kernels.launch import INDEX, KernelEntry
from ...engine.runtime.reference import symmetrize

_POINTERS = ("*fp32", "*fp32", "*i32", "*i32", "*i32")
ARGUMENTS = (*_POINTERS, *8 * ("i32",), "fp32", *4 * ("*i32",), "*fp32", "*fp32")
SYMMETRIZE = KernelEntry("symmetrize", "fp32", "symmetrize.fp32", "symmetrize", ARGUMENTS,
                   {"SRC": 8, "TGT": 32, "WITH_SENTENCE": 1}, 256, 512, False)  # fmt: skip


def pack_fake_archive(*entries: KernelEntry) -> bytes:
    """Return the file of a bundle that holds these kernels, with made-up code."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        file.writestr(INDEX, json.dumps([asdict(entry) for entry in entries]))
        for entry in entries:
            file.writestr(f"{entry.name}.cubin", b"\x7fELF " + entry.entry.encode())
            file.writestr(f"{entry.name}.ptx", b".version 8.0 " + entry.entry.encode())
    return written.getvalue()


class FakeDriver:
    """GPUs of compute capability 8.6 with `room` bytes each."""

    def __init__(self, devices: int = 1, room: int = 1 << 30) -> None:
        self.devices, self.room = devices, room
        self.log: list[tuple] = []
        self.memory_of: dict[int, tuple[np.ndarray, int, int]] = {}  # address: raw, size, device
        self.host_of: dict[int, np.ndarray] = {}
        self.streams: set[int] = set()
        self._numbers = itertools.count()
        self.most = [0] * devices
        self.compute = 8, 6
        self.too_new = False  # cubins are refused
        self.fail_launch = False
        self.fail_open = -1  # the device whose memory cannot be asked for
        self._here = threading.local()
        self._lock = threading.Lock()

    def note(self, *call) -> None:
        with self._lock:
            self.log.append(call)

    def calls(self, *names: str) -> list[tuple]:
        return [call for call in self.log if call[0] in names]

    def cuda_version(self):
        return 12, 9

    def count_devices(self):
        return self.devices

    def device_name(self, device):
        return "Fake GPU"

    def capability(self, device):
        return self.compute

    def retain_context(self, device):
        self.note("open", device)
        return device

    def set_context(self, context):
        self._here.device = context

    def release_context(self, device):
        self.note("close", device)

    def memory_sizes(self):
        if self.here == self.fail_open:
            raise BackendError("CUDA: cuMemGetInfo failed with CUDA_ERROR_UNKNOWN")
        return self.room - self._count_used(), self.room

    def _count_used(self):
        return sum(size for _, size, device in self.memory_of.values() if device == self.here)

    @property
    def here(self):
        return self._here.device

    def allocate(self, size):
        with self._lock:
            if self._count_used() + size > self.room:
                raise OutOfMemory("the GPU is out of memory")
            raw = np.full(size + 256, 0xAB, np.uint8)  # nothing is zero by itself
            address = -(-raw.ctypes.data // 256) * 256
            self.memory_of[address] = raw, size, self.here
            self.most[self.here] = max(self.most[self.here], self._count_used())
        self.note("allocate", size)
        return address

    def free(self, pointer):
        with self._lock:
            del self.memory_of[pointer]
        self.note("free", pointer)

    def allocate_host(self, size):
        raw = np.full(size, 0xCD, np.uint8)
        self.host_of[raw.ctypes.data] = raw
        return raw.ctypes.data

    def free_host(self, address):
        del self.host_of[address]

    def check_inside(self, pointer: int, size: int) -> None:
        """Assert that the bytes lie in one allocation of the current device."""
        for address, (_, room, device) in list(self.memory_of.items()):
            if address <= pointer and pointer + size <= address + room:
                assert device == self.here, "memory of another device"
                return
        raise AssertionError(f"{size} bytes at {pointer} are not allocated")

    def copy_in(self, pointer, address, size, stream):
        self.check_inside(pointer, size)
        ctypes.memmove(pointer, address, size)
        self.note("copy_in", size, stream)

    def copy_out(self, address, pointer, size, stream):
        if self.memory_of:
            self.check_inside(pointer, size)
        ctypes.memmove(address, pointer, size)
        self.note("copy_out", size, stream)

    def fill_zeros(self, pointer, size, stream):
        self.check_inside(pointer, size)
        ctypes.memset(pointer, 0, size)
        self.note("zero", size, stream)

    def new_stream(self):
        stream = 1000 + next(self._numbers)
        self.streams.add(stream)
        return stream

    def free_stream(self, stream):
        self.streams.remove(stream)

    def wait_stream(self, stream):
        self.note("wait", stream)

    def list_leaks(self) -> list:
        """Name what was not given back: memory, streams, kernels, contexts."""
        kernels = len(self.calls("load")) - len(self.calls("unload"))
        contexts = len(self.calls("open")) - len(self.calls("close"))
        counts = [len(self.memory_of), len(self.host_of), len(self.streams), kernels, contexts]
        names = ("device memory", "host memory", "streams", "kernels", "contexts")
        return [f"{n} x {name}" for n, name in zip(counts, names, strict=True) if n]

    def load_module(self, image):
        if self.too_new and image.startswith(b"\x7fELF"):
            raise BackendError("CUDA: cuModuleLoadData failed with CUDA_ERROR_INVALID_IMAGE")
        self.note("load", image)
        return image

    def unload_module(self, module):
        self.note("unload", module)

    def get_function(self, module, name, shared):
        return name

    def launch(self, function, grid, threads, shared, stream, kinds, values):
        assert len(kinds) == len(values)
        if self.fail_launch:
            raise BackendError("CUDA: cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED")
        kernel = re.sub("_[0-9a-f]{12}$", "", function)  # without the digest of its code
        getattr(self, f"_run_{kernel}")(grid, *values)
        self.note("launch", kernel, grid, threads, stream)

    def _run_symmetrize(
        self, grid, fwd, bwd, src, tgt, spans, n_src, n_tgt, fwd_b, fwd_s, fwd_t, bwd_b, bwd_s,
        bwd_t, threshold, total, counts, starts, links, scores, sentence,
    ):  # fmt: skip
        batch = grid[0]
        assert (fwd_b, fwd_s, fwd_t) == (bwd_b, bwd_s, bwd_t) == (n_src * n_tgt, n_tgt, 1)
        cells = batch * n_src * n_tgt
        sizes = {src: batch * n_src, tgt: batch * n_tgt, spans: 2 * batch, counts: batch,
                 starts: batch, sentence: batch, links: cells, scores: cells}  # fmt: skip
        for pointer, size in sizes.items():
            self.check_inside(pointer, 4 * size)
        assert view_host(total, (1,), np.int32)[0] == 0
        weights = (view_host(p, (batch, n_src, n_tgt), np.float32) for p in (fwd, bwd))
        words = view_host(src, (batch, n_src), np.int32), view_host(tgt, (batch, n_tgt), np.int32)
        found = symmetrize(*weights, *words, threshold)
        count = len(found.src)
        # Pairs finish in any order on a GPU: here the last one first.
        order = np.argsort(-np.repeat(np.arange(batch), found.counts), kind="stable")
        view_host(total, (1,), np.int32)[0] = count
        view_host(counts, (batch,), np.int32)[:] = found.counts
        after = found.counts[::-1].cumsum()[::-1] - found.counts
        view_host(starts, (batch,), np.int32)[:] = after
        view_host(links, (count,), np.int32)[:] = (found.src * 65536 + found.tgt)[order]
        view_host(scores, (count,), np.float32)[:] = found.scores[order]
        view_host(sentence, (batch,), np.float32)[:] = found.sentence

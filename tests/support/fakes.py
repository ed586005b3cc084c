"""Recording fakes of the two thin modules, `cuda_driver` and `tensorrt_api`, and of nothing else.
"Device memory" is memory of the host under its real address, so that what the fakes are told to
copy and compute really happens, and links can be compared with those of the CPU."""

import ctypes
import hashlib
import io
import itertools
import json
import threading
import zipfile
from dataclasses import asdict

import numpy as np
import onnx
import onnxruntime

from ...engine.commands.doctor import _narrow, _wide
from ...engine.errors import BackendError
from ...engine.runtime.gpu.cuda_driver import OutOfMemory
from ...engine.runtime.gpu.devices import view
from ...engine.runtime.gpu.kernel_ops import KERNEL_OF
from ...engine.runtime.gpu.kernels.launch import INDEX, Entry
from ...engine.runtime.gpu.tensorrt_api import Plugins
from ...engine.runtime.reference import leaky_attention, static_attention, symmetrize_links

_POINTERS = ("*fp32", "*fp32", "*i32", "*i32", "*i32")
ARGUMENTS = (*_POINTERS, *8 * ("i32",), "fp32", *4 * ("*i32",), "*fp32", "*fp32")
SYMMETRIZE = Entry("symmetrize", "fp32", "symmetrize.fp32", "symmetrize", ARGUMENTS,
                   {"SRC": 8, "TGT": 32, "WITH_SENTENCE": 1}, 256, 512, False)  # fmt: skip


def archive(*entries: Entry) -> bytes:
    """The file of a bundle that holds these kernels."""
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
        self.too_new = False  # cubins are refused
        self.fail_launch = False
        self.fail_open = -1  # the device whose memory cannot be asked for
        self._here = threading.local()
        self._lock = threading.Lock()

    def _note(self, *call) -> None:
        with self._lock:
            self.log.append(call)

    def calls(self, *names: str) -> list[tuple]:
        return [call for call in self.log if call[0] in names]

    def version(self):
        return 12, 9

    def count(self):
        return self.devices

    def name(self, device):
        return "Fake GPU"

    def capability(self, device):
        return 8, 6

    def open(self, device):
        self._note("open", device)
        return device

    def use(self, context):
        self._here.device = context

    def close(self, device):
        self._note("close", device)

    def memory(self):
        if self.here == self.fail_open:
            raise BackendError("CUDA: cuMemGetInfo failed with CUDA_ERROR_UNKNOWN")
        return self.room - self._used(), self.room

    def _used(self):
        return sum(size for _, size, device in self.memory_of.values() if device == self.here)

    @property
    def here(self):
        return self._here.device

    def allocate(self, size):
        with self._lock:
            if self._used() + size > self.room:
                raise OutOfMemory("the GPU is out of memory")
            raw = np.full(size + 256, 0xAB, np.uint8)  # nothing is zero by itself
            address = -(-raw.ctypes.data // 256) * 256
            self.memory_of[address] = raw, size, self.here
            self.most[self.here] = max(self.most[self.here], self._used())
        self._note("allocate", size)
        return address

    def free(self, pointer):
        with self._lock:
            del self.memory_of[pointer]
        self._note("free", pointer)

    def allocate_host(self, size):
        raw = np.full(size, 0xCD, np.uint8)
        self.host_of[raw.ctypes.data] = raw
        return raw.ctypes.data

    def free_host(self, address):
        del self.host_of[address]

    def inside(self, pointer: int, size: int) -> None:
        """The bytes must lie in one allocation of the current device."""
        for address, (_, room, device) in list(self.memory_of.items()):
            if address <= pointer and pointer + size <= address + room:
                assert device == self.here, "memory of another device"
                return
        raise AssertionError(f"{size} bytes at {pointer} are not allocated")

    def copy_in(self, pointer, address, size, stream):
        self.inside(pointer, size)
        ctypes.memmove(pointer, address, size)
        self._note("copy_in", size, stream)

    def copy_out(self, address, pointer, size, stream):
        if self.memory_of:
            self.inside(pointer, size)
        ctypes.memmove(address, pointer, size)
        self._note("copy_out", size, stream)

    def zero(self, pointer, size, stream):
        self.inside(pointer, size)
        ctypes.memset(pointer, 0, size)
        self._note("zero", size, stream)

    def new_stream(self):
        stream = 1000 + next(self._numbers)
        self.streams.add(stream)
        return stream

    def free_stream(self, stream):
        self.streams.remove(stream)

    def wait(self, stream):
        self._note("wait", stream)

    def held(self) -> list:
        """What was not given back: memory, streams, kernels, contexts."""
        kernels = len(self.calls("load")) - len(self.calls("unload"))
        contexts = len(self.calls("open")) - len(self.calls("close"))
        counts = [len(self.memory_of), len(self.host_of), len(self.streams), kernels, contexts]
        names = ("device memory", "host memory", "streams", "kernels", "contexts")
        return [f"{n} x {name}" for n, name in zip(counts, names, strict=True) if n]

    def load_module(self, image):
        if self.too_new and image.startswith(b"\x7fELF"):
            raise BackendError("CUDA: cuModuleLoadData failed with CUDA_ERROR_INVALID_IMAGE")
        self._note("load", image)
        return image

    def unload_module(self, module):
        self._note("unload", module)

    def function(self, module, name, shared):
        return name

    def launch(self, function, grid, threads, shared, stream, kinds, values):
        assert len(kinds) == len(values)
        if self.fail_launch:
            raise BackendError("CUDA: cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED")
        if function == "symmetrize":
            self._symmetrize(grid[0], *values)
        else:
            dtype = kinds[0].removeprefix("*")
            {"static_attention": self._static, "leaky_attention": self._leaky}[function](
                grid, dtype, *values
            )
        self._note("launch", function, grid, threads, stream)

    def _read(self, pointer, shape, dtype):
        """Values of a kernel's argument in float32."""
        kind = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16}[dtype]
        self.inside(pointer, int(np.prod(shape)) * np.dtype(kind).itemsize)
        return _wide(view(pointer, shape, kind))

    def _static(
        self, grid, dtype, q, k, v, lengths, mask, n_q, n_rows, heads, stride_b, stride_row,
        stride_head, *rest,
    ):  # fmt: skip
        batch, width = grid[0] // heads, stride_row
        assert stride_b == n_rows * width and width == heads * stride_head
        assert rest[:9] == 3 * (stride_b, stride_row, stride_head) and grid[1] >= 1
        self.inside(lengths, 4 * batch)
        shape = batch, n_rows, width
        read = [self._read(q, (n_q, n_rows, width), dtype), self._read(k, shape, dtype),
                self._read(v, shape, dtype), view(lengths, (batch,), np.int32)]  # fmt: skip
        found, _ = _narrow(static_attention(*read, heads), dtype)
        self.inside(rest[9], found.nbytes)
        view(rest[9], shape, found.dtype)[...] = found

    def _leaky(
        self, grid, dtype, q, k, null, mask, n_tgt, n_src, q_b, q_row, q_head, k_b, k_row, k_head,
        weights, nulls,
    ):  # fmt: skip
        batch, width = grid[0], q_row
        assert (q_b, k_b) == (n_tgt * width, n_src * width) and (k_row, k_head) == (width, q_head)
        shapes = {q: (batch, n_tgt, width), k: (batch, n_src, width), null: (width,),
                  mask: (batch, n_src)}  # fmt: skip
        read = [self._read(pointer, shape, dtype) for pointer, shape in shapes.items()]
        made = leaky_attention(*read, width // q_head)
        for pointer, found in zip((weights, nulls), made, strict=True):
            self.inside(pointer, found.nbytes)
            view(pointer, found.shape, np.float32)[...] = found

    def _symmetrize(
        self, batch, fwd, bwd, src, tgt, spans, n_src, n_tgt, fwd_b, fwd_s, fwd_t, bwd_b, bwd_s,
        bwd_t, threshold, total, counts, starts, links, scores, sentence,
    ):  # fmt: skip
        assert (fwd_b, fwd_s, fwd_t) == (bwd_b, bwd_s, bwd_t) == (n_src * n_tgt, n_tgt, 1)
        cells = batch * n_src * n_tgt
        sizes = {src: batch * n_src, tgt: batch * n_tgt, spans: 2 * batch, counts: batch,
                 starts: batch, sentence: batch, links: cells, scores: cells}  # fmt: skip
        for pointer, size in sizes.items():
            self.inside(pointer, 4 * size)
        assert view(total, (1,), np.int32)[0] == 0
        weights = (view(p, (batch, n_src, n_tgt), np.float32) for p in (fwd, bwd))
        words = view(src, (batch, n_src), np.int32), view(tgt, (batch, n_tgt), np.int32)
        found = symmetrize_links(*weights, *words, threshold)
        count = len(found.src)
        # Pairs finish in any order on a GPU: here the last one first.
        order = np.argsort(-np.repeat(np.arange(batch), found.counts), kind="stable")
        view(total, (1,), np.int32)[0] = count
        view(counts, (batch,), np.int32)[:] = found.counts
        after = found.counts[::-1].cumsum()[::-1] - found.counts
        view(starts, (batch,), np.int32)[:] = after
        view(links, (count,), np.int32)[:] = (found.src * 65536 + found.tgt)[order]
        view(scores, (count,), np.float32)[:] = found.scores[order]
        view(sentence, (batch,), np.float32)[:] = found.sentence


class FakeApi:
    """TensorRT that keeps the graph as its engine, and has ONNX Runtime run it."""

    package = "tensorrt"

    def __init__(self, driver: FakeDriver, version: str = "10.9", memory: int = 1 << 20) -> None:
        self.driver, self.version, self.memory = driver, version, memory
        self.per_row = 0  # bytes more for each row of a profile
        self.log: list[tuple] = []
        self.refuse_plugins = self.old = False
        self.fail_build: Exception | None = None
        self.fail_run = False
        self.contexts = 0  # how many can still be made; 0: any number

    def register(self, archive, dtype):
        if self.old:
            raise BackendError("TensorRT 10.9: ImportError: no plugins")
        kernels = {kernel for kernel, kind in archive.entries if kind == dtype}
        ops = frozenset(op for op, kernel in KERNEL_OF.items() if kernel in kernels)
        return Plugins(f"mx_{archive.digest[:16]}", ops)

    def build(
        self, graph, profiles, *, workspace, memory, capabilities, timings, plugins, progress
    ):
        assert plugins == (b"plugin_namespace" in graph) and workspace <= memory
        self.log.append(("build", profiles, workspace, tuple(capabilities), timings, plugins))
        if plugins and self.refuse_plugins:
            raise BackendError("TensorRT: cannot read the graph: no plugin")
        if self.fail_build:
            raise self.fail_build
        progress("building", 1, 2)
        return b"ENGINE" + hashlib.sha256(graph).digest() + graph, b"timings"

    def load(self, engine):
        self.log.append(("load",))
        if hashlib.sha256(engine[38:]).digest() != engine[6:38]:
            raise BackendError("TensorRT: cannot load the engine: magic tag does not match")
        profiles = [call for call in self.log if call[0] == "build"]
        return FakeEngine(self, engine[38:], profiles[-1][1] if profiles else None)


def unmarked(graph: bytes) -> bytes:
    """The graph without the marks of plugins, which ONNX Runtime would not know."""
    model = onnx.ModelProto.FromString(graph)
    for node in model.graph.node:
        kept = [a for a in node.attribute if a.name != "plugin_namespace"]
        del node.attribute[:]
        node.attribute.extend(kept)
    return model.SerializeToString()


class FakeEngine:
    def __init__(self, api: FakeApi, graph: bytes, profiles) -> None:
        self.api, self.profiles = api, profiles
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        graph = unmarked(graph)
        self.session = onnxruntime.InferenceSession(graph, options, ["CPUExecutionProvider"])

    def memory(self, profile):
        high = self.profiles[profile].shapes["src"][2] if self.profiles else (0,)
        return self.api.memory + self.api.per_row * high[0]

    def wide(self, name):
        return self.session.get_inputs()[0].type == "tensor(int64)"

    def outputs(self):
        return [node.name for node in self.session.get_outputs()]

    def context(self):
        if self.api.contexts == 1:
            raise BackendError("TensorRT: cannot make an execution context: broken")
        self.api.contexts -= self.api.contexts > 0
        return FakeContext(self)


class FakeContext:
    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine

    def run(self, profile, shapes, addresses, memory, stream):
        api, driver = self.engine.api, self.engine.api.driver
        if api.fail_run:
            raise BackendError("TensorRT: refused the run: broken")
        driver.inside(memory[0], memory[1])
        assert memory[1] >= api.memory and memory[0] % 256 == 0
        if self.engine.profiles:
            allowed = self.engine.profiles[profile].shapes
            for name, shape in shapes.items():
                low, _, high = allowed[name]
                assert all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True)), shape
        kind = np.int64 if self.engine.wide("src") else np.int32
        feeds = {}
        for name, shape in shapes.items():
            driver.inside(addresses[name], int(np.prod(shape)) * np.dtype(kind).itemsize)
            feeds[name] = view(addresses[name], shape, kind)
        # With a twin, as the CPU's own backend computes a lone pair.
        rows = len(feeds["src"])
        if rows == 1:
            feeds = {name: np.repeat(array, 2, axis=0) for name, array in feeds.items()}
        names = self.engine.outputs()
        assert set(addresses) == {*shapes, *names}
        for name, array in zip(names, self.engine.session.run(names, feeds), strict=True):
            array = array[:rows]
            assert array.dtype == np.float32
            driver.inside(addresses[name], array.nbytes)
            view(addresses[name], array.shape, np.float32)[...] = array
        driver._note("execute", profile, stream)

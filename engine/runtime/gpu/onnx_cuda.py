"""Run a model on GPUs with ONNX Runtime: outputs stay on the device, where they become links.

Does not fall back to the CPU: what cannot run is an error with the reason.
"""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Sequence
from contextlib import ExitStack, closing, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ...bundle.bundle import Bundle
from ...errors import BackendError, BundleError
from ...types import Batch, PackedLinks, WordIds
from ..backends import CUDA, GpuOptions
from ..model_graph import link_outputs
from ..onnx_cpu import INPUT_TYPES, VERSION, check_outputs, start_session
from .cuda_driver import Driver, OutOfMemory
from .devices import Device, describe_devices, open_devices
from .lanes import LANES, Arrays, GpuBackend, Lane
from .link_finder import LinkFinder, open_link_finder

INSTALL_CUDA_LIBRARIES = 'pip install "onnxruntime-gpu[cuda,cudnn]"'
BATCH_TOKENS = 16384  # as TensorRT's; judged, not measured
_LINKS_SHARE = 8  # one part in so many of the memory is for links, the rest ONNX Runtime's
# y = Identity(x), one float: enough to see whether a provider starts.
_IDENTITY_GRAPH = bytes.fromhex(
    "08083a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a020801"
    "620f0a0179120a0a08080112040a02080142040a001011"
)


class OnnxLane(Lane):
    """One stream's worth of calls of a session that the lanes of a device share."""

    def __init__(
        self,
        session: Any,
        device: Device,
        finder: LinkFinder | None,
        weights: tuple[str, str] = ("fwd", "bwd"),
        where: str = "cuda",
    ) -> None:
        self._session = session
        self._weights = weights  # outputs that links are made of
        self._outputs = {node.name for node in session.get_outputs()}
        self._where = where, device.number if where == "cuda" else 0
        self._input_types = {node.name: INPUT_TYPES[node.type] for node in session.get_inputs()}
        super().__init__(device, finder)

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays:
        values = self._run_on_device(batch, outputs)
        return {name: value.numpy() for name, value in values.items()}

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        assert self.finder is not None
        values = self._run_on_device(batch, tuple(dict.fromkeys(self._weights)))
        self.device.make_current()
        fwd, bwd = self._weights
        weights = values[fwd].data_ptr(), values[bwd].data_ptr()
        return self.finder.find_links(self._buffers, weights, words, threshold, self._stream)

    def _run_on_device(self, batch: Batch, outputs: Sequence[str]) -> dict[str, Any]:
        """Return the outputs as values of ONNX Runtime, on the device and complete."""
        check_outputs(outputs, self._outputs)
        binding = self._session.io_binding()
        try:
            for name, kind in self._input_types.items():  # copied to the device here
                binding.bind_cpu_input(name, np.ascontiguousarray(getattr(batch, name), kind))
            for name in outputs:
                binding.bind_output(name, *self._where)
            self._session.run_with_iobinding(binding)
            binding.synchronize_outputs()  # our kernel runs on another stream
        except Exception as error:  # ONNX Runtime has no common class of its own errors
            if says_memory_is_full(str(error)):
                # The reason stands at the end, behind the names of node and source file.
                raise OutOfMemory(str(error).split("\n")[0][-120:]) from error
            raise
        return dict(zip(outputs, binding.get_outputs(), strict=True))


def open_cuda(
    bundle: Bundle,
    dtype: str | None,
    options: GpuOptions,
    *,
    driver: Driver | None = None,
) -> GpuBackend:
    """Open a bundle on all GPUs, or those of the options: a session for each, two calls at once."""
    dtype = bundle.choose_dtype(dtype, "cuda")
    graph = bundle.read_graph(dtype)
    with ExitStack() as opened:
        devices = open_devices(options, opened, driver)
        lanes: list[OnnxLane] = []
        notes: list[str] = []
        for device in devices:
            device.make_current()
            finder, note = open_link_finder(device, bundle, opened)
            notes.append(note)
            memory = device.limit - (device.limit // _LINKS_SHARE if finder else 0)
            device.reserve(memory)
            session = start_cuda_session(graph, device.number, memory, f"{bundle.path} ({dtype})")
            for _ in range(LANES):
                lane = OnnxLane(session, device, finder, link_outputs(graph))
                lanes.append(opened.enter_context(closing(lane)))
        about = f"ONNX Runtime {VERSION}, cuda, {describe_devices(devices, dtype, notes)}"
        return GpuBackend("cuda", dtype, lanes, BATCH_TOKENS, about, opened.pop_all())


# ---- sessions ----


def start_cuda_session(graph: bytes, device: int, memory: int, where: str) -> Any:
    """Load a graph into a session on a GPU, with at most `memory` bytes.

    Raises BackendError with the reason if it would have run on the CPU instead, which ONNX Runtime
    does in silence.
    """
    if hasattr(onnxruntime, "preload_dlls"):  # CUDA and cuDNN that came as Python packages
        with redirect_stdout(io.StringIO()):  # where it tells of failures; links belong there
            onnxruntime.preload_dlls()
    options = {
        "device_id": str(device),
        "gpu_mem_limit": str(memory),
        # By default the arena doubles each time, and so reaches the limit with half of it unused.
        "arena_extend_strategy": "kSameAsRequested",
        # The default tries out every algorithm again for each shape, and batches have many shapes.
        "cudnn_conv_algo_search": "HEURISTIC",
        "use_tf32": "0",  # which would round fp32 products to 10 bits
    }
    try:
        session = start_session(graph, [(CUDA, options)], where)
    except BundleError as error:  # of the GPU, it seems: the CPU may still do
        kind = OutOfMemory if says_memory_is_full(str(error)) else BackendError
        raise kind(f"CUDA: {error}") from error
    if CUDA not in session.get_providers():
        raise BackendError(f"CUDA: its provider did not start: {explain_no_start()}")
    return session


def try_cuda(device: int) -> None:
    """Raise BackendError with the reason if a session on this GPU does not start."""
    start_cuda_session(_IDENTITY_GRAPH, device, 1 << 26, "a graph that does nothing")


def explain_no_start() -> str:
    """Say why the provider does not start: its library does not load, or it finds no GPU.

    Only for when ONNX Runtime has failed to: loaded before it tries, the library would not find it.
    """
    folder = Path(onnxruntime.__file__).parent / "capi"
    form = "{}.dll" if os.name == "nt" else "lib{}.so"
    try:
        shared = folder / form.format("onnxruntime_providers_shared")
        ctypes.CDLL(str(shared), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / form.format("onnxruntime_providers_cuda")))
    except OSError as error:
        reason = str(error).strip().split("\n")[0][:300]
        return f"{reason} (docs/how-to/gpu.md has the versions of CUDA and cuDNN)"
    return "no usable GPU, or a driver that is too old (docs/how-to/gpu.md)"


def says_memory_is_full(text: str) -> bool:
    """Tell whether a message of ONNX Runtime says that memory ran out: the GPU's, or what was
    allowed of it. There is no class of errors for it."""
    signs = ("failed to allocate memory", "smaller than requested bytes", "out of memory",
             "alloc_failed")  # fmt: skip
    return any(sign in text.lower() for sign in signs)

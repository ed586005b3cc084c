"""ONNX Runtime: one session that many threads share; on GPUs see `ort_cuda`.
The only module that imports onnxruntime; which pairs are in a batch is the matter of others."""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ..bundle.bundle import Bundle
from ..errors import BackendError, BundleError
from ..types import Batch, PackedLinks, WordIds
from .gpu.cuda_driver import OutOfMemory
from .gpu.kernel_ops import link_weights
from .reference import symmetrize_links
from .subnormals import faded_as_zero

VERSION: str = ort.__version__
CUDA_LIBRARIES = 'pip install "onnxruntime-gpu[cuda,cudnn]"'
# y = Identity(x), one float: enough to see whether a provider starts.
_NOTHING = bytes.fromhex(
    "08083a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a020801"
    "620f0a0179120a0a08080112040a02080142040a001011"
)
_INPUTS = ("src", "src_lengths", "tgt", "tgt_lengths")
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


class Ort:
    """A graph of a bundle in a session of ONNX Runtime."""

    grain = 1
    finds_links = False

    def __init__(
        self, bundle: Bundle, precision: str, provider: str, *, workers: int, batch_tokens: int
    ) -> None:
        self.name = provider.removesuffix("ExecutionProvider").lower()
        self.precision = precision
        self.workers = workers
        self.batch_tokens = batch_tokens
        graph = bundle.graph(precision)
        self._session = _start(graph, [provider], f"{bundle.path} ({precision})")
        self._weights = link_weights(graph)
        self._types = {
            node.name: _TYPES.get(node.type, np.int64) for node in self._session.get_inputs()
        }
        self._outputs = {node.name for node in self._session.get_outputs()}
        if set(self._types) != set(_INPUTS) or "scores" not in self._outputs:
            raise BundleError(
                f"{bundle.path}: the {precision} graph takes {', '.join(self._types)} instead of "
                f"{', '.join(_INPUTS)}; make the bundle again"
            )
        self.steady = steady(graph)

    def run(self, batch: Batch, outputs: Sequence[str]) -> Mapping[str, npt.NDArray[np.float32]]:
        missing = [name for name in outputs if name not in self._outputs]
        if missing:
            raise BackendError(f"the model's graph does not give {', '.join(missing)}")
        feeds = {name: self._rows(name, getattr(batch, name)) for name in _INPUTS}
        with faded_as_zero():
            arrays = self._session.run(list(outputs), feeds)
        return {name: array[: len(batch.src)] for name, array in zip(outputs, arrays, strict=True)}

    def _rows(self, name: str, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # A batch of one loses its first axis inside some kernels, which then add up in another
        # order; with a twin it is computed as in every other batch, to the last bit.
        rows = np.repeat(rows, 2, axis=0) if len(rows) == 1 else rows
        return np.ascontiguousarray(rows, self._types[name])

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        """The twin of what GPUs do, for comparisons: `run` and `decode` are faster on a CPU."""
        fwd, bwd = self._weights
        found = self.run(batch, tuple(dict.fromkeys(self._weights)))
        return symmetrize_links(found[fwd], found[bwd], words.src, words.tgt, threshold)

    def describe(self) -> str:
        return f"ONNX Runtime {ort.__version__}, {self.name}, {self.precision}"


def steady(graph: bytes) -> bool:
    """Whether a pair's result is the same in every batch. A graph that scales whole tensors by
    their range, as dynamic quantization does, mixes the pairs of a batch."""
    return b"DynamicQuantizeLinear" not in graph


def _start(graph: bytes, providers: Sequence[Any], where: str) -> Any:
    options = ort.SessionOptions()
    # One thread per run and several runs at once: 280 pairs/s against 199-228 the other way round.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    # Plans for a shape are of no use when shapes change from batch to batch.
    options.enable_mem_pattern = False
    try:
        return ort.InferenceSession(graph, options, providers=providers)
    except Exception as error:  # ONNX Runtime has no common class of its own errors
        raise BundleError(f"{where}: ONNX Runtime cannot load the graph: {_line(error)}") from error


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]


def _pick(bundle: Bundle, precision: str | None, order: Sequence[str]) -> str:
    """The precision asked for, else the bundle's own choice if it is fit for the device."""
    if precision is not None:
        if precision not in bundle.precisions:
            raise BundleError(
                f"{bundle.path} has no {precision} graph; it has {', '.join(bundle.precisions)}"
            )
        return precision
    fit = [name for name in bundle.precisions if name in order]
    return fit[0] if fit else bundle.precisions[0]


def open_cpu(bundle: Bundle, precision: str | None, threads: int) -> Ort:
    """A session on the CPU, for `threads` calls at a time."""
    # Half precision has no arithmetic on most CPUs.
    precision = _pick(bundle, precision, ("fp32", "int8"))
    return Ort(bundle, precision, "CPUExecutionProvider", workers=threads, batch_tokens=1024)


# ---- CUDA, for `ort_cuda` ----


def need_cuda() -> None:
    """An error if this ONNX Runtime was made without CUDA."""
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise BackendError(
            "CUDA: this ONNX Runtime has no CUDA provider; pip uninstall -y onnxruntime && "
            'pip install "mx-align[gpu]"'
        )


def cuda_session(graph: bytes, device: int, memory: int, where: str) -> Any:
    """A session on a GPU, with at most so much memory; an error with the reason if it would have
    run on the CPU instead, which ONNX Runtime does in silence."""
    if hasattr(ort, "preload_dlls"):  # CUDA and cuDNN that came as Python packages
        with redirect_stdout(io.StringIO()):  # where it tells of failures; links belong there
            ort.preload_dlls()
    options = {
        "device_id": str(device),
        "gpu_mem_limit": str(memory),
        "arena_extend_strategy": "kSameAsRequested",
        "use_tf32": "0",
    }
    provider = "CUDAExecutionProvider"
    try:
        session = _start(graph, [(provider, options)], where)
    except BundleError as error:  # of the GPU, it seems: the CPU may still do
        kind = OutOfMemory if is_full(str(error)) else BackendError
        raise kind(f"CUDA: {error}") from error
    if provider not in session.get_providers():
        reason = missing_libraries() or "no usable GPU, or a driver that is too old (docs/gpu.md)"
        raise BackendError(f"CUDA: its provider did not start: {reason}")
    return session


def try_cuda(device: int) -> None:
    """An error with the reason if a session on this GPU does not start."""
    cuda_session(_NOTHING, device, 1 << 26, "a graph that does nothing")


def missing_libraries() -> str:
    """Why the provider's library does not load, by loading it ourselves; "" if it does. Only for
    when ONNX Runtime has failed to: loaded before it tries, the library would not find it."""
    folder, kind = Path(ort.__file__).parent / "capi", "dll" if os.name == "nt" else "so"
    start = "" if os.name == "nt" else "lib"
    try:
        shared = folder / f"{start}onnxruntime_providers_shared.{kind}"
        ctypes.CDLL(str(shared), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / f"{start}onnxruntime_providers_cuda.{kind}"))
    except OSError as error:
        return f"{_line(error)} (docs/gpu.md has the versions of CUDA and cuDNN)"
    return ""


def is_full(text: str) -> bool:
    """Whether a message of ONNX Runtime says that memory ran out: the GPU's, or what was allowed
    of it. There is no class of errors for it."""
    signs = ("Failed to allocate memory", "smaller than requested bytes", "out of memory",
             "ALLOC_FAILED")  # fmt: skip
    return any(sign.lower() in text.lower() for sign in signs)

"""Run a model on the CPU with ONNX Runtime: one session that many threads share.

Does not choose which pairs are in a batch. For GPUs see the room `gpu`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from ..bundle.bundle import Bundle
from ..errors import BackendError, BundleError
from ..types import Batch, Floats, PackedLinks, WordIds
from .model_graph import INPUTS, is_batch_invariant, link_outputs
from .reference import symmetrize
from .subnormals import flush_subnormals

VERSION: str = onnxruntime.__version__
INPUT_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
CPU = "CPUExecutionProvider"


class OnnxCpu:
    """A graph of a bundle in a session of ONNX Runtime on the CPU."""

    name = "cpu"
    batch_tokens = 1024
    grain = 1
    finds_links = False

    def __init__(self, bundle: Bundle, dtype: str | None, workers: int) -> None:
        self.dtype = dtype = bundle.choose_dtype(dtype, "cpu")
        self.workers = workers  # calls of `run` at a time
        self._bundle = bundle
        graph = bundle.read_graph(dtype)
        self._session = start_session(graph, [CPU], f"{bundle.path} ({dtype})")
        self._link_outputs = link_outputs(graph)
        self._input_types = {
            node.name: INPUT_TYPES.get(node.type, np.int64) for node in self._session.get_inputs()
        }
        self._outputs = {node.name for node in self._session.get_outputs()}
        if set(self._input_types) != set(INPUTS) or "scores" not in self._outputs:
            raise BundleError(
                f"{bundle.path}: the {dtype} graph takes {', '.join(self._input_types)} instead of "
                f"{', '.join(INPUTS)}; make the bundle again"
            )
        self.steady = is_batch_invariant(graph)

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the model anew in another process, for one thread."""
        return OnnxCpu, (self._bundle, self.dtype, 1)

    def run(self, batch: Batch, outputs: Sequence[str]) -> Mapping[str, Floats]:
        check_outputs(outputs, self._outputs)
        feeds = {}
        for name, kind in self._input_types.items():
            rows = getattr(batch, name)
            # A batch of one loses its first axis inside some kernels, which then add up in another
            # order; with a twin it is computed as in every other batch, to the last bit.
            rows = np.repeat(rows, 2, axis=0) if len(rows) == 1 else rows
            feeds[name] = np.ascontiguousarray(rows, kind)
        with flush_subnormals():
            arrays = self._session.run(list(outputs), feeds)
        for name, array in zip(outputs, arrays, strict=True):
            check_output(name, array, len(feeds["src"]), batch)
        return {name: array[: len(batch.src)] for name, array in zip(outputs, arrays, strict=True)}

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        """Find links as GPUs do, for comparisons: `run` and decoding are faster on a CPU."""
        fwd, bwd = self._link_outputs
        found = self.run(batch, tuple(dict.fromkeys(self._link_outputs)))
        return symmetrize(found[fwd], found[bwd], words.src, words.tgt, threshold)

    def describe(self) -> str:
        return f"ONNX Runtime {VERSION}, {self.name}, {self.dtype}"


def check_outputs(wanted: Sequence[str], available: set[str]) -> None:
    """Raise BackendError if a model does not give an output."""
    missing = [name for name in wanted if name not in available]
    if missing:
        raise BackendError(f"the model's graph does not give {', '.join(missing)}")


def check_output(name: str, array: Any, rows: int, batch: Batch) -> None:
    """Raise BackendError unless an output has the shape of its batch and finite numbers only."""
    s, t = batch.src.shape[1], batch.tgt.shape[1]
    shapes = {"fwd_null": (rows, t), "bwd_null": (rows, s)}
    wanted = shapes.get(name, (rows, s, t))
    found = getattr(array, "shape", None)
    if found != wanted or array.dtype.kind != "f":
        raise BackendError(f"the model's {name} has the shape {found} instead of {wanted}")
    # Of numbers from 0 to 1 the sum is finite; one that is not makes it so.
    if not np.isfinite(array.sum(dtype=np.float64)):
        raise BackendError(f"the model's {name} has numbers that are not finite; make it again")


def start_session(graph: bytes, providers: Sequence[Any], where: str) -> Any:
    """Load a graph into ONNX Runtime; `where` it comes from is for the error."""
    options = onnxruntime.SessionOptions()
    # One thread per run and several runs at once: 280 pairs/s against 199-228 the other way round.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    # Else the bytes could be its own format, whose reader trusts offsets in the file.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    # Plans for a shape are of no use when shapes change from batch to batch.
    options.enable_mem_pattern = False
    try:
        # Else it prints to standard output, and tries once more.
        return onnxruntime.InferenceSession(graph, options, providers=providers, enable_fallback=0)
    except Exception as error:  # ONNX Runtime has no common class of its own errors
        reason = str(error).strip().split("\n")[0][:300]
        raise BundleError(f"{where}: ONNX Runtime cannot load the graph: {reason}") from error

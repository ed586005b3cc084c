"""Which runtime computes the model: the protocol they share, and the choice among them.
Knows names and reasons; each runtime's own module is imported only when it is tried."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ..bundle.bundle import Bundle
from ..errors import BackendError
from ..types import Batch, PackedLinks, WordIds

if TYPE_CHECKING:
    from .gpu.devices import GpuOptions

OUTPUTS = ("scores", "fwd", "bwd", "fwd_null", "bwd_null")

# From the fastest to the one that always works; each module has `open_<name>`.
_MODULES = {"trt": "mx_align.engine.runtime.gpu.tensorrt", "trt-rtx": "mx_align.engine.runtime.gpu.tensorrt_rtx",
            "cuda": "mx_align.engine.runtime.gpu.onnx_cuda", "cpu": "mx_align.engine.runtime.onnx_cpu"}  # fmt: skip
BACKENDS = ("auto", *_MODULES)


class Backend(Protocol):
    """A model loaded into a runtime. `run` may be called from several threads at once."""

    name: str
    precision: str
    batch_tokens: int  # places on the longer side of a batch that it works best with
    steady: bool  # a pair's result does not depend on its batch
    workers: int  # threads that should call `run`
    grain: int  # sizes are rounded up to its multiples, for fewer and larger batches
    finds_links: bool  # whether `links` is the better way to soft links

    def run(self, batch: Batch, outputs: Sequence[str]) -> Mapping[str, npt.NDArray[np.float32]]:
        """Arrays of these OUTPUTS: scores, fwd and bwd (B, S, T), fwd_null (B, T), bwd_null
        (B, S), all 0 outside the sentences."""

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        """Word links whose score reaches the threshold: less to carry than `scores`."""

    def describe(self) -> str:
        """One line: runtime, version, device, precision."""


def choose(
    bundle: Bundle,
    name: str = "auto",
    *,
    precision: str | None = None,
    threads: int = 1,
    gpu: GpuOptions | None = None,
) -> tuple[Backend, str]:
    """The backend of this name, or with "auto" the first that works; and why it was taken."""
    if name not in BACKENDS:
        raise BackendError(f"there is no backend {name!r}; there are {', '.join(BACKENDS)}")
    if name != "auto":
        return _open(name, bundle, precision, threads, gpu), "asked for"
    reasons: list[str] = []
    for candidate in _MODULES:
        try:
            found = _open(candidate, bundle, precision, threads, gpu)
            return found, "; ".join(dict.fromkeys(reasons))
        except BackendError as error:
            if candidate == "cpu":
                raise
            reasons.append(str(error))
    raise AssertionError("the last candidate returns or raises")


def _open(
    name: str, bundle: Bundle, precision: str | None, threads: int, gpu: GpuOptions | None
) -> Backend:
    try:
        module = importlib.import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        raise BackendError(
            f"{error.name} is not installed; pip install mx-align brings it"
        ) from None
    given = () if name == "cpu" else (gpu,)
    open_it = getattr(module, f"open_{name.replace('-', '_')}")
    backend: Backend = open_it(bundle, precision, threads, *given)
    return backend

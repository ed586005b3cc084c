"""Choose what computes a model: the protocol that all backends share, and the choice among them.

A backend's own module is imported only when it is tried, and the room `gpu` is entered only where
the packages that it needs are installed.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..bundle.bundle import Bundle
from ..errors import BackendError
from ..types import Batch, Floats, IntArray, PackedLinks, WordIds

# From the fastest to the one that always works; "auto" tries them in this order.
BACKENDS = ("auto", "trt", "trt-rtx", "kernels", "cuda", "cpu")

TENSORRT_PACKAGES = {"trt": "tensorrt", "trt-rtx": "tensorrt_rtx"}
TENSORRT_TITLES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT for RTX"}
INSTALL_TENSORRT = {
    "tensorrt": 'pip install "mx-align[trt]"',
    "tensorrt_rtx": 'pip install "mx-align[trt-rtx]"',
}
CUDA = "CUDAExecutionProvider"
# Both packages own the same files: one must go before the other comes, and the one that came over
# the other may be there half. Naming mx-align here would bring the plain one back.
INSTALL_CUDA = (
    "pip uninstall -y onnxruntime onnxruntime-gpu && "
    'pip install "onnxruntime-gpu[cuda,cudnn]" "cuda-bindings>=12.9.1"'
)


# Older ones keep other Python threads waiting through each call.
INSTALL_BINDINGS = 'pip install "cuda-bindings>=12.9.1"'


class OtherModel(BackendError):
    """A backend runs models of another kind than this one."""


@dataclass(frozen=True)
class GpuOptions:
    """What the user may say about GPUs."""

    memory: int | None = None  # bytes on each; None: most of what is free
    devices: tuple[int, ...] | None = None  # None: all


class Backend(Protocol):
    """A model loaded into a runtime. Several threads may call `run` and `links` at once."""

    name: str
    dtype: str
    batch_tokens: int  # places on the longer side of a batch that it works best with
    steady: bool  # a pair's result does not depend on its batch
    workers: int  # threads that should call `run`
    grain: int  # sizes are rounded up to its multiples, for fewer and larger batches
    finds_links: bool  # whether `links` is the better way to soft links

    def run(self, batch: Batch, outputs: Sequence[str]) -> Mapping[str, Floats]:
        """Return arrays of these OUTPUTS: scores, fwd and bwd (B, S, T), fwd_null (B, T), bwd_null
        (B, S), all 0 outside the sentences."""

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        """Return word links whose score reaches the threshold: less to carry than `scores`."""

    def describe(self) -> str:
        """Return one line: runtime, version, device, dtype."""


def choose_backend(
    bundle: Bundle,
    name: str = "auto",
    *,
    dtype: str | None = None,
    threads: int = 1,
    gpu: GpuOptions | None = None,
) -> tuple[Backend, str]:
    """Open the backend of this name, or with "auto" the first that works; also say why that one.

    A backend that was named fails instead of stepping down to a slower one. "auto" takes TensorRT
    only where its engine was built before: some minutes are too long for ten lines.
    """
    if name not in BACKENDS:
        raise BackendError(f"there is no backend {name!r}; there are {', '.join(BACKENDS)}")
    gpu = gpu or GpuOptions()
    if name != "auto":
        return _open_backend(name, bundle, dtype, threads, gpu), "asked for"
    reasons: list[str] = []
    for candidate in BACKENDS[1:-1]:
        try:
            opened = _open_backend(candidate, bundle, dtype, threads, gpu, may_build=False)
            return opened, "; ".join(dict.fromkeys(reasons))
        except BackendError as error:
            reasons.append(str(error))
    return _open_backend("cpu", bundle, dtype, threads, gpu), "; ".join(dict.fromkeys(reasons))


def _open_backend(
    name: str,
    bundle: Bundle,
    dtype: str | None,
    threads: int,
    gpu: GpuOptions,
    may_build: bool = True,
) -> Backend:
    try:
        if name == "cpu":
            from .onnx_cpu import OnnxCpu

            return OnnxCpu(bundle, dtype, threads)
        if name == "cuda":
            check_cuda_provider()
            from .gpu.onnx_cuda import open_cuda

            return open_cuda(bundle, dtype, gpu)
        if name == "kernels":
            check_bindings()
            from .gpu.kernels.student_backend import open_student

            return open_student(bundle, dtype, gpu)
        check_tensorrt(TENSORRT_PACKAGES[name])
        from .gpu.tensorrt import open_tensorrt

        return open_tensorrt(bundle, dtype, gpu, name, may_build=may_build)
    except ModuleNotFoundError as error:
        raise BackendError(
            f"{error.name} is not installed; pip install mx-align brings it"
        ) from None


def check_tensorrt(package: str) -> None:
    """Raise BackendError if a package is not there; without loading it, which takes seconds."""
    if importlib.util.find_spec(package) is None:
        title, install = TENSORRT_TITLES[package], INSTALL_TENSORRT[package]
        raise BackendError(f"{title}: {package} is not installed; {install}")


def check_bindings() -> None:
    """Raise BackendError if what calls the CUDA driver is not installed."""
    try:
        found = importlib.util.find_spec("cuda.bindings")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise BackendError(f"cuda-bindings is not installed; {INSTALL_BINDINGS}")


def check_cuda_provider() -> None:
    """Raise BackendError if this ONNX Runtime was made without CUDA."""
    import onnxruntime

    if CUDA not in onnxruntime.get_available_providers():
        raise BackendError(f"CUDA: this ONNX Runtime has no CUDA provider; {INSTALL_CUDA}")


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pad_lengths(lengths: IntArray, grain: int = 1) -> IntArray:
    """Return the sizes that sentences are padded to, multiples of `grain`.

    Multiples of 4, of 8 above 64, of 16 above 128: the padding stays below a tenth or so, and few
    different sizes mean full batches. TensorRT plans memory for the same sizes.
    """
    step = np.where(lengths <= 64, 4, np.where(lengths <= 128, 8, 16))
    padded = -(-lengths // step) * step
    return np.asarray(-(-padded // grain) * grain)

"""Examine this machine: which backends would run here, why not the others, and, where there is a
GPU, whether our kernels compute what they should and how fast.

Does not install anything. The room `gpu` is entered only when its parts are asked after.
"""

from __future__ import annotations

import importlib.metadata
import platform
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from ..bundle.bundle import Bundle
from ..errors import BackendError
from ..links.scoring import link_f1
from ..version import __version__
from .backends import (
    INSTALL_BINDINGS,
    INSTALL_CUDA,
    INSTALL_TENSORRT,
    TENSORRT_TITLES,
    GpuOptions,
    OtherModel,
    check_cuda_provider,
)
from .onnx_cpu import VERSION

LISTED_PACKAGES = (
    "numpy", "onnxruntime", "onnxruntime-gpu", "cuda-bindings", "tensorrt", "tensorrt-rtx",
)  # fmt: skip
LEAST_GPU_F1 = 0.98  # of links against those of the CPU in the same dtype
INSTALL_DRIVER = "install NVIDIA's driver, R580 or later: https://www.nvidia.com/drivers"
Capability = tuple[int, int]
Say = Callable[[str], None]


def list_versions() -> Iterator[str]:
    """Yield lines about this machine and the packages that matter."""
    yield f"mx-align {__version__}, Python {platform.python_version()}, {platform.platform()}"
    found = []
    for name in LISTED_PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    yield "packages: " + ", ".join(found)


# ---- backends ----


@dataclass(frozen=True)
class Finding:
    """Whether a backend would run here; if not, why, and what to type."""

    backend: str
    runs: bool
    about: str
    install: str = ""

    def __str__(self) -> str:
        line = f"{self.backend:8} {'yes' if self.runs else 'no '}  {self.about}"
        return f"{line}\n{'':14}{self.install}" if self.install else line


def examine_backends() -> list[Finding]:
    """Examine all backends, the fastest first."""
    return [
        examine_tensorrt("trt", "tensorrt"),
        examine_tensorrt("trt-rtx", "tensorrt_rtx"),
        examine_kernels(),
        examine_cuda(),
        Finding("cpu", True, f"onnxruntime {VERSION}"),
    ]


def examine_tensorrt(name: str, package: str) -> Finding:
    """Examine TensorRT, or TensorRT for RTX, which lacks plans for some GPUs."""
    try:
        from .gpu.tensorrt_api import TensorrtApi

        api = TensorrtApi(package)
    except BackendError as error:
        return Finding(name, False, str(error).split(";")[0], INSTALL_TENSORRT[package])
    found, capabilities = examine_gpus(name, f"{package} {api.version}")
    strange = ["sm_{}{}".format(*one) for one in capabilities if not api.can_build_for(one)]
    if strange:
        reason = f"{TENSORRT_TITLES[package]} has no engines for {', '.join(strange)}"
        return Finding(name, False, f"{package} {api.version} is installed, but {reason}")
    return found


def examine_kernels() -> Finding:
    """Examine our own kernels, which run students on GPUs from compute capability 8.0 on."""
    found, capabilities = examine_gpus("kernels", "what it needs of this package")
    if capabilities and min(capabilities) < (8, 0):
        return Finding("kernels", False, "they are for GPUs from sm_80 on")
    return found


def examine_cuda() -> Finding:
    """Examine ONNX Runtime's CUDA provider; on a GPU, start it."""
    try:
        check_cuda_provider()
    except BackendError:
        about = f"onnxruntime {VERSION} is the one without CUDA"
        with suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version("onnxruntime-gpu")
            about = f"onnxruntime lies over the files of onnxruntime-gpu {version}"
        return Finding("cuda", False, about, INSTALL_CUDA)
    from .gpu.onnx_cuda import INSTALL_CUDA_LIBRARIES, try_cuda

    found, capabilities = examine_gpus("cuda", f"onnxruntime {VERSION}")
    try:
        if capabilities:
            try_cuda(0)
    except BackendError as error:
        about = f"onnxruntime {VERSION} is installed, but {str(error).removeprefix('CUDA: ')}"
        return Finding("cuda", False, about, INSTALL_CUDA_LIBRARIES)
    return found


def examine_gpus(backend: str, about: str) -> tuple[Finding, list[Capability]]:
    """Return what a backend whose package is installed lacks, and what the GPUs here can do."""
    from .gpu.cuda_driver import NO_DRIVER

    try:
        gpus, capabilities = list_gpus()
        return Finding(backend, True, f"{about}, {gpus}"), capabilities
    except BackendError as error:
        reason, _, missing = str(error).partition("; pip")
        install = INSTALL_BINDINGS if missing else INSTALL_DRIVER if reason == NO_DRIVER else ""
        return Finding(backend, False, f"{about} is installed, but {reason}", install), []


def list_gpus() -> tuple[str, list[Capability]]:
    """Return the GPUs of this machine in a few words, and their compute capabilities.

    Raises BackendError if there is none to use.
    """
    from .gpu.cuda_driver import Driver

    driver = Driver()
    count = driver.count_devices()
    if not count:
        raise BackendError("there is no NVIDIA GPU here")
    capabilities = [driver.capability(i) for i in range(count)]
    names = [
        "{} (sm_{}{})".format(driver.device_name(i), *one) for i, one in enumerate(capabilities)
    ]
    version = ".".join(map(str, driver.cuda_version()))
    return f"{', '.join(names)}; driver for CUDA {version}", capabilities


# ---- kernels ----


def check_own_kernels(say: Say) -> bool:
    """Run our kernels on every GPU against their twins; False if one is wrong."""
    from .gpu.devices import open_devices
    from .gpu.kernel_checks import TABLE_HEAD, check_kernels
    from .gpu.kernels.launch import find_archive

    good = True
    with ExitStack() as opened:
        try:
            devices = open_devices(GpuOptions(), opened)
        except BackendError as error:
            say(f"kernels: not run, {error}")
            return True
        for device in devices:
            archive = find_archive(device.capability)
            say(f"kernels on GPU {device.number}, {device.name}:")
            if archive is None:
                say("  none: they are for GPUs from compute capability 7.5 on")
                continue
            say(f"  {TABLE_HEAD}")
            for check in check_kernels(device, archive):
                good = good and check.is_good
                say(f"  {check}")
    return good


# ---- whole backends ----


def check_backend_links(bundle: Bundle, load_aligner: Callable[..., Any], say: Say) -> bool:
    """Align some made-up pairs with every backend that runs, by aligners that `load_aligner` makes.

    False if one fails after all, or if a GPU's links are others than those of the same graph, in
    the same dtype, on the CPU.
    """
    src, tgt = make_up_pairs(bundle)
    on_cpu: dict[str, list[set[Any]]] = {}  # by dtype

    def find_links(backend: str, dtype: str | None = None) -> tuple[str, list[set[Any]]]:
        aligner = load_aligner(bundle.path, backend=backend, dtype=dtype)
        began = time.perf_counter()
        found = [set(one.links) for one in aligner.align(src, tgt)]
        seconds = time.perf_counter() - began
        say(f"{backend}: {len(src) / seconds:,.0f} pairs/s; {aligner.describe()}")
        return aligner.require_model()[1].dtype, found

    good = True
    for finding in reversed([one for one in examine_backends() if one.runs]):  # the CPU first
        name = finding.backend
        try:
            dtype, links = find_links(name)
            if name == "cpu":
                on_cpu[dtype] = links
                continue
            if dtype not in on_cpu:
                on_cpu[dtype] = find_links("cpu", dtype)[1]
        except OtherModel as error:
            say(f"{name}: not for this model, {error}")
            continue
        except Exception as error:  # the others are still worth a try
            say(f"{name}: FAILED: {type(error).__name__}: {error}")
            good = False
            continue
        f1 = link_f1(links, on_cpu[dtype])
        is_good = f1 > LEAST_GPU_F1
        wrong = "" if is_good else "  WRONG"
        say(f"{name}: F1 of its links against the CPU's in {dtype} {f1:.4f}{wrong}")
        good = good and is_good
    return good


def make_up_pairs(bundle: Bundle) -> tuple[list[str], list[str]]:
    """Make sentences of the model's own pieces: no text is needed, and every length occurs."""
    rng = random.Random(1)
    sides = []
    for tokenizer in bundle.tokenizers:
        pieces = [tokenizer._model.id_to_piece(i) for i in range(tokenizer.vocab_size)]
        words = [piece.replace("\u2581", "") for piece in pieces if piece.startswith("\u2581")]
        words = [word for word in words if word.isalpha()] or ["a"]
        sides.append([" ".join(rng.choices(words, k=rng.randint(1, 40))) for _ in range(2000)])
    return sides[0], sides[1]

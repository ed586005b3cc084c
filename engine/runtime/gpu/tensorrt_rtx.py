"""TensorRT for RTX: the same engine cache, lanes and links as `trt`, for GeForce and RTX GPUs.
Knows what is different: engines are built without a GPU, for one compute capability or several,
and there are no plugin layers."""

from __future__ import annotations

from collections.abc import Sequence

from ...bundle.bundle import Bundle
from .cuda_driver import Driver
from .devices import GpuOptions, Gpus
from .tensorrt import Cache, classes, open_trt, profile
from .tensorrt_api import Api

PACKAGE = "tensorrt_rtx"
# It has no engines for data-centre GPUs (9.0, 10.0), and no fp32 matrix products for 7.5.
CAPABILITIES = {
    "fp32": ("SM80", "SM86", "SM89", "SM120"),
    "fp16": ("SM75", "SM80", "SM86", "SM89", "SM120"),
}


def open_trt_rtx(
    bundle: Bundle,
    precision: str | None,
    threads: int,
    options: GpuOptions | None = None,
    *,
    api: Api | None = None,
    driver: Driver | None = None,
    cache: Cache | None = None,
) -> Gpus:
    """TensorRT for RTX on all GPUs, or those of the options."""
    return open_trt(
        bundle, precision, threads, options, package=PACKAGE, api=api, driver=driver, cache=cache
    )


def build_ahead(
    graph: bytes,
    max_length: int,
    tokens: int,
    capabilities: Sequence[str],
    api: Api | None = None,
) -> bytes:
    """An engine for these GPUs, built on a machine without any."""
    profiles = [profile(one) for one in classes(max_length, tokens)]
    engine, _ = (api or Api(PACKAGE)).build(graph, profiles, capabilities=capabilities)
    return engine

"""Every exported graph, unchanged, compiles with TensorRT for RTX ahead of time, without a GPU:
through the engine's own calls, with dynamic shapes, for every architecture in one engine."""

import pytest

from ....engine.runtime.gpu.tensorrt_api import TensorrtApi
from ....engine.runtime.gpu.tensorrt_plans import build_ahead
from ....export.graph.dtypes import convert_to_fp16
from ...support.fake_tensorrt import RTX_CAPABILITIES
from ...support.random_runs import fuse_random

PACKAGE = "tensorrt_rtx"
pytest.importorskip(PACKAGE, reason="tensorrt-rtx is not installed")

pytestmark = pytest.mark.trt


@pytest.fixture(scope="module")
def api() -> TensorrtApi:
    return TensorrtApi(PACKAGE)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", list(RTX_CAPABILITIES))
def test_every_variant_builds(variant, dtype, api) -> None:
    graph = fuse_random(variant)
    data = (convert_to_fp16(graph) if dtype == "fp16" else graph).SerializeToString()
    assert build_ahead(data, 32, 1024, RTX_CAPABILITIES[dtype], api)

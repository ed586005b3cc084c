"""Every exported graph, unchanged, compiles with TensorRT for RTX ahead of time, without a GPU:
through the engine's own calls, for all GPUs that it knows, with dynamic shapes."""

import pytest
from random_runs import SMALL, random_model

from mx.engine.backends.tensorrt_api import Api
from mx.engine.backends.trt_rtx import CAPABILITIES, PACKAGE, build_ahead
from mx.export.fuse import fuse
from mx.export.graph import plain_graph, weights_of
from mx.export.precision import half
from mx.trainer.config import ModelConfig

pytest.importorskip(PACKAGE, reason="tensorrt-rtx is not installed")

pytestmark = pytest.mark.trt


@pytest.fixture(scope="module")
def api() -> Api:
    return Api(PACKAGE)


def exported(config: ModelConfig, precision: str) -> bytes:
    graph, _ = fuse(plain_graph(config, weights_of(random_model(config))), config)
    return (half(graph) if precision == "fp16" else graph).SerializeToString()


def test_every_variant_builds(variant, api) -> None:
    """In half precision, as GPUs run it."""
    assert build_ahead(exported(variant, "fp16"), 40, 1024, CAPABILITIES["fp16"], api)


def test_single_precision_builds(api) -> None:
    assert build_ahead(exported(SMALL, "fp32"), 40, 1024, CAPABILITIES["fp32"], api)

"""Every exported graph, unchanged, compiles with TensorRT for RTX ahead of time, without a GPU:
through the engine's own calls, with dynamic shapes."""

import pytest
from random_runs import SMALL, VARIANTS, random_model

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


@pytest.mark.slow
def test_every_variant_builds(variant, request, api) -> None:
    """In half precision, as GPUs run it, each for one of the GPUs in turn; tests/engine builds one
    of them for all."""
    turn = list(VARIANTS).index(request.node.callspec.params["variant"])
    capability = CAPABILITIES["fp16"][turn % len(CAPABILITIES["fp16"])]
    assert build_ahead(exported(variant, "fp16"), 32, 1024, [capability], api)


def test_single_precision_builds(api) -> None:
    assert build_ahead(exported(SMALL, "fp32"), 32, 1024, ["SM86"], api)

"""Engines that TensorRT for RTX builds ahead of time, for real, through the calls that TensorRT
itself is built with: parser, profiles, progress. No GPU is needed; running one would be."""

import pytest

from .....engine.errors import BackendError
from .....engine.runtime.gpu.tensorrt_api import TensorrtApi
from .....engine.runtime.gpu.tensorrt_plans import build_ahead, split_into_classes
from ....support.fake_tensorrt import RTX_CAPABILITIES

PACKAGE = "tensorrt_rtx"
pytest.importorskip(PACKAGE, reason="tensorrt-rtx is not installed")
pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.trt


@pytest.fixture(scope="module")
def api() -> TensorrtApi:
    return TensorrtApi(PACKAGE)


@pytest.fixture(scope="module")
def graphs() -> dict[str, bytes]:
    from .....export.graph.dtypes import convert_to_fp16
    from .....export.graph.plain import build_plain_graph, collect_weights
    from ....support.random_runs import SMALL, fuse_random, random_model

    fused = fuse_random(SMALL)
    plain = build_plain_graph(SMALL, collect_weights(random_model(SMALL)))
    made = {"plain": plain, "fp32": fused, "fp16": convert_to_fp16(fused)}
    return {name: graph.SerializeToString() for name, graph in made.items()}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_one_engine_for_all_gpus(graphs, api, dtype):
    """Every architecture it knows in one engine, with two length classes of dynamic shapes."""
    engine = build_ahead(graphs[dtype], 64, 1024, RTX_CAPABILITIES[dtype], api)
    assert len(engine) > 10_000


@pytest.mark.slow
def test_the_graph_without_our_functions_builds_too(graphs, api):
    assert build_ahead(graphs["plain"], 32, 1024, ["SM86"], api)


@pytest.mark.slow
def test_progress_is_told(graphs, api):
    steps = []
    profiles = [one.shape_profile() for one in split_into_classes(32, 1024)]
    api.build_plan(
        graphs["fp16"], profiles, capabilities=["SM120"], progress=lambda *step: steps.append(step)
    )
    assert steps and all(1 <= step <= max(of, step) for _, step, of in steps)


def test_what_it_cannot_read_is_an_error_with_a_reason(api):
    with pytest.raises(BackendError, match=r"TensorRT for RTX: cannot read the graph: \S"):
        api.build_plan(b"no graph", [])


def test_a_damaged_engine_is_refused_without_a_crash(api):
    with pytest.raises(BackendError, match=r"cannot load the engine|does not start"):
        api.load_plan(b"no engine at all" * 100)

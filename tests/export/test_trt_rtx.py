"""Every exported graph, unchanged, compiles with TensorRT-RTX ahead of time, without a GPU."""

import onnx
import pytest
from random_runs import SMALL, random_model

from mx.export.fuse import fuse
from mx.export.graph import plain_graph, weights_of
from mx.export.precision import half

trt = pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed")

pytestmark = pytest.mark.trt


def parse(graph: onnx.ModelProto):
    """The builder and the network, or the parser's errors as a failure."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(typed)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(graph.SerializeToString()):
        pytest.fail("\n".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
    return logger, builder, network


def build(graph: onnx.ModelProto, capability: str):
    _, builder, network = made = parse(graph)
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, capability), 0)
    profile = builder.create_optimization_profile()
    for side in ("src", "tgt"):
        profile.set_shape(side, (1, 1), (16, 32), (64, 256))
        profile.set_shape(f"{side}_lengths", (1,), (16,), (64,))
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    del made
    return engine


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_every_variant_is_read(variant, precision: str) -> None:
    graph, _ = fuse(plain_graph(variant, weights_of(random_model(variant))), variant)
    _, _, network = parse(half(graph) if precision == "fp16" else graph)
    assert network.get_output(0).name == "scores"


@pytest.mark.parametrize(("precision", "capability"), [("fp32", "SM86"), ("fp16", "SM120")])
def test_it_compiles(precision: str, capability: str) -> None:
    graph, _ = fuse(plain_graph(SMALL, weights_of(random_model(SMALL))), SMALL)
    engine = build(half(graph) if precision == "fp16" else graph, capability)
    assert engine is not None and engine.nbytes > 10_000

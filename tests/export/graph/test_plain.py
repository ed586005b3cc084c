"""The plain and the fused graph give what PyTorch gives, for every kind of model."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from ....engine.runtime.model_graph import INPUTS, OUTPUTS
from ....export.check.probe import make_feeds, open_session
from ....export.check.verification import verify_graph
from ....export.graph.fusion import fuse_attention
from ....export.graph.plain import build_plain_graph, collect_weights
from ....trainer.config import ModelConfig
from ...support.random_runs import SMALL, random_model


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_same_as_torch(variant: ModelConfig, fused: bool) -> None:
    model = random_model(variant)
    graph = build_plain_graph(variant, collect_weights(model))
    if fused:
        graph, _ = fuse_attention(graph, variant)
    onnx.checker.check_model(graph, full_check=True)
    onnx.shape_inference.infer_shapes(graph, strict_mode=True, data_prop=True)
    assert verify_graph(model, graph, "fp32", 30, None).value < 1e-5


def test_inputs_and_outputs() -> None:
    graph = build_plain_graph(SMALL, collect_weights(random_model(SMALL))).graph
    assert tuple(value.name for value in graph.input) == INPUTS
    assert tuple(value.name for value in graph.output) == OUTPUTS
    dims = [[d.dim_param for d in v.type.tensor_type.shape.dim] for v in graph.input]
    assert dims == [["B", "S"], ["B"], ["B", "T"], ["B"]]
    assert {v.type.tensor_type.elem_type for v in graph.input} == {onnx.TensorProto.INT32}


def test_nothing_is_stored_that_alignment_does_not_use() -> None:
    stored = {
        tensor.name
        for tensor in build_plain_graph(
            SMALL, collect_weights(random_model(SMALL))
        ).graph.initializer
    }
    last = SMALL.decoder_layers - 1
    unused = (f"cross.{last}.value", f"cross.{last}.out", "null_value")
    decoder = {name for name in stored if ".decoder." in name}
    assert not [name for name in decoder if any(part in name for part in unused)]
    assert "fwd.decoder.norm.weight" not in stored


def test_tied_directions_store_their_weights_once() -> None:
    sizes = [
        len(build_plain_graph(config, collect_weights(random_model(config))).SerializeToString())
        for config in (SMALL, replace(SMALL, tied=False))
    ]
    assert sizes[0] < 0.75 * sizes[1]


def test_a_pair_does_not_depend_on_its_batch() -> None:
    session = open_session(build_plain_graph(SMALL, collect_weights(random_model(SMALL))))
    rng = np.random.default_rng(1)
    src, tgt = ([rng.integers(1, 40, n, np.int32) for n in sizes] for sizes in ((3, 9), (8, 1)))
    (together,) = session.run(["scores"], make_feeds(src, tgt))
    for i in range(2):
        (alone,) = session.run(["scores"], make_feeds([src[i]], [tgt[i]]))
        np.testing.assert_allclose(together[i, : len(src[i]), : len(tgt[i])], alone[0], atol=1e-6)


def test_swapping_the_sides_of_a_tied_model_swaps_the_directions() -> None:
    """With equal side vectors the two directions are one network."""
    model = random_model(SMALL)
    weights = collect_weights(model)
    weights["side"][1] = weights["side"][0]
    session = open_session(build_plain_graph(SMALL, weights))
    src, tgt = [np.array([3, 4, 5], np.int32)], [np.array([9, 8], np.int32)]
    first = session.run(["scores", "fwd_null"], make_feeds(src, tgt))
    second = session.run(["scores", "bwd_null"], make_feeds(tgt, src))
    np.testing.assert_allclose(first[0][0], second[0][0].T, atol=1e-6)
    np.testing.assert_allclose(first[1], second[1], atol=1e-6)

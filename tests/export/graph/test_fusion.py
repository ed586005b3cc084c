"""Fusion: how often each op is found, that it computes the same, and when it must refuse."""

from dataclasses import replace

import onnx
import pytest

from ....engine.errors import MxError
from ....export.graph.fusion import (
    DOMAIN,
    check_counts,
    count_expected,
    fuse_attention,
    make_functions,
)
from ....export.graph.plain import build_plain_graph, collect_weights
from ....trainer.config import ModelConfig
from ...support.random_runs import SMALL, random_model


@pytest.mark.slow
def test_every_attention_is_found(variant: ModelConfig) -> None:
    graph, counts = fuse_attention(
        build_plain_graph(variant, collect_weights(random_model(variant))), variant
    )
    assert counts == count_expected(variant)
    calls = [node.op_type for node in graph.graph.node if node.domain == DOMAIN]
    assert {name: calls.count(name) for name in set(calls)} == counts
    assert {function.name for function in graph.functions} == set(counts)
    plain = [node for node in graph.graph.node if node.op_type == "Softmax"]
    assert not plain or variant.kind == "student"  # which has no attention


def test_the_counts_of_the_paper_model() -> None:
    assert count_expected(ModelConfig()) == {
        "MaskedAttention": 12,
        "StaticAttention": 12,
        "LeakyAttention": 2,
        "NormGradient": 4,
        "LeakyPosterior": 2,
        "Symmetrize": 1,
    }


def test_the_plain_graph_is_left_as_it_was() -> None:
    plain = build_plain_graph(SMALL, collect_weights(random_model(SMALL)))
    before = plain.SerializeToString()
    fuse_attention(plain, SMALL)
    assert plain.SerializeToString() == before


@pytest.mark.parametrize("change", ["axis", "perm", "constant", "missing"])
def test_what_is_not_quite_the_pattern_is_not_fused(change: str) -> None:
    plain = build_plain_graph(SMALL, collect_weights(random_model(SMALL)))
    softmax = next(node for node in plain.graph.node if node.op_type == "Softmax")
    if change == "axis":
        softmax.attribute[0].i = 2
    elif change == "perm":
        producer = {out: node for node in plain.graph.node for out in node.output}
        scores = producer[producer[softmax.input[0]].input[0]]
        producer[scores.input[0]].attribute[0].ints[:] = [0, 2, 1, 3][::-1]
    elif change == "constant":
        shape = next(t for t in plain.graph.initializer if t.name == "ints_0_0_16")
        shape.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(shape) + 1, shape.name)
        )
    else:
        softmax.op_type = "LogSoftmax"
    _, counts = fuse_attention(plain, SMALL)
    with pytest.raises(MxError, match=r"instead of 4: its attention was not recognised"):
        check_counts(counts, SMALL)


def test_another_number_of_heads_is_not_recognised() -> None:
    plain = build_plain_graph(SMALL, collect_weights(random_model(SMALL)))
    _, counts = fuse_attention(plain, replace(SMALL, heads=4))
    with pytest.raises(MxError, match=r"0 mx\.MaskedAttention instead of 4"):
        check_counts(counts, SMALL)


def test_function_bodies_are_standard_ops() -> None:
    for function in make_functions(16, 2):
        assert function.domain == DOMAIN
        assert [opset.domain for opset in function.opset_import] == [""]
        assert {node.domain for node in function.node} == {""}

"""Verification notices what can go wrong with a graph."""

import numpy as np
import onnx
import pytest

from ....engine.errors import MxError
from ....export.check.verification import check_values, find_inside, make_edge_feeds, verify_graph
from ....export.graph.plain import build_plain_graph, collect_weights
from ...support.random_runs import SMALL, random_model


def test_every_edge_shape_is_there() -> None:
    lengths = {
        (int(s), int(t))
        for batch in make_edge_feeds((10, 10), 64)
        for s, t in zip(batch["src_lengths"], batch["tgt_lengths"], strict=True)
    }
    assert {(1, 1), (0, 1), (3, 0), (0, 0), (64, 64), (64, 1), (1, 64)} <= lengths


def test_a_changed_weight() -> None:
    model = random_model(SMALL)
    weights = collect_weights(model)
    weights["fwd.decoder.cross.1.null_key"] += 0.5
    with pytest.raises(
        MxError, match=r"the fp32 graph differs from the PyTorch model: \w+ of shape"
    ):
        verify_graph(model, build_plain_graph(SMALL, weights), "fp32", 20, None)


def test_a_graph_that_does_not_load() -> None:
    model = random_model(SMALL)
    graph = build_plain_graph(SMALL, collect_weights(model))
    graph.graph.node[0].op_type = "NoSuchOp"
    with pytest.raises(MxError, match="ONNX Runtime cannot load the graph"):
        verify_graph(model, graph, "fp32", 20, None)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (np.zeros((1, 2, 3), np.float32), "instead of float32"),
        (np.zeros((1, 2, 2), np.float64), "instead of float32"),
        (np.full((1, 2, 2), np.nan, np.float32), "not finite"),
        (np.ones((1, 2, 2), np.float32), "not zero outside"),
    ],
)
def test_values(found: np.ndarray, problem: str) -> None:
    batch = make_edge_feeds((10, 10), 20)[1] | {"tgt_lengths": np.array([1], np.int32)}
    with pytest.raises(MxError, match=problem):
        check_values("scores", found, np.zeros((1, 2, 2), np.float32), batch, "fp32")


def test_inside() -> None:
    batch = {
        "src": np.zeros((2, 2)),
        "tgt": np.zeros((2, 3)),
        "src_lengths": np.array([2, 0]),
        "tgt_lengths": np.array([1, 3]),
    }
    assert find_inside("scores", batch).sum() == 2
    assert find_inside("fwd_null", batch).tolist() == [[True, False, False], [False] * 3]
    assert find_inside("bwd_null", batch).tolist() == [[True, True], [False, False]]


def test_a_graph_with_a_wrong_type_of_output_is_no_graph_of_ours() -> None:
    graph = build_plain_graph(SMALL, collect_weights(random_model(SMALL)))
    graph.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    with pytest.raises(MxError, match="cannot load"):
        verify_graph(random_model(SMALL), graph, "fp32", 20, None)

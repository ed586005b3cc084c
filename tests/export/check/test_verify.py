"""Verification notices what can go wrong with a graph."""

import numpy as np
import onnx
import pytest

from ....engine.errors import MxError
from ....export.check.verify import check_values, edge_feeds, inside, verify
from ....export.graph.mask_align import plain_graph, weights_of
from ...support.random_runs import SMALL, random_model


def test_every_edge_shape_is_there() -> None:
    lengths = {
        (int(s), int(t))
        for batch in edge_feeds((10, 10), 64)
        for s, t in zip(batch["src_lengths"], batch["tgt_lengths"], strict=True)
    }
    assert {(1, 1), (0, 1), (3, 0), (0, 0), (64, 64), (64, 1), (1, 64)} <= lengths


def test_a_changed_weight() -> None:
    model = random_model(SMALL)
    weights = weights_of(model)
    weights["fwd.decoder.cross.1.null_key"] += 0.5
    with pytest.raises(
        MxError, match=r"the fp32 graph differs from the PyTorch model: \w+ of shape"
    ):
        verify(model, plain_graph(SMALL, weights), "fp32", 20, None)


def test_a_graph_that_does_not_load() -> None:
    model = random_model(SMALL)
    graph = plain_graph(SMALL, weights_of(model))
    graph.graph.node[0].op_type = "NoSuchOp"
    with pytest.raises(MxError, match="ONNX Runtime cannot load the graph"):
        verify(model, graph, "fp32", 20, None)


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
    batch = edge_feeds((10, 10), 20)[1] | {"tgt_lengths": np.array([1], np.int32)}
    with pytest.raises(MxError, match=problem):
        check_values("scores", found, np.zeros((1, 2, 2), np.float32), batch, "fp32")


def test_inside() -> None:
    batch = {
        "src": np.zeros((2, 2)),
        "tgt": np.zeros((2, 3)),
        "src_lengths": np.array([2, 0]),
        "tgt_lengths": np.array([1, 3]),
    }
    assert inside("scores", batch).sum() == 2
    assert inside("fwd_null", batch).tolist() == [[True, False, False], [False] * 3]
    assert inside("bwd_null", batch).tolist() == [[True, True], [False, False]]


def test_a_graph_with_a_wrong_type_of_output_is_no_graph_of_ours() -> None:
    graph = plain_graph(SMALL, weights_of(random_model(SMALL)))
    graph.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    with pytest.raises(MxError, match="cannot load"):
        verify(random_model(SMALL), graph, "fp32", 20, None)

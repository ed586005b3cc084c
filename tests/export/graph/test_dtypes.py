"""fp16 and int8 graphs: valid, close, and deaf to what else is in a batch."""

import numpy as np
import onnx
import pytest

from ....export.check.probe import feeds, open_session
from ....export.check.verify import verify
from ....export.graph.dtypes import find_ranges, half, int8, products
from ....export.graph.fuse import fuse
from ....export.graph.mask_align import OUTPUTS, plain_graph, weights_of
from ....trainer.config import ModelConfig
from ...support.random_runs import SMALL, random_model


def fused(config: ModelConfig) -> onnx.ModelProto:
    return fuse(plain_graph(config, weights_of(random_model(config))), config)[0]


def pairs(n: int, seed: int = 1) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return tuple(
        [rng.integers(1, 40, size, np.int32) for size in rng.integers(2, 15, n)] for _ in range(2)
    )  # type: ignore[return-value]


def quantized(graph: onnx.ModelProto) -> onnx.ModelProto:
    src, tgt = pairs(20)
    single = (feeds([s], [t]) for s, t in zip(src, tgt, strict=True))
    return int8(graph, find_ranges(graph, single))


@pytest.mark.parametrize("make", [half, quantized], ids=["fp16", "int8"])
def test_valid_and_close(variant: ModelConfig, make) -> None:
    graph = make(fused(variant))
    onnx.checker.check_model(graph, full_check=True)
    onnx.shape_inference.infer_shapes(graph, strict_mode=True, data_prop=True)
    precision = "fp16" if make is half else "int8"
    worst = verify(random_model(variant), graph, precision, 30, None)
    assert worst.value < (0.01 if make is half else 0.25)


def test_half_the_size() -> None:
    graph = fused(SMALL)
    stored = {t.name: t.data_type for t in half(graph).graph.initializer}
    real = [name for name, kind in stored.items() if kind == onnx.TensorProto.FLOAT]
    assert real == ["positions.rates"]


def test_the_products_that_decide_the_scores_stay_exact() -> None:
    graph = fused(SMALL)
    chosen = {node.input[1] for node in products(graph)}
    last = SMALL.decoder_layers - 1
    assert not [name for name in chosen if f"cross.{last}." in name]
    assert "fwd.decoder.attention.0.query.weight" not in chosen
    assert "fwd.decoder.attention.1.query.weight" in chosen
    kept = [node for node in quantized(graph).graph.node if node.op_type == "Gemm"]
    assert len(kept) == 6  # first query, last query, last key; in two directions


def test_int8_does_not_depend_on_the_batch() -> None:
    session = open_session(quantized(fused(SMALL)))
    src, tgt = pairs(5, seed=2)
    (together,) = session.run(["scores"], feeds(src, tgt))
    for i in range(5):
        (alone,) = session.run(["scores"], feeds([src[i]], [tgt[i]]))
        inside = together[i, : len(src[i]), : len(tgt[i])]
        np.testing.assert_allclose(inside, alone[0], atol=1e-5)


def test_outputs_are_float32_in_every_precision() -> None:
    graph = fused(SMALL)
    for made in (half(graph), quantized(graph)):
        results = open_session(made).run(list(OUTPUTS), feeds(*pairs(2)))
        assert {value.dtype for value in results} == {np.dtype(np.float32)}

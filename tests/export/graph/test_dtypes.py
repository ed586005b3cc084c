"""fp16 and int8 graphs: valid, close, and deaf to what else is in a batch."""

import numpy as np
import onnx
import pytest

from ....engine.runtime.model_graph import OUTPUTS
from ....export.check.probe import make_feeds, open_session
from ....export.check.verification import verify_graph
from ....export.graph import dtypes
from ....export.graph.dtypes import convert_to_fp16, convert_to_int8, find_products, find_ranges
from ....trainer.config import ModelConfig
from ...support.random_runs import SMALL, fuse_random, random_model


def pairs(n: int, seed: int = 1) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return tuple(
        [rng.integers(1, 40, size, np.int32) for size in rng.integers(2, 15, n)] for _ in range(2)
    )  # type: ignore[return-value]


def quantize(graph: onnx.ModelProto) -> onnx.ModelProto:
    src, tgt = pairs(20)
    single = (make_feeds([s], [t]) for s, t in zip(src, tgt, strict=True))
    return convert_to_int8(graph, find_ranges(graph, single))


@pytest.mark.slow
@pytest.mark.parametrize("make", [convert_to_fp16, quantize], ids=["fp16", "int8"])
def test_valid_and_close(variant: ModelConfig, make) -> None:
    graph = make(fuse_random(variant))
    onnx.checker.check_model(graph, full_check=True)
    onnx.shape_inference.infer_shapes(graph, strict_mode=True, data_prop=True)
    dtype = "fp16" if make is convert_to_fp16 else "int8"
    worst = verify_graph(random_model(variant), graph, dtype, 30, None)
    assert worst.value < (0.02 if make is convert_to_fp16 else 0.6)


def test_half_the_size() -> None:
    graph = fuse_random(SMALL)
    stored = {t.name: t.data_type for t in convert_to_fp16(graph).graph.initializer}
    real = [name for name, kind in stored.items() if kind == onnx.TensorProto.FLOAT]
    assert real == ["positions.rates"]


def test_large_embeddings_take_8_bits_in_fp16(monkeypatch) -> None:
    monkeypatch.setattr(dtypes, "_LARGE_TABLE", 20)
    graph = convert_to_fp16(fuse_random(SMALL))
    onnx.checker.check_model(graph, full_check=True)
    stored = {t.name: t.data_type for t in graph.graph.initializer}
    assert stored["src_embedding.weight.int8"] == onnx.TensorProto.INT8
    assert "src_embedding.weight" not in stored
    assert verify_graph(random_model(SMALL), graph, "fp16", 30, None).value < 0.02


def test_the_products_that_decide_the_scores_stay_exact() -> None:
    graph = fuse_random(SMALL)
    chosen = {node.input[1] for node in find_products(graph)}
    last = SMALL.decoder_layers - 1
    assert not [name for name in chosen if f"cross.{last}." in name]
    assert "fwd.decoder.attention.0.query.weight" not in chosen
    assert "fwd.decoder.attention.1.query.weight" in chosen
    kept = [node for node in quantize(graph).graph.node if node.op_type == "Gemm"]
    assert len(kept) == 6  # first query, last query, last key; in two directions


def test_int8_does_not_depend_on_the_batch() -> None:
    session = open_session(quantize(fuse_random(SMALL)))
    src, tgt = pairs(5, seed=2)
    (together,) = session.run(["scores"], make_feeds(src, tgt))
    for i in range(5):
        (alone,) = session.run(["scores"], make_feeds([src[i]], [tgt[i]]))
        inside = together[i, : len(src[i]), : len(tgt[i])]
        np.testing.assert_allclose(inside, alone[0], atol=1e-5)


def test_outputs_are_float32_in_every_dtype() -> None:
    graph = fuse_random(SMALL)
    for made in (convert_to_fp16(graph), quantize(graph)):
        results = open_session(made).run(list(OUTPUTS), make_feeds(*pairs(2)))
        assert {value.dtype for value in results} == {np.dtype(np.float32)}

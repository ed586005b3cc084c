"""Reads a student's weights out of the ONNX graph that mx-export made of it.

The way of `export/graph/student.py` backwards: undoes the scales that were folded into weights.
"""

from collections.abc import Iterator

import numpy as np

from ...engine.errors import MxError
from ..config import ModelConfig

Weights = dict[str, np.ndarray]

_TAIL = "tail."  # of constants that stay fp32 whatever the graph's dtype is


def student_weights(graph: bytes, config: ModelConfig, where: str) -> Weights:
    """Return the parameters of `Student` as float32 arrays, from an fp32 or fp16 graph."""
    stored = read_tensors(graph)
    found = {}
    for name, parts, scale in weight_sources(config):
        missing = [part for part in parts if part not in stored]
        if missing:
            raise MxError(f"{where}: its graph lacks {missing[0]}; export the model's run again")
        values = [stored[part].astype(np.float32) for part in parts]
        found[name] = (values[0] if len(parts) == 1 else np.stack(values)) / np.float32(scale)
    return found


def weight_sources(config: ModelConfig) -> Iterator[tuple[str, list[str], float]]:
    """Yield each parameter, the tensors of the graph that it is made of, and their scale."""
    for side in ("src",) if config.joint_vocab else ("src", "tgt"):
        name = f"{side}_embedding.weight"
        yield name, [name], config.width**0.5
        yield f"{side}_starts", [f"{side}_starts"], 1.0
    yield "side", ["side.0", "side.1"], 1.0
    layers = range(config.encoder_layers)
    unscaled = [f"layers.{layer}.{part}" for layer in layers for part in ("norm", "up", "down")]
    for part in (*unscaled, "norm", "key", "src_null", "tgt_null"):
        for kind in ("weight", "bias"):
            yield f"{part}.{kind}", [f"{part}.{kind}"], 1.0
    for kind in ("weight", "bias"):
        yield f"query.{kind}", [f"query.{kind}"], config.width**-0.5
    if config.diagonal:
        yield "diagonal", [f"{_TAIL}diagonal.{k}" for k in (0, 1)], 1.0
    for part in ("look", "judge") if config.refine else ():
        for kind in ("weight", "bias"):
            yield f"correction.{part}.{kind}", [f"{_TAIL}{part}.{kind}"], 1.0


def read_tensors(graph: bytes) -> Weights:
    """Return the tensors stored in an ONNX file, by name."""
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError:
        raise MxError(
            "to start from a bundle onnx is needed, which this install lacks: "
            'pip install "mx-align[export]"; a run folder needs none'
        ) from None
    model = onnx.load_model_from_string(graph)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

"""A student's weights out of the graph that mx-export made of it: `export/student_graph.py`
backwards. Knows which scales were folded into which weight; the only user of onnx in training.
"""

from collections.abc import Iterator

import numpy as np

from ...engine.errors import MxError
from ..config import ModelConfig

Weights = dict[str, np.ndarray]

_TAIL = "tail."  # of constants that stay fp32 whatever the precision


def student_weights(graph: bytes, config: ModelConfig, where: str) -> Weights:
    """The parameters of `student.Student` as float32 arrays, from an fp32 or fp16 graph."""
    stored = tensors(graph)
    found = {}
    for name, parts, scale in sources(config):
        missing = [part for part in parts if part not in stored]
        if missing:
            raise MxError(f"{where}: its graph lacks {missing[0]}; export the model's run again")
        values = [stored[part].astype(np.float32) for part in parts]
        found[name] = (values[0] if len(parts) == 1 else np.stack(values)) / np.float32(scale)
    return found


def sources(config: ModelConfig) -> Iterator[tuple[str, list[str], float]]:
    """Each parameter, the tensors of the graph that it is put together from, and their scale."""
    for side in ("src",) if config.joint_vocab else ("src", "tgt"):
        name = f"{side}_embedding.weight"
        yield name, [name], config.width**0.5
        yield f"{side}_starts", [f"{side}_starts"], 1.0
    yield "side", ["side.0", "side.1"], 1.0
    for layer in range(config.encoder_layers):
        for part in ("norm", "up", "down"):
            yield from as_they_are(f"layers.{layer}.{part}")
    for part in ("norm", "key", "src_null", "tgt_null"):
        yield from as_they_are(part)
    for kind in ("weight", "bias"):
        yield f"query.{kind}", [f"query.{kind}"], config.width**-0.5
    if config.diagonal:
        yield "diagonal", [f"{_TAIL}diagonal.{k}" for k in (0, 1)], 1.0
    for part in ("look", "judge") if config.refine else ():
        for kind in ("weight", "bias"):
            yield f"correction.{part}.{kind}", [f"{_TAIL}{part}.{kind}"], 1.0


def as_they_are(name: str) -> Iterator[tuple[str, list[str], float]]:
    for kind in ("weight", "bias"):
        yield f"{name}.{kind}", [f"{name}.{kind}"], 1.0


def tensors(graph: bytes) -> Weights:
    """The tensors stored in an ONNX file, by name."""
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

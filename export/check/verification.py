"""Verify a graph against the PyTorch model it was made from, on all edge shapes.

Does not decide what happens to a bundle: what differs too much is an MxError.
"""

from dataclasses import dataclass

import numpy as np
import onnx
import torch

from ...engine.errors import MxError
from ...engine.runtime.model_graph import INPUTS, OUTPUTS
from ...trainer.networks.mask_align import harmonic_mean
from ...trainer.networks.weights import Network
from ..graph.builder import Feeds
from .probe import Probe, batch_probe, make_feeds, open_session

# Largest difference of a weight, which is a probability. fp32 differs by rounding only; with fp16
# a sharp softmax may move by some hundredths (0.011 on text and 0.05 on 256 random pieces were seen
# in a trained model); 8 bits move single weights a lot, so there only the links are compared
# (`conversion`).
GRAPH_TOLERANCE = {"fp32": 1e-4, "fp16": 0.1, "int8": 1.0}


@dataclass(frozen=True)
class Difference:
    """The largest difference and where it was."""

    value: float
    output: str
    shape: tuple[int, ...]


def verify_graph(
    model: Network, graph: onnx.ModelProto, dtype: str, max_length: int, probe: Probe | None
) -> Difference:
    """Return the largest difference.

    Raises MxError if it is too large, or a value is not finite or not zero where it must be.
    """
    session = open_session(graph)
    config = model.config
    vocab = (config.src_vocab, config.src_vocab if config.joint_vocab else config.tgt_vocab)
    worst = Difference(0.0, "scores", ())
    tests = make_edge_feeds(vocab, max_length)
    if probe is not None:
        tests += [batch for _, batch in batch_probe(Probe(probe.pairs[:100], probe.name))]
    for batch in tests:
        found = dict(zip(OUTPUTS, session.run(list(OUTPUTS), batch), strict=True))
        wanted = run_network(model, batch)
        for name in OUTPUTS:
            check_values(name, found[name], wanted[name], batch, dtype)
            value = float(np.abs(found[name] - wanted[name]).max(initial=0.0))
            if value > worst.value:
                worst = Difference(value, name, found[name].shape)
    if worst.value > GRAPH_TOLERANCE[dtype]:
        raise MxError(
            f"the {dtype} graph differs from the PyTorch model: {worst.output} of shape "
            f"{worst.shape} by {worst.value:.2g}, allowed {GRAPH_TOLERANCE[dtype]:g}; not exported"
        )
    return worst


def make_edge_feeds(vocab: tuple[int, int], max_length: int) -> list[Feeds]:
    """Make random pairs of every awkward shape: single pieces, empty sides, longest, ragged."""
    rng = np.random.default_rng(1)
    shapes = [
        [(1, 1)],
        [(2, 2)],
        [(0, 1)],
        [(3, 0)],
        [(1, 7), (7, 1), (2, 5), (0, 4), (4, 0), (0, 0), (7, 7), (1, 1)],
        [(int(s), int(t)) for s, t in rng.integers(1, min(40, max_length) + 1, (8, 2))],
        [(max_length, max_length), (max_length, 1), (1, max_length)],
    ]
    return [
        make_feeds(
            [rng.integers(0, vocab[0], s, np.int32) for s, _ in pairs],
            [rng.integers(0, vocab[1], t, np.int32) for _, t in pairs],
        )
        for pairs in shapes
    ]


@torch.inference_mode()
def run_network(model: Network, batch: Feeds) -> dict[str, np.ndarray]:
    """Return what the graph must give for a batch, from PyTorch."""
    fwd, bwd = model(*(torch.from_numpy(batch[name]).long() for name in INPUTS))
    scores = harmonic_mean(fwd.weights, bwd.weights).transpose(1, 2)
    values = (scores, fwd.weights.transpose(1, 2), bwd.weights, fwd.null, bwd.null)
    return {name: v.float().numpy() for name, v in zip(OUTPUTS, values, strict=True)}


def check_values(
    name: str, found: np.ndarray, wanted: np.ndarray, batch: Feeds, dtype: str
) -> None:
    """Check shape, type, finite numbers, zeros outside the sentences."""
    problem = ""
    if found.shape != wanted.shape or found.dtype != np.float32:
        problem = f"is {found.dtype} {found.shape} instead of float32 {wanted.shape}"
    elif not np.isfinite(found).all():
        problem = "has values that are not finite"
    elif found[~find_inside(name, batch)].any():
        problem = "is not zero outside the sentences"
    if problem:
        shapes = ", ".join(f"{key} {list(batch[key].shape)}" for key in INPUTS)
        raise MxError(f"the {dtype} graph is wrong: {name} {problem} for {shapes}; not exported")


def find_inside(name: str, batch: Feeds) -> np.ndarray:
    """Return where an output may be other than zero, as an array of its shape."""
    src, tgt = (
        np.arange(batch[side].shape[1]) < batch[f"{side}_lengths"][:, None]
        for side in ("src", "tgt")
    )
    if name == "fwd_null":
        return tgt & (batch["src_lengths"] > 0)[:, None]
    if name == "bwd_null":
        return src & (batch["tgt_lengths"] > 0)[:, None]
    return src[:, :, None] & tgt[:, None, :]


def check_onnx(graph: onnx.ModelProto, dtype: str) -> None:
    """Run the ONNX checker and strict shape inference."""
    try:
        onnx.checker.check_model(graph, full_check=True)
        onnx.shape_inference.infer_shapes(graph, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise MxError(f"the {dtype} graph is not valid ONNX ({error}); not exported") from error

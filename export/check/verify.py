"""A graph against the PyTorch model it was made from, on all edge shapes; refuses what differs.

Knows tolerances. Which graphs there are, and what happens to a bundle, is up to `cli`.
"""

from dataclasses import dataclass

import numpy as np
import onnx
import torch

from ...engine.errors import MxError
from ...trainer.networks.mask_align import harmonic_mean
from ...trainer.networks.weights import Network
from ..graph.mask_align import INPUTS, OUTPUTS
from .probe import Feeds, Probe, batches, feeds, open_session

# Largest difference of a weight, which is a probability. fp32 differs by rounding only; with fp16
# a sharp softmax may move by some hundredths (0.011 on text and 0.05 on 256 random pieces were seen
# in a trained model); 8 bits move single weights a lot, so there only the links are compared
# (`probe.link_f1`).
TOLERANCE = {"fp32": 1e-4, "fp16": 0.1, "int8": 1.0}


@dataclass(frozen=True)
class Difference:
    """The largest difference and where it was."""

    value: float
    output: str
    shape: tuple[int, ...]


def edge_feeds(config_vocab: tuple[int, int], max_length: int, seed: int = 1) -> list[Feeds]:
    """Random pairs of every awkward shape: single pieces, empty sides, longest, ragged."""
    rng = np.random.default_rng(seed)
    longest = [(max_length, max_length), (max_length, 1), (1, max_length)]
    shapes = [
        [(1, 1)],
        [(2, 2)],
        [(0, 1)],
        [(3, 0)],
        [(1, 7), (7, 1), (2, 5), (0, 4), (4, 0), (0, 0), (7, 7), (1, 1)],
        [(int(s), int(t)) for s, t in rng.integers(1, min(40, max_length) + 1, (8, 2))],
        longest,
    ]
    return [
        feeds(
            [rng.integers(0, config_vocab[0], s, np.int32) for s, _ in pairs],
            [rng.integers(0, config_vocab[1], t, np.int32) for _, t in pairs],
        )
        for pairs in shapes
    ]


@torch.inference_mode()
def expected(model: Network, batch: Feeds) -> dict[str, np.ndarray]:
    """What the graph must give for a batch, from PyTorch."""
    fwd, bwd = model(*(torch.from_numpy(batch[name]).long() for name in INPUTS))
    scores = harmonic_mean(fwd.weights, bwd.weights).transpose(1, 2)
    values = (scores, fwd.weights.transpose(1, 2), bwd.weights, fwd.null, bwd.null)
    return {name: v.float().numpy() for name, v in zip(OUTPUTS, values, strict=True)}


def verify(
    model: Network, graph: onnx.ModelProto, precision: str, max_length: int, probe: Probe | None
) -> Difference:
    """The largest difference; an error if it is too large, or a value is not finite or not zero
    where it must be."""
    session = open_session(graph)
    config = model.config
    vocab = (config.src_vocab, config.src_vocab if config.joint_vocab else config.tgt_vocab)
    worst = Difference(0.0, "scores", ())
    tests = edge_feeds(vocab, max_length)
    if probe is not None:
        tests += [batch for _, batch in batches(probe.part(slice(0, 100)))]
    for batch in tests:
        found = dict(zip(OUTPUTS, session.run(list(OUTPUTS), batch), strict=True))  # type: ignore[attr-defined]
        wanted = expected(model, batch)
        for name in OUTPUTS:
            check_values(name, found[name], wanted[name], batch, precision)
            value = float(np.abs(found[name] - wanted[name]).max(initial=0.0))
            if value > worst.value:
                worst = Difference(value, name, found[name].shape)
    if worst.value > TOLERANCE[precision]:
        raise MxError(
            f"the {precision} graph differs from the PyTorch model: {worst.output} of shape "
            f"{worst.shape} by {worst.value:.2g}, allowed {TOLERANCE[precision]:g}; not exported"
        )
    return worst


def check_values(
    name: str, found: np.ndarray, wanted: np.ndarray, batch: Feeds, precision: str
) -> None:
    """Shape, type, finite numbers, zeros outside the sentences."""
    problem = ""
    if found.shape != wanted.shape or found.dtype != np.float32:
        problem = f"is {found.dtype} {found.shape} instead of float32 {wanted.shape}"
    elif not np.isfinite(found).all():
        problem = "has values that are not finite"
    elif found[~inside(name, batch)].any():
        problem = "is not zero outside the sentences"
    if problem:
        shapes = ", ".join(f"{key} {list(batch[key].shape)}" for key in INPUTS)
        raise MxError(
            f"the {precision} graph is wrong: {name} {problem} for {shapes}; not exported"
        )


def inside(name: str, batch: Feeds) -> np.ndarray:
    """Where an output may be other than zero."""
    src, tgt = (
        np.arange(batch[side].shape[1]) < batch[f"{side}_lengths"][:, None]
        for side in ("src", "tgt")
    )
    if name == "fwd_null":
        return tgt & (batch["src_lengths"] > 0)[:, None]
    if name == "bwd_null":
        return src & (batch["tgt_lengths"] > 0)[:, None]
    return src[:, :, None] & tgt[:, None, :]

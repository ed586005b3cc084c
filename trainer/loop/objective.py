"""What is minimised: the losses of a micro-batch put together, for each kind of network.

Knows which terms there are and their weights; the terms themselves are in `loss.py`, and when the
weight of the links changes is decided by `train.py`.
"""

from typing import TypeAlias

import torch
from torch import Tensor, nn

from ..config import ModelConfig, TrainConfig
from ..data.batches import Batch
from ..networks import losses as loss
from ..networks.mask_align import MaskAlign, valid
from ..networks.student import Student

Network: TypeAlias = MaskAlign | Student


def make_network(config: ModelConfig) -> Network:
    return Student(config) if config.kind == "student" else MaskAlign(config)


def make_objective(model: Network, config: TrainConfig) -> "Objective | StudentObjective":
    if isinstance(model, Student):
        return StudentObjective(model, config)
    return Objective(model, config)


class Objective(nn.Module):
    """Mask-Align's loss of a micro-batch, as its share of the whole step's loss."""

    terms = ("loss", "nll_fwd", "nll_bwd", "agreement", "entropy", "seeds")

    def __init__(self, model: MaskAlign, config: TrainConfig) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, batch: Batch, totals: loss.Totals, seed_weight: float) -> Tensor:
        """The values of `terms`, (6,); the first is what is minimised."""
        config = self.config
        fwd, bwd = self.model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
        src = valid(batch.src_lengths, batch.src.shape[1])
        tgt = valid(batch.tgt_lengths, batch.tgt.shape[1])
        smoothing = config.label_smoothing
        nll_fwd = loss.prediction(fwd.hidden[tgt], self.model.table(1), batch.tgt[tgt], smoothing)
        nll_bwd = loss.prediction(bwd.hidden[src], self.model.table(0), batch.src[src], smoothing)
        nll_fwd, nll_bwd = nll_fwd / totals.tgt_pieces, nll_bwd / totals.src_pieces
        agreement = loss.agreement(fwd.weights, bwd.weights) / totals.cells
        cells = tgt[:, :, None] & src[:, None, :]
        by_cells = config.entropy_norm == "cells"
        entropy = loss.entropy(fwd.weights, cells, config.entropy_lambda) / (
            totals.cells if by_cells else totals.tgt_pieces
        ) + loss.entropy(bwd.weights, cells.transpose(1, 2), config.entropy_lambda) / (
            totals.cells if by_cells else totals.src_pieces
        )
        seeds = torch.zeros_like(nll_fwd)
        if batch.links is not None:
            links = batch.links
            seeds = loss.seeds(fwd.weights, links) / (2 * totals.tgt_pieces) + loss.seeds(
                bwd.weights, links.transpose(1, 2)
            ) / (2 * totals.src_pieces)
        total = 0.5 * (nll_fwd + nll_bwd) + config.alpha * agreement + config.beta * entropy
        total = total + seed_weight * seeds
        return torch.stack([total, nll_fwd, nll_bwd, agreement, entropy, seeds])


class StudentObjective(nn.Module):
    """The student's: the weight on the teacher's links, on NULL where it has none, agreement."""

    terms = ("loss", "links", "nulls", "agreement")

    def __init__(self, model: Student, config: TrainConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.taught = loss.taught_softly if config.soft_targets else loss.taught

    def forward(self, batch: Batch, totals: loss.Totals, seed_weight: float) -> Tensor:
        """The values of `terms`, (4,); the first is what is minimised."""
        assert batch.links is not None
        fwd, bwd = self.model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
        agreement = loss.agreement(fwd.weights, bwd.weights) / totals.cells
        links = nulls = torch.zeros_like(agreement)
        src_words = self.model.words(batch.src, batch.src_lengths, 0)
        tgt_words = self.model.words(batch.tgt, batch.tgt_lengths, 1)
        for found, wanted, words, pieces in (
            (fwd, batch.links, tgt_words, totals.tgt_pieces),
            (bwd, batch.links.transpose(1, 2), src_words, totals.src_pieces),
        ):
            links = links + self.taught(found.weights, wanted, words) / (2 * pieces)
            nulls = nulls + loss.untaught(found.null, wanted, words) / (2 * pieces)
        total = links + self.config.null_weight * nulls + self.config.alpha * agreement
        return torch.stack([total, links, nulls, agreement])

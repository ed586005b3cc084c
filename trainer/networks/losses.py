"""The losses: Mask-Align's, which is the paper's plus guidance by links, and the student's.

    L = ½ (NLL_fwd + NLL_bwd) + α L_agree + β (L_ent,fwd + L_ent,bwd) + g(step) L_guide

    NLL      -Σ_i log P(y_i | y_≠i, x), with label smoothing
    L_agree  Σ_ij (W_fwd[i,j] - W_bwd[j,i])²
    L_ent    -Σ_ij W̃_ij log W̃_ij,  W̃_ij = (W_ij + λ) / Σ_j (W_ij + λ)
    L_guide  -Σ_i log Σ_j∈links(i) W_ij; not in the paper: links of a teacher, faded out

With `learn_on` posterior, L_agree and L_guide have Q of `posterior.py` in place of W.

The functions sum over a batch. The classes divide by the counts of the whole optimizer step
(`Totals`), so that micro-batches and devices add up to exactly the loss of one large batch.
Shapes: B pairs, S source pieces, T target pieces, N pieces to predict, V vocabulary, D width.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..config import TrainConfig
from ..data.batches import Totals, TrainingBatch
from .mask_align import MaskAlign, valid_places
from .student import Student

CHUNK = 4096  # rows of the vocabulary projection in memory at once: 4096 x 40k x 4 B = 655 MB

# ---- terms ----


class _PredictionLoss(torch.autograd.Function):
    """Cross-entropy of `hidden @ tableᵀ` with smoothing, without keeping the (N, V) logits.

    The gradient with respect to the logits is softmax - target, so it is turned into the gradients
    of `hidden` and `table` while the chunk is in the cache; backward only scales them.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, table: Tensor, targets: Tensor, smoothing: float
    ) -> Tensor:
        kind = hidden.device.type
        work = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        with torch.autocast(kind, enabled=False):
            h_all, e = hidden.to(work), table.to(work)
            d_hidden = torch.empty_like(h_all)
            d_table = torch.zeros_like(table)
            loss = hidden.new_zeros((), dtype=torch.float)
            # Smoothing spreads `smoothing` evenly over V words: its logits average to h · mean(E).
            mean = table.float().mean(0)
            for start in range(0, len(h_all), CHUNK):
                h, y = h_all[start : start + CHUNK], targets[start : start + CHUNK]
                # log softmax by hand, in place: the chunk's logits are the largest array there is.
                logits = (h @ e.T).float()
                picked = logits.gather(1, y[:, None])
                top = logits.amax(1, keepdim=True)
                p = logits.sub_(top).exp_()
                total = p.sum(1, keepdim=True)
                smooth = h.float() @ mean
                loss += (total.log() + top - (1 - smoothing) * picked)[:, 0].sum()
                loss -= smoothing * smooth.sum()
                # From here on p is d loss / d logits: softmax minus the target's share of 1.
                p.div_(total)
                p.scatter_add_(1, y[:, None], p.new_full((len(y), 1), smoothing - 1))
                p = p.to(work)
                d_hidden[start : start + CHUNK] = p @ e
                d_table += p.T @ h
            # The evenly spread share is the same for every row and word: taken off once.
            d_hidden -= (smoothing * mean).to(work)
            d_table -= (smoothing / len(table)) * h_all.float().sum(0)
        ctx.save_for_backward(d_hidden.to(hidden.dtype), d_table)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_hidden, d_table = ctx.saved_tensors
        return d_hidden * grad.to(d_hidden.dtype), d_table * grad, None, None


def prediction_loss(hidden: Tensor, table: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return the summed NLL of `targets` (N,), given `hidden` (N, D) and embeddings (V, D)."""
    return _PredictionLoss.apply(hidden, table, targets, smoothing)


def agreement_loss(fwd: Tensor, bwd: Tensor) -> Tensor:
    """Return the summed squared difference of W_fwd (B, T, S) and W_bwdᵀ, both 0 in the padding."""
    return (fwd - bwd.transpose(1, 2)).square().sum()


def entropy_loss(weights: Tensor, cells: Tensor, lam: float) -> Tensor:
    """Return the summed entropy of the rows of W̃ over the valid `cells` (B, T, S)."""
    lifted = (weights + lam) * cells
    share = lifted / lifted.sum(-1, keepdim=True).clamp(min=1e-9)
    # xlogy is 0 where the share is 0; the clamp keeps its gradient finite there.
    return -torch.special.xlogy(share, share.clamp(min=1e-9)).sum()


def guidance_loss(weights: Tensor, links: Tensor) -> Tensor:
    """Return -Σ log of the weight on links, over rows that have any; links (B, T, S) from 0 up."""
    on_links = (weights * (links > 0)).sum(-1)
    rows = (links > 0).any(-1)
    # A floor as high as 1e-6 bounds the gradient of rows that look elsewhere altogether.
    return -(on_links.clamp(min=1e-6).log() * rows).sum()


def link_loss(weights: Tensor, links: Tensor, words: Tensor) -> Tensor:
    """Return -Σ log of a word's weight on all its links, times the confidence of the surest one.

    `words` (B, T) is true where a word begins; links (B, T, S) are confidences from 0 to 1.
    """
    on_links = (weights * (links > 0)).sum(-1)
    return -(on_links.clamp(min=1e-20).log() * links.amax(-1) * words).sum()


def soft_link_loss(weights: Tensor, links: Tensor, words: Tensor) -> Tensor:
    """Return the cross-entropy with each link's share of its row, instead of their sum."""
    share = links / links.sum(-1, keepdim=True).clamp(min=1e-9)
    logs = weights.clamp(min=1e-20).log()
    return -((share * logs).sum(-1) * links.amax(-1) * words).sum()


def null_loss(null: Tensor, links: Tensor, words: Tensor) -> Tensor:
    """Return -Σ log of the weight on NULL (B, T), over words without any link."""
    rows = words & ~(links > 0).any(-1)
    return -(null.clamp(min=1e-20).log() * rows).sum()


# ---- whole losses ----


class MaskAlignLoss(nn.Module):
    """A micro-batch's share of Mask-Align's loss of the whole step."""

    terms = ("loss", "nll_fwd", "nll_bwd", "agreement", "entropy", "guidance")

    def __init__(self, model: MaskAlign, config: TrainConfig) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, batch: TrainingBatch, totals: Totals, guidance_weight: float) -> Tensor:
        """Return the values of `terms`, (6,); the first is what is minimised."""
        config = self.config
        sides = batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths
        fwd, bwd = self.model(*sides, read=config.learn_on)
        src = valid_places(batch.src_lengths, batch.src.shape[1])
        tgt = valid_places(batch.tgt_lengths, batch.tgt.shape[1])
        smoothing = config.label_smoothing
        nll_fwd = prediction_loss(fwd.hidden[tgt], self.model.table(1), batch.tgt[tgt], smoothing)
        nll_bwd = prediction_loss(bwd.hidden[src], self.model.table(0), batch.src[src], smoothing)
        nll_fwd, nll_bwd = nll_fwd / totals.tgt_pieces, nll_bwd / totals.src_pieces
        agreement = agreement_loss(fwd.weights, bwd.weights) / totals.cells
        cells = tgt[:, :, None] & src[:, None, :]
        entropy_fwd = entropy_loss(fwd.prior, cells, config.entropy_lambda)
        entropy_bwd = entropy_loss(bwd.prior, cells.mT, config.entropy_lambda)
        # The paper averages the entropy over rows, the authors' code over cells.
        by_rows = config.entropy_norm == "rows"
        entropy_fwd = entropy_fwd / (totals.tgt_pieces if by_rows else totals.cells)
        entropy_bwd = entropy_bwd / (totals.src_pieces if by_rows else totals.cells)
        entropy = entropy_fwd + entropy_bwd
        guidance = torch.zeros_like(nll_fwd)
        if batch.links is not None:
            guide_fwd = guidance_loss(fwd.weights, batch.links) / (2 * totals.tgt_pieces)
            guide_bwd = guidance_loss(bwd.weights, batch.links.mT) / (2 * totals.src_pieces)
            guidance = guide_fwd + guide_bwd
        # The paper adds the two NLL, the authors' code halves their sum; so do we.
        total = 0.5 * (nll_fwd + nll_bwd) + config.alpha * agreement + config.beta * entropy
        total = total + guidance_weight * guidance
        return torch.stack([total, nll_fwd, nll_bwd, agreement, entropy, guidance])


class StudentLoss(nn.Module):
    """A micro-batch's share of the student's loss: links, NULL where there is none, agreement."""

    terms = ("loss", "links", "nulls", "agreement")

    def __init__(self, model: Student, config: TrainConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.link_loss = soft_link_loss if config.soft_targets else link_loss

    def forward(self, batch: TrainingBatch, totals: Totals, guidance_weight: float) -> Tensor:
        """Return the values of `terms`, (4,); the first is what is minimised.

        The weight is not used: a student has nothing but the links to learn from.
        """
        assert batch.links is not None
        fwd, bwd = self.model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
        agreement = agreement_loss(fwd.weights, bwd.weights) / totals.cells
        links = nulls = torch.zeros_like(agreement)
        # Only first pieces stand for their word; the others are neither linked nor counted.
        src_words = self.model.word_starts(batch.src, batch.src_lengths, 0)
        tgt_words = self.model.word_starts(batch.tgt, batch.tgt_lengths, 1)
        for found, wanted, words, pieces in (
            (fwd, batch.links, tgt_words, totals.tgt_pieces),
            (bwd, batch.links.transpose(1, 2), src_words, totals.src_pieces),
        ):
            links = links + self.link_loss(found.weights, wanted, words) / (2 * pieces)
            nulls = nulls + null_loss(found.null, wanted, words) / (2 * pieces)
        total = links + self.config.null_weight * nulls + self.config.alpha * agreement
        return torch.stack([total, links, nulls, agreement])


def make_loss(model: MaskAlign | Student, config: TrainConfig) -> MaskAlignLoss | StudentLoss:
    """Return the loss of a network as a module that holds it."""
    if isinstance(model, Student):
        return StudentLoss(model, config)
    return MaskAlignLoss(model, config)

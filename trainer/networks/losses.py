"""The terms of the loss as pure functions of tensors: prediction, agreement, entropy, seed links.

Every term is a sum over the batch, to be divided by the counts of the whole optimizer step, so
that micro-batches and devices add up to exactly the loss of one large batch.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK = 4096  # rows of the vocabulary projection held at once: 4096 x 40k x 4 B = 655 MB


@dataclass(frozen=True)
class Totals:
    """What the sums of a step are divided by."""

    src_pieces: int
    tgt_pieces: int
    cells: int


class _Predict(torch.autograd.Function):
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
                logits = (h @ e.T).float()
                picked = logits.gather(1, y[:, None])
                top = logits.amax(1, keepdim=True)
                p = logits.sub_(top).exp_()
                total = p.sum(1, keepdim=True)
                smooth = h.float() @ mean
                loss += (total.log() + top - (1 - smoothing) * picked)[:, 0].sum()
                loss -= smoothing * smooth.sum()
                p.div_(total)
                p.scatter_add_(1, y[:, None], p.new_full((len(y), 1), smoothing - 1))
                p = p.to(work)
                d_hidden[start : start + CHUNK] = p @ e
                d_table += p.T @ h
            d_hidden -= (smoothing * mean).to(work)
            d_table -= (smoothing / len(table)) * h_all.float().sum(0)
        ctx.save_for_backward(d_hidden.to(hidden.dtype), d_table)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_hidden, d_table = ctx.saved_tensors
        return d_hidden * grad.to(d_hidden.dtype), d_table * grad, None, None


def prediction(hidden: Tensor, table: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Sum over N rows of the smoothed negative log likelihood; hidden (N, D), table (V, D)."""
    return _Predict.apply(hidden, table, targets, smoothing)


def agreement(fwd: Tensor, bwd: Tensor) -> Tensor:
    """Sum of squared differences of fwd (B, T, S) and bwdᵀ; both are zero outside the sentences."""
    return (fwd - bwd.transpose(1, 2)).square().sum()


def entropy(weights: Tensor, cells: Tensor, lam: float) -> Tensor:
    """Sum over rows of the entropy of (W + λ) / Σ(W + λ) over the valid `cells` (B, T, S)."""
    lifted = (weights + lam) * cells
    share = lifted / lifted.sum(-1, keepdim=True).clamp(min=1e-9)
    return -torch.special.xlogy(share, share.clamp(min=1e-9)).sum()


def seeds(weights: Tensor, links: Tensor) -> Tensor:
    """Sum over rows that have links of -log of the weight on them; links (B, T, S) is 0 or more."""
    on_links = (weights * (links > 0)).sum(-1)
    rows = (links > 0).any(-1)
    return -(on_links.clamp(min=1e-6).log() * rows).sum()


def taught(weights: Tensor, links: Tensor, words: Tensor) -> Tensor:
    """The same for rows that are words (B, T), each counting as much as its surest link."""
    on_links = (weights * (links > 0)).sum(-1)
    return -(on_links.clamp(min=1e-20).log() * links.amax(-1) * words).sum()


def taught_softly(weights: Tensor, links: Tensor, words: Tensor) -> Tensor:
    """The same with a target for each link: its share in what the links of its row weigh."""
    share = links / links.sum(-1, keepdim=True).clamp(min=1e-9)
    logs = weights.clamp(min=1e-20).log()
    return -((share * logs).sum(-1) * links.amax(-1) * words).sum()


def untaught(null: Tensor, links: Tensor, words: Tensor) -> Tensor:
    """Sum over words without any link of -log of their weight on NULL (B, T)."""
    rows = words & ~(links > 0).any(-1)
    return -(null.clamp(min=1e-20).log() * rows).sum()

"""How good a model is: prediction accuracy on held-out text, AER on gold pairs.

Knows the model's outputs, not how it is trained.
"""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch

from ...engine.links.scoring import best_threshold, sweep
from ...engine.runtime.reference import pool_words
from ...engine.text.words import Tokenizer
from ..data.batches import Batches, TeacherLinks, cut, evaluation_batches
from ..data.corpus import GoldPairs
from ..data.token_cache import TokenCache
from ..networks.mask_align import MaskAlign, symmetrize, valid
from ..networks.student import Student
from .objective import Network

BUDGET = 8000  # pieces per forward pass
CHUNK = 16384  # pairs whose links are found together
LOWEST = 0.01  # word pairs below this score are no candidates for a link


@dataclass(frozen=True)
class Prediction:
    """Share of pieces predicted right and mean negative log likelihood, both directions."""

    accuracy: float
    nll: float


@torch.inference_mode()
def predict(model: MaskAlign, cache: TokenCache, device: torch.device) -> Prediction:
    correct = pieces = 0
    nll = 0.0
    for batch in evaluation_batches(cache, BUDGET):
        batch = batch.to(device)
        outputs = model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
        sides = ((batch.tgt, batch.tgt_lengths, 1), (batch.src, batch.src_lengths, 0))
        for output, (ids, lengths, side) in zip(outputs, sides, strict=True):
            real = valid(lengths, ids.shape[1])
            logits, wanted = output.hidden[real] @ model.table(side).T, ids[real]
            correct += int((logits.argmax(1) == wanted).sum())
            nll += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
            pieces += len(wanted)
    return Prediction(correct / max(pieces, 1), nll / max(pieces, 1))


@torch.inference_mode()
def follow(
    model: Student, cache: TokenCache, links: TeacherLinks, device: torch.device
) -> Prediction:
    """How often a word's best partner, or NULL, is what the teacher says, both directions."""
    right = words = 0
    nll = 0.0
    for batch in evaluation_batches(cache, BUDGET, links):
        batch = batch.to(device)
        assert batch.links is not None
        fwd, bwd = model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
        for output, wanted, rows in (
            (fwd, batch.links, model.words(batch.tgt, batch.tgt_lengths, 1)),
            (bwd, batch.links.transpose(1, 2), model.words(batch.src, batch.src_lengths, 0)),
        ):
            wanted = torch.cat([~(wanted > 0).any(-1, keepdim=True), wanted > 0], -1)[rows]
            weights = torch.cat([output.null[..., None], output.weights], -1)[rows].float()
            right += int(wanted.gather(1, weights.argmax(1)[:, None]).sum())
            nll -= float((weights * wanted).sum(1).clamp(min=1e-20).log().sum())
            words += len(weights)
    return Prediction(right / max(words, 1), nll / max(words, 1))


@torch.inference_mode()
def word_links(
    model: Network, cache: TokenCache, lowest: float, device: torch.device
) -> Iterator[list[tuple[int, int, float]]]:
    """The links of every cached pair, in order, that score at least `lowest`."""
    for start in range(0, len(cache), CHUNK):
        chunk = np.arange(start, min(start + CHUNK, len(cache)))
        found: list[list[tuple[int, int, float]]] = [[] for _ in chunk]
        reader = Batches(cache, seed=0, budget=lambda step: BUDGET, micro=BUDGET)
        for group in cut(cache.src.lengths(chunk), cache.tgt.lengths(chunk), BUDGET):
            batch = reader.batch(chunk[group]).to(device)
            fwd, bwd = model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
            scores = symmetrize(fwd.weights, bwd.weights)
            row, t, s = (scores >= lowest).nonzero(as_tuple=True)
            values = scores[row, t, s].tolist()
            src, tgt = (side.word_ids_padded(chunk[group]) for side in (cache.src, cache.tgt))
            rows, ts, ss = (places.cpu().numpy() for places in (row, t, s))
            links = zip(group[rows], src[rows, ss], tgt[rows, ts], values, strict=True)
            for k, i, j, value in links:
                found[k].append((int(i), int(j), value))
        yield from (pooled(links) for links in found)


def pooled(links: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Each link once, with the highest of its scores, sorted."""
    best: dict[tuple[int, int], float] = {}
    for i, j, value in links:
        best[i, j] = max(value, best.get((i, j), 0.0))
    return [(i, j, value) for (i, j), value in sorted(best.items())]


@torch.inference_mode()
def word_scores(
    model: Network,
    src: list[list[str]],
    tgt: list[list[str]],
    tokenizers: tuple[Tokenizer, Tokenizer],
    device: torch.device,
    longest: int = sys.maxsize,
) -> Iterator[tuple[int, np.ndarray]]:
    """For each pair, in no particular order, its number and its word scores (source × target).
    Left out: pairs without words on a side or with more pieces than `longest`."""
    encoded = [
        (tokenizers[0].encode(s), tokenizers[1].encode(t)) for s, t in zip(src, tgt, strict=True)
    ]
    counts = ((len(s), len(t)) for (s, _), (t, _) in encoded)
    full = [i for i, size in enumerate(counts) if min(size) and max(size) <= longest]
    lengths = np.array([[len(encoded[i][side][0]) for i in full] for side in (0, 1)]).reshape(2, -1)
    for group in cut(lengths[0], lengths[1], BUDGET) if full else []:
        rows = [full[k] for k in group]
        ids = [pad([encoded[i][side][0] for i in rows]).to(device) for side in (0, 1)]
        sizes = [torch.as_tensor(lengths[side][group], device=device) for side in (0, 1)]
        fwd, bwd = model(ids[0], sizes[0], ids[1], sizes[1])
        for i, scores in zip(rows, symmetrize(fwd.weights, bwd.weights).cpu().numpy(), strict=True):
            (_, src_words), (_, tgt_words) = encoded[i]
            pieces = scores[: len(tgt_words), : len(src_words)].T
            yield i, pool_words(pieces, np.array(src_words), np.array(tgt_words))


def pad(rows: list[list[int]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], batch_first=True)


def align_gold(
    model: Network,
    gold: GoldPairs,
    tokenizers: tuple[Tokenizer, Tokenizer],
    threshold: float,
    device: torch.device,
) -> dict[str, float]:
    """AER, precision and recall at the threshold, and the lowest AER at any threshold."""
    scored: list[list[tuple[int, int, float]]] = [[] for _ in gold.gold]
    for i, scores in word_scores(model, gold.src, gold.tgt, tokenizers, device):
        places = np.argwhere(scores >= LOWEST)
        scored[i] = [(int(s), int(t), float(scores[s, t])) for s, t in places]
    (at,) = sweep(scored, gold.gold, [threshold])
    best, best_score = best_threshold(scored, gold.gold)
    kept = {k: v for k, v in asdict(at).items() if k in ("aer", "precision", "recall")}
    return {**kept, "best_aer": best_score.aer, "best_threshold": best}

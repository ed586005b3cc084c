"""Aligns words with a network of PyTorch: scores of all word pairs, or the links of a token cache.

For validation, teachers and comparisons; exported models are run by the engine instead.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from ...engine.runtime.reference import pool_words
from ...engine.text.pieces import PieceTokenizer
from ...engine.types import ScoredLink
from ..data.batches import group_by_length
from ..data.token_cache import TokenCache
from .mask_align import harmonic_mean
from .weights import Network

BUDGET = 8000  # pieces per forward pass
CHUNK = 16384  # pairs whose links are found together

Pieces = tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]  # ids, the word of each
PairScores = tuple[int, np.ndarray]  # the number of a pair, scores (source words, target words)


def word_links(
    model: Network, cache: TokenCache, lowest: float, device: torch.device
) -> Iterator[list[ScoredLink]]:
    """Yield the links of every cached pair, in order, that score at least `lowest`."""
    for start in range(0, len(cache), CHUNK):
        chunk = range(start, min(start + CHUNK, len(cache)))
        src, tgt = ([(s.pieces(i), s.words(i)) for i in chunk] for s in (cache.src, cache.tgt))
        yield from select_links(score_pieces(model, src, tgt, device), len(chunk), lowest)


def select_links(scored: Iterable[PairScores], n: int, lowest: float) -> list[list[ScoredLink]]:
    """Return the links of n pairs that score at least `lowest`; none of pairs without scores."""
    found: list[list[ScoredLink]] = [[] for _ in range(n)]
    for k, scores in scored:
        places = np.argwhere(scores >= lowest).tolist()
        found[k] = [(i, j, float(scores[i, j])) for i, j in places]
    return found


def word_scores(
    model: Network,
    src: list[list[str]],
    tgt: list[list[str]],
    tokenizers: tuple[PieceTokenizer, PieceTokenizer],
    device: torch.device,
) -> Iterator[PairScores]:
    """Yield the scores of each pair that has words on both sides, in any order."""
    src_pieces = [tokenizers[0].encode(words) for words in src]
    tgt_pieces = [tokenizers[1].encode(words) for words in tgt]
    return score_pieces(model, src_pieces, tgt_pieces, device)


@torch.inference_mode()
def score_pieces(
    model: Network,
    src: Sequence[Pieces],
    tgt: Sequence[Pieces],
    device: torch.device,
    longest: int = sys.maxsize,
) -> Iterator[PairScores]:
    """Yield the scores of each tokenised pair, in any order.

    Skips pairs with an empty side or with more pieces than `longest`.
    """
    sizes = np.array([[len(ids) for ids, _ in side] for side in (src, tgt)]).reshape(2, -1)
    full = np.flatnonzero((sizes.min(0) > 0) & (sizes.max(0) <= longest))
    # Pairs of similar length together: hence the order in which they come out.
    for group in group_by_length(sizes[0, full], sizes[1, full], BUDGET) if len(full) else []:
        rows = full[group]
        batch = []
        for side, lengths in zip((src, tgt), sizes, strict=True):
            ids = [torch.as_tensor(side[i][0]) for i in rows]
            batch += [pad_sequence(ids, batch_first=True), torch.as_tensor(lengths[rows])]
        fwd, bwd = model(*(part.to(device) for part in batch))
        both = harmonic_mean(fwd.weights, bwd.weights).cpu().numpy()
        for i, scores in zip(rows.tolist(), both, strict=True):
            src_words, tgt_words = np.asarray(src[i][1]), np.asarray(tgt[i][1])
            pieces = scores[: len(tgt_words), : len(src_words)].T
            yield i, pool_words(pieces, src_words, tgt_words)

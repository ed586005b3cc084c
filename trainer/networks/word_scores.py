"""Aligns words with a network of PyTorch: scores of all word pairs, or the links of a token cache.

For validation, teachers and comparisons; exported models are run by the engine instead.
"""

import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from ...engine.runtime.reference import pool_words
from ...engine.text.pieces import PieceTokenizer
from ...engine.types import ScoredLink
from ..data.batches import group_by_length, make_batch
from ..data.token_cache import TokenCache
from .mask_align import harmonic_mean
from .weights import Network

BUDGET = 8000  # pieces per forward pass
CHUNK = 16384  # pairs whose links are found together


@torch.inference_mode()
def word_links(
    model: Network, cache: TokenCache, lowest: float, device: torch.device
) -> Iterator[list[ScoredLink]]:
    """Yield the links of every cached pair, in order, that score at least `lowest`."""
    for start in range(0, len(cache), CHUNK):
        chunk = np.arange(start, min(start + CHUNK, len(cache)))
        # A word pair scores what the best of its piece pairs scores.
        best: list[dict[tuple[int, int], float]] = [{} for _ in chunk]
        for group in group_by_length(cache.src.lengths(chunk), cache.tgt.lengths(chunk), BUDGET):
            batch = make_batch(cache, chunk[group]).to(device)
            fwd, bwd = model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
            scores = harmonic_mean(fwd.weights, bwd.weights)
            places = (scores >= lowest).nonzero(as_tuple=True)
            values = scores[places].tolist()
            row, t, s = (place.cpu().numpy() for place in places)
            src, tgt = (side.padded_words(chunk[group]) for side in (cache.src, cache.tgt))
            links = zip(group[row], src[row, s].tolist(), tgt[row, t].tolist(), values, strict=True)
            for k, i, j, value in links:
                best[k][i, j] = max(value, best[k].get((i, j), 0.0))
        yield from ([(i, j, v) for (i, j), v in sorted(found.items())] for found in best)


@torch.inference_mode()
def word_scores(
    model: Network,
    src: list[list[str]],
    tgt: list[list[str]],
    tokenizers: tuple[PieceTokenizer, PieceTokenizer],
    device: torch.device,
    longest: int = sys.maxsize,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of each pair and its scores (source words, target words), in any order.

    Skips pairs without words on a side or with more pieces than `longest`.
    """
    encoded = [
        (tokenizers[0].encode(s), tokenizers[1].encode(t)) for s, t in zip(src, tgt, strict=True)
    ]
    counts = ((len(s), len(t)) for (s, _), (t, _) in encoded)
    full = [i for i, size in enumerate(counts) if min(size) and max(size) <= longest]
    lengths = np.array([[len(encoded[i][side][0]) for i in full] for side in (0, 1)]).reshape(2, -1)
    # Pairs of similar length together: hence the order in which they come out.
    for group in group_by_length(lengths[0], lengths[1], BUDGET) if full else []:
        rows = [full[k] for k in group]
        ids = [
            pad_sequence([torch.tensor(encoded[i][side][0]) for i in rows], batch_first=True)
            for side in (0, 1)
        ]
        sizes = [torch.as_tensor(lengths[side][group], device=device) for side in (0, 1)]
        fwd, bwd = model(ids[0].to(device), sizes[0], ids[1].to(device), sizes[1])
        both = harmonic_mean(fwd.weights, bwd.weights).cpu().numpy()
        for i, scores in zip(rows, both, strict=True):
            (_, src_words), (_, tgt_words) = encoded[i]
            pieces = scores[: len(tgt_words), : len(src_words)].T
            yield i, pool_words(pieces, np.array(src_words), np.array(tgt_words))

"""Makes first embeddings from links: pieces that translate each other start out close together.

A random vector per piece, plus the mean of its translations' random vectors. The network then need
not discover the dictionary before it can use it.
"""

import numpy as np

from ..data.teacher_links import TeacherLinks
from ..data.token_cache import TokenCache

SAMPLE = 300_000  # pairs looked at: enough for every piece of a 40k vocabulary
CHUNK = 2048  # pairs whose links are counted together


def count_translations(
    cache: TokenCache, links: TeacherLinks, src_vocab: int, total: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return linked pieces as (piece, piece, share); the shares of one piece add up to 1.

    With separate vocabularies (`total` > `src_vocab`) target pieces count on from the source's.
    """
    offset = src_vocab if total > src_vocab else 0
    keys: np.ndarray = np.zeros(0, np.int64)
    weights: np.ndarray = np.zeros(0)
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    chosen = np.arange(0, len(cache), max(1, len(cache) // SAMPLE))
    # Pairs of one length together: a long one would fill its whole chunk with padding.
    longest = np.maximum(cache.src.lengths(chosen), cache.tgt.lengths(chosen))
    chosen = chosen[np.argsort(longest, kind="stable")]
    for start in range(0, len(chosen), CHUNK):
        indices = chosen[start : start + CHUNK]
        cells = links.cells(cache, indices) > 0  # (B, T, S)
        pair, t, s = np.nonzero(cells)
        # A word of many pieces counts as much as a word of one.
        weight = 1.0 / (cells.sum(1)[pair, s] * cells.sum(2)[pair, t])
        src = cache.src.padded_pieces(indices)[0][pair, s]
        tgt = cache.tgt.padded_pieces(indices)[0][pair, t] + offset
        # A pair of pieces is one number, piece · V + piece, in both orders.
        new = np.concatenate([src * total + tgt, tgt * total + src])
        waiting.append((new, np.concatenate([weight, weight])))
        # Adding up sorts all that is known, so it waits until as much is new, or the end.
        if sum(len(part) for part, _ in waiting) > len(keys) or start + CHUNK >= len(chosen):
            parts = zip((keys, weights), *waiting, strict=True)
            every, amounts = (np.concatenate(part) for part in parts)
            keys, place = np.unique(every, return_inverse=True)
            weights, waiting = np.bincount(place, amounts, len(keys)), []
    rows, columns = np.divmod(keys, total)
    return rows, columns, weights / np.bincount(rows, weights, total)[rows]


def lexicon_embeddings(
    cache: TokenCache, links: TeacherLinks, src_vocab: int, tgt_vocab: int, width: int, seed: int
) -> np.ndarray:
    """Return unit vectors (V, D); V is the joint vocabulary, or (tgt_vocab > 0) both in turn."""
    total = src_vocab + tgt_vocab
    rows, columns, shares = count_translations(cache, links, src_vocab, total)
    own = np.random.default_rng([seed, 2]).normal(size=(total, width)).astype(np.float32)
    vectors = own.copy()
    # vector = own + Σ share · translation's own, for the rows of one part at a time.
    for start in range(0, len(rows), 1 << 18):  # a few hundred MB at a time
        part = slice(start, start + (1 << 18))
        moved = own[columns[part]] * shares[part, None].astype(np.float32)
        # Keys are sorted, so equal rows lie together.
        first = np.flatnonzero(np.diff(rows[part], prepend=-1))
        vectors[rows[part][first]] += np.add.reduceat(moved, first, axis=0)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

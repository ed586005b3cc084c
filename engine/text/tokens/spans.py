"""Join words and tokens by the characters they share, and carry links from the one to the other.

An aligner works on words; the user has tokens. Both are spans of the plain text of a line, so a
link between two words is a link between all tokens that have characters of them. Does not know how
tokens are written (`schemes`), nor how words are found (`tokenizer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from ...types import Floats, IntArray, Links, Pairs, SideTokens, Span, Words

# ---- spans ----


def find_spans(words: Words, text: str, start: int = 0) -> list[Span]:
    """Return where words stand that occur in the text one after the other."""
    spans = []
    for word in words:
        start = text.index(word, start)
        spans.append((start, start + len(word)))
        start += len(word)
    return spans


def trim_span(text: str, start: int, end: int) -> Span:
    """Return the span without the blanks at its ends; of nothing but blanks, its end."""
    part = text[start:end]
    if not part or part.isspace():
        return end, end
    return end - len(part.lstrip()), start + len(part.rstrip())


def join_spans(
    texts: Sequence[str], words: Sequence[Sequence[Span]], tokens: Sequence[Sequence[Span]]
) -> tuple[IntArray, IntArray]:
    """Return for each word of all lines the first token that it shares characters with, and the
    token after the last, both counted in their line.

    Spans of a line never go back. All lines are laid end to end, so that one search does for all:

        words  (0, 5) (5, 6)       starts 0 5    ends 5 6
        tokens (0, 3) (3, 6)       ends   3 6    starts 0 3    ->   first 0 1, end 2 2
    """
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    bases = np.cumsum(sizes + 1) - sizes - 1
    word_starts, word_ends, _ = _flatten_spans(words, bases)
    token_starts, token_ends, n_tokens = _flatten_spans(tokens, bases)
    n_words = np.fromiter(map(len, words), np.int64, len(words))
    before = np.repeat(np.cumsum(n_tokens) - n_tokens, n_words)
    first = np.searchsorted(token_ends, word_starts, side="right") - before
    end = np.searchsorted(token_starts, word_ends, side="left") - before
    # A word on no token at all, as when a model dropped its characters, gets an empty range.
    return first, np.maximum(end, first)


def _flatten_spans(
    lines: Sequence[Sequence[Span]], bases: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return starts, ends, and the number of spans of each line."""
    counts = np.fromiter(map(len, lines), np.int64, len(lines))
    total = int(counts.sum())
    flat = np.fromiter(chain.from_iterable(chain.from_iterable(lines)), np.int64, 2 * total)
    both = flat.reshape(-1, 2) + np.repeat(bases, counts)[:, None]
    return both[:, 0], both[:, 1], counts


# ---- links ----


def spread_links(pairs: Pairs, links: Links) -> tuple[Pairs, Links]:
    """Return pairs of the user's tokens instead of words, and the links between them.

    Two tokens are linked if any of their words are, with the highest score of these links.
    """
    sides = (pairs.src, pairs.src_tokens), (pairs.tgt, pairs.tgt_tokens)
    if all(tokens is None or tokens.first is None for _, tokens in sides):
        return pairs, links
    n_pairs = len(links.offsets) - 1
    pair = np.repeat(np.arange(n_pairs), np.diff(links.offsets))
    (src_first, src_end), (tgt_first, tgt_end) = (
        _find_ranges(pair, place, words, tokens)
        for place, (words, tokens) in zip((links.src, links.tgt), sides, strict=True)
    )
    # A link between words on 2 and 3 tokens becomes 6: row-wise 0 1 2 3 4 5, so that dividing by 3
    # gives the source token and the rest the target token.
    width = tgt_end - tgt_first
    counts = (src_end - src_first) * width
    of = np.repeat(np.arange(len(pair)), counts)
    inner = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    across = np.maximum(width, 1)[of]
    src, tgt = src_first[of] + inner // across, tgt_first[of] + inner % across
    order = np.lexsort((tgt, src, pair[of]))
    pair, src, tgt, of = pair[of][order], src[order], tgt[order], of[order]
    fresh = np.ones(len(pair), bool)
    fresh[1:] = (np.diff(pair) != 0) | (np.diff(src) != 0) | (np.diff(tgt) != 0)
    starts = np.flatnonzero(fresh)
    score, sure = links.score[of], links.sure[of]
    if len(starts) < len(pair):
        score, sure = np.maximum.reduceat(score, starts), np.logical_or.reduceat(sure, starts)
    spread = Links(
        np.searchsorted(pair[starts], np.arange(n_pairs + 1)),
        src[starts],
        tgt[starts],
        score,
        sure,
        _spread_nulls(links.src_null, *sides[0]),
        _spread_nulls(links.tgt_null, *sides[1]),
    )
    src_tokens, tgt_tokens = (words if side is None else side.tokens for words, side in sides)
    return replace(pairs, src=src_tokens, tgt=tgt_tokens), spread


def _find_ranges(
    pair: IntArray, place: IntArray, words: Sequence[Words], side: SideTokens | None
) -> tuple[IntArray, IntArray]:
    """Return the tokens of the words of some links, as ranges."""
    if side is None or side.first is None or side.end is None:
        return place, place + 1
    n_words = np.fromiter(map(len, words), np.int64, len(words))
    word = (np.cumsum(n_words) - n_words)[pair] + place
    return side.first[word], side.end[word]


def _spread_nulls(
    nulls: Floats | None, words: Sequence[Words], side: SideTokens | None
) -> Floats | None:
    """Return for each token the chance of having no partner: the least of its words' chances.

    A token without words has none for sure.
    """
    if nulls is None or side is None or side.first is None or side.end is None:
        return nulls
    n_words = np.fromiter(map(len, words), np.int64, len(words))
    n_tokens = np.fromiter(map(len, side.tokens), np.int64, len(side.tokens))
    counts = side.end - side.first
    before = np.repeat(np.cumsum(n_tokens) - n_tokens, n_words)
    inner = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    found: npt.NDArray[np.float32] = np.ones(int(n_tokens.sum()), np.float32)
    np.minimum.at(found, np.repeat(before + side.first, counts) + inner, np.repeat(nulls, counts))
    return found

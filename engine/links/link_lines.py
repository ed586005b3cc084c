"""Lines of links: Pharaoh `i-j`, scored `i-j:0.93`, talp with `ipj` or `i?j` for possible links.

Inside the program indices are 0-based and the source comes first, whatever the line had. Does not
open files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..errors import InputError
from ..text.words import split_words
from ..types import Link, ScoredLink

NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# Indices are bounded in length, so that a stray number is a clear error and not a huge integer.
# A link may carry scores after colons; only the first one is read.
_TOKEN = re.compile(rf"([0-9]{{1,7}})([-p?])([0-9]{{1,7}})(?::({NUMBER})(?::{NUMBER})*)?")


@dataclass(frozen=True)
class Gold:
    """Gold links of one sentence pair; `sure` is always a part of `possible`."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        if not self.sure <= self.possible:
            object.__setattr__(self, "possible", self.possible | self.sure)

    def swap_sides(self) -> Gold:
        """Return the links with source and target exchanged."""
        return Gold(
            frozenset((j, i) for i, j in self.sure), frozenset((j, i) for i, j in self.possible)
        )


EMPTY_GOLD = Gold(frozenset(), frozenset())


# ---- reading ----


def parse_links(line: str, one_based: bool = False, where: str = "link line") -> list[Link]:
    """Return the links of a line, sorted, each once; scores and marks of possible links go."""
    return sorted({(token.i, token.j) for token in _parse_tokens(line, one_based, where)})


def parse_scored_links(
    line: str, one_based: bool = False, where: str = "link line"
) -> list[ScoredLink]:
    """Return the links of a line with their scores, sorted.

    A link without a score has 1.0, one given twice its highest.
    """
    best: dict[Link, float] = {}
    for i, j, _, score in _parse_tokens(line, one_based, where):
        best[i, j] = max(score, best.get((i, j), score))
    return [(i, j, score) for (i, j), score in sorted(best.items())]


def parse_gold(line: str, one_based: bool = False, where: str = "link line") -> Gold:
    """Return the gold links of a line; a link given both as sure and as possible is sure."""
    tokens = list(_parse_tokens(line, one_based, where))
    return Gold(
        frozenset((token.i, token.j) for token in tokens if token.sure),
        frozenset((token.i, token.j) for token in tokens),
    )


class _Token(NamedTuple):
    i: int
    j: int
    sure: bool
    score: float


def _parse_tokens(line: str, one_based: bool, where: str) -> Iterator[_Token]:
    for word in split_words(line.rstrip("\r")):
        token = _parse_token(word)
        if token is None:
            raise InputError(
                f"{where}: {quote_text(word)} is not a link; "
                "wanted i-j (sure), ipj or i?j (possible), like 0-0 1p2"
            )
        if one_based:
            if not (token.i and token.j):
                raise InputError(
                    f"{where}: {quote_text(word)} has index 0, but the links were said to start "
                    "at 1; read the file as 0-based"
                )
            token = token._replace(i=token.i - 1, j=token.j - 1)
        yield token


@lru_cache(1 << 16)  # a corpus repeats the same few thousand links
def _parse_token(word: str) -> _Token | None:
    found = _TOKEN.fullmatch(word)
    if found is None:
        return None
    i, mark, j, score = found.groups()
    return _Token(int(i), int(j), mark == "-", 1.0 if score is None else float(score))


def quote_text(text: str) -> str:
    """Return text as an error shows it: in quotes, and not too much of it."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


# ---- writing ----


def format_links(links: Iterable[Link]) -> str:
    """Return `0-0 1-2` in the order given, without a line end."""
    return " ".join(f"{i}-{j}" for i, j in links)


def format_scored_links(links: Iterable[ScoredLink]) -> str:
    """Return `0-0:0.9312 1-2:0.5000` in the order given, without a line end."""
    return " ".join(f"{i}-{j}:{score:.4f}" for i, j, score in links)

"""Reads links: Pharaoh `i-j`, scored `i-j:0.9`, talp with `ipj` or `i?j` if possible, NAACL.

Inside the program indices are 0-based and the source comes first, whatever the file had. Does not
count or score links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import tee, zip_longest
from typing import NamedTuple

from ..errors import InputError, MxError
from ..text.files import read_lines
from ..text.words import split_words
from ..types import Link, ScoredLink

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# Indices are bounded in length, so that a stray number is a clear error and not a huge integer.
# A link may carry scores after colons; only the first one is read.
_TOKEN = re.compile(rf"([0-9]{{1,7}})([-p?])([0-9]{{1,7}})(?::({_NUMBER})(?::{_NUMBER})*)?")
_MAX_NAACL = 10_000_000  # sentences: those that are not named count, too
_NAACL = re.compile(
    rf"([0-9]{{1,7}}) ([0-9]{{1,7}}) ([0-9]{{1,7}})(?: ([SPsp]))?(?: {_NUMBER})?", re.ASCII
)


@dataclass(frozen=True)
class Gold:
    """Gold links of one sentence pair; `sure` is always a part of `possible`."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    def __post_init__(self) -> None:
        if not self.sure <= self.possible:
            object.__setattr__(self, "possible", self.possible | self.sure)


EMPTY_GOLD = Gold(frozenset(), frozenset())


# ---- one sentence pair ----


class _Token(NamedTuple):
    i: int
    j: int
    sure: bool
    score: float


@dataclass(frozen=True)
class LinkRow:
    """What a file says about one sentence pair. `scored` if it says how good the links are."""

    tokens: list[_Token]
    scored: bool = False

    @cached_property
    def links(self) -> list[ScoredLink]:
        """The links, sorted; one without a score has 1.0, one given twice its highest."""
        best: dict[Link, float] = {}
        for i, j, _, score in self.tokens:
            best[i, j] = max(score, best.get((i, j), score))
        return [(i, j, score) for (i, j), score in sorted(best.items())]

    @property
    def gold(self) -> Gold:
        """The links as gold; one given both as sure and as possible is sure."""
        return Gold(
            frozenset((token.i, token.j) for token in self.tokens if token.sure),
            frozenset((token.i, token.j) for token in self.tokens),
        )

    def check_bounds(self, n_src: int, n_tgt: int, where: str) -> None:
        """Fail if a link lies outside a pair of so many words."""
        for i, j, _ in self.links:
            if i >= n_src or j >= n_tgt:
                raise InputError(
                    f"{where}: link {i}-{j} (counted from 0) lies outside the pair, which "
                    f"has {n_src} and {n_tgt} words; is it of other text, one-based, or reversed?"
                )


def parse_links(line: str, one_based: bool = False, where: str = "link line") -> LinkRow:
    """Return what a line of links says; errors name the place `where` it stands."""
    tokens = []
    for word in split_words(line.rstrip("\r")):
        token = _parse_token(word)
        if token is None:
            raise InputError(
                f"{where}: {_quote_text(word)} is not a link; "
                "wanted i-j (sure), ipj or i?j (possible), like 0-0 1p2"
            )
        if one_based:
            if not (token.i and token.j):
                raise InputError(
                    f"{where}: {_quote_text(word)} has index 0, but the links were said to start "
                    "at 1; read the file as 0-based"
                )
            token = token._replace(i=token.i - 1, j=token.j - 1)
        tokens.append(token)
    return LinkRow(tokens, ":" in line)


@lru_cache(1 << 16)  # a corpus repeats the same few thousand links
def _parse_token(word: str) -> _Token | None:
    found = _TOKEN.fullmatch(word)
    if found is None:
        return None
    i, mark, j, score = found.groups()
    return _Token(int(i), int(j), mark == "-", 1.0 if score is None else float(score))


def _quote_text(text: str) -> str:
    """Return text as an error shows it: in quotes, and not too much of it."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


# ---- files ----


@dataclass(frozen=True)
class LinkSource:
    """A file of links, and how to read it. NAACL files are 1-based by definition."""

    path: str
    one_based: bool = False
    reverse: bool = False  # the target comes first
    scores: str | None = None  # a file with a number for each link, in the order of the line
    format: str = "auto"  # or talp, naacl

    @property
    def name(self) -> str:
        """What errors call the file."""
        return "standard input" if self.path == "-" else self.path

    def open_rows(self) -> tuple[str, Iterator[LinkRow]]:
        """Return the format, and the sentence pairs, which are read while they are needed."""
        # Standard input is read only once. `head` ends with this call: nothing is kept for it.
        lines, head = tee(read_lines(self.path))
        format = detect_format(head) if self.format == "auto" else self.format
        if format == "naacl":
            if self.scores:
                raise MxError(f"{self.name} is a NAACL file, whose lines --scores does not know")
            rows = _parse_naacl(lines, self.name)
        else:
            if self.scores:
                lines = _join_scores(lines, self.name, self.scores)
            rows = (
                parse_links(line, self.one_based, f"{self.name} line {number}")
                for number, line in enumerate(lines, 1)
            )
        if self.reverse:
            rows = (
                LinkRow([token._replace(i=token.j, j=token.i) for token in row.tokens], row.scored)
                for row in rows
            )
        return format, rows

    def select_rows(
        self, sizes: dict[int, tuple[int, int]], total: int, text: str
    ) -> list[LinkRow]:
        """Return the rows of the pairs whose words are counted in `sizes`, in that order.

        `text` has `total` pairs, and so must the file; but a NAACL file may end early, as it names
        only pairs with links.
        """
        kept = {number: LinkRow([]) for number in sizes}
        count = 0
        format, rows = self.open_rows()
        for count, row in enumerate(rows, 1):
            if count in sizes:
                row.check_bounds(*sizes[count], f"{self.path} line {count}")
                kept[count] = row
        if count > total or (count < total and format != "naacl"):
            raise uneven_files_error(self.path, count, total, text)
        return list(kept.values())


@dataclass(frozen=True)
class LinkFile:
    """All links of a file, one Gold per sentence pair. A NAACL file only names the pairs that have
    links, so its length may be too short: see `fit_length`."""

    name: str
    format: str
    sentences: list[Gold]

    def all_links(self) -> list[list[Link]]:
        """Return the links of each sentence, sorted, possible ones too: a system's output."""
        return [sorted(sentence.possible) for sentence in self.sentences]

    def fit_length(self, length: int, other: str) -> LinkFile:
        """Return the file with one entry for each of the `length` sentences that `other` has."""
        found = len(self.sentences)
        naacl = self.format == "naacl"
        if found == length or (naacl and found < length):
            more = [EMPTY_GOLD] * (length - found)
            return LinkFile(self.name, self.format, self.sentences + more)
        raise InputError(
            f"{self.name} {f'names sentence {found}' if naacl else f'has {found} lines'}, "
            f"but {other} has {length} sentences; "
            "both must hold the same sentence pairs in the same order"
        )


def read_link_file(
    path: str, format: str = "auto", one_based: bool = False, reverse: bool = False
) -> LinkFile:
    """Read links or gold links; the arguments are those of `LinkSource`."""
    source = LinkSource(path, one_based, reverse, format=format)
    format, rows = source.open_rows()
    return LinkFile(source.name, format, [row.gold for row in rows])


def detect_format(lines: Iterable[str]) -> str:
    """Return naacl if the first line with words begins with three bare numbers, else talp."""
    for line in lines:
        if words := split_words(line.rstrip("\r")):
            numbers = [word for word in words[:3] if re.fullmatch("[0-9]+", word)]
            return "naacl" if len(numbers) == 3 else "talp"
    return "talp"


def _parse_naacl(lines: Iterable[str], name: str) -> Iterator[LinkRow]:
    """Yield sentences 1, 2, ... up to the highest number in the lines."""
    tokens: dict[int, list[_Token]] = {}
    for number, line in enumerate(lines, 1):
        if not (words := split_words(line.rstrip("\r"))):
            continue
        fields = _NAACL.fullmatch(" ".join(words))
        if fields is None or not int(fields[1]):
            raise InputError(
                f"{name} line {number}: {_quote_text(line)} is not a NAACL link; wanted "
                "sentence, source and target position, all from 1, then S or P, like 0001 3 4 S"
            )
        sentence, i, j = int(fields[1]), int(fields[2]), int(fields[3])
        if not i and not j:
            raise InputError(
                f"{name} line {number}: {_quote_text(line)} links position 0 to position 0; "
                "NAACL positions start at 1 (0 is NULL): is the file 0-based?"
            )
        if sentence > _MAX_NAACL:
            raise InputError(
                f"{name} line {number}: sentence {sentence:,} is beyond {_MAX_NAACL:,}, the last "
                "one that is read; is it a NAACL file?"
            )
        found = tokens.setdefault(sentence, [])
        # Position 0 is NULL: such a line says that a word has no link, so it adds none.
        if i and j:
            found.append(_Token(i - 1, j - 1, fields[4] not in ("P", "p"), 1.0))
    for sentence in range(1, max(tokens, default=0) + 1):
        yield LinkRow(tokens.get(sentence, []))


def _join_scores(lines: Iterable[str], name: str, scores: str) -> Iterator[str]:
    """Yield lines of links with their scores after colons.

    `0-0 1-2` and `.9 .4` give `0-0:.9 1-2:.4`; a score that a link already has gives way.
    """
    for number, (line, values) in enumerate(zip_longest(lines, read_lines(scores)), 1):
        if line is None or values is None:
            ended = number if line is None else number - 1
            raise uneven_files_error(scores, ended, number - 1, name)
        links, numbers = split_words(line.rstrip("\r")), split_words(values.rstrip("\r"))
        if len(links) != len(numbers):
            raise InputError(
                f"{scores} line {number} has {len(numbers)} scores, but {name} has {len(links)} "
                "links there; are they of the same run?"
            )
        if wrong := [value for value in numbers if not re.fullmatch(r"[0-9.eE+-]+", value)]:
            raise InputError(f"{scores} line {number}: {wrong[0][:40]!r} is not a score")
        both = zip(links, numbers, strict=True)
        yield " ".join(f"{link.partition(':')[0]}:{value}" for link, value in both)


def uneven_files_error(path: str, found: int, wanted: int, text: str) -> InputError:
    """Return an error about a file with `found` lines where `text` has `wanted`."""
    problem = f"ends after {found:,} lines, but {text} goes on"
    if found > wanted:
        problem = f"has {found:,} lines or more, but {text} has {wanted:,}"
    return InputError(f"{path} {problem}; both must hold the same sentence pairs in the same order")

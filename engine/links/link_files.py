"""Link lines as strings: Pharaoh `i-j`, talp (`i-j` sure, `ipj` / `i?j` possible), NAACL.
Opening files is files.py's work, counting and scoring score.py's.

Inside the program indices are 0-based and the source comes first, whatever the file had."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..errors import InputError
from ..types import Link, ScoredLink

FORMATS = ("auto", "talp", "naacl")

# Indices are bounded in length, so that a stray number is a clear error and not a huge integer.
# A link may carry scores after colons; only the first one is read.
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_TOKEN = re.compile(rf"([0-9]{{1,7}})([-p?])([0-9]{{1,7}})(?::({_NUMBER})(?::{_NUMBER})*)?")
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

    def swapped(self) -> Gold:
        """The same links seen from the other language."""
        return Gold(
            frozenset((j, i) for i, j in self.sure), frozenset((j, i) for i, j in self.possible)
        )


EMPTY = Gold(frozenset(), frozenset())


# ---- reading one line ----


class _Token(NamedTuple):
    i: int
    j: int
    sure: bool
    score: float


def _words(line: str) -> list[str]:
    """What stands between spaces or tabs; a carriage return at the end of the line is no word."""
    return [word for word in line.rstrip("\r").replace("\t", " ").split(" ") if word]


@lru_cache(1 << 16)  # a corpus repeats the same few thousand links
def _token(word: str) -> _Token | None:
    found = _TOKEN.fullmatch(word)
    if found is None:
        return None
    i, mark, j, score = found.groups()
    return _Token(int(i), int(j), mark == "-", 1.0 if score is None else float(score))


def _tokens(line: str, one_based: bool, where: str) -> Iterator[_Token]:
    for word in _words(line):
        token = _token(word)
        if token is None:
            raise InputError(
                f"{where}: {_shown(word)} is not a link; "
                "wanted i-j (sure), ipj or i?j (possible), like 0-0 1p2"
            )
        if one_based:
            if not (token.i and token.j):
                raise InputError(
                    f"{where}: {_shown(word)} has index 0, but the links were said to start at 1; "
                    "read the file as 0-based"
                )
            token = token._replace(i=token.i - 1, j=token.j - 1)
        yield token


def _shown(word: str) -> str:
    return repr(word if len(word) <= 40 else word[:37] + "...")


def parse_talp(line: str, one_based: bool = False, where: str = "link line") -> Gold:
    """Gold links of a line; a link given both as sure and as possible is sure."""
    tokens = list(_tokens(line, one_based, where))
    return Gold(
        frozenset((token.i, token.j) for token in tokens if token.sure),
        frozenset((token.i, token.j) for token in tokens),
    )


def parse_pharaoh(line: str, one_based: bool = False, where: str = "link line") -> list[Link]:
    """Links of a line, sorted, each once; scores and the marks of possible links are ignored."""
    return sorted({(token.i, token.j) for token in _tokens(line, one_based, where)})


def parse_scored(line: str, one_based: bool = False, where: str = "link line") -> list[ScoredLink]:
    """Links of a line with their scores (`0-0:0.93`), sorted; a link without a score has 1.0,
    one given twice its highest."""
    best: dict[Link, float] = {}
    for i, j, _, score in _tokens(line, one_based, where):
        best[i, j] = max(score, best.get((i, j), score))
    return [(i, j, score) for (i, j), score in sorted(best.items())]


# ---- reading whole files ----


@dataclass(frozen=True)
class LinkFile:
    """A file's links, one Gold per sentence pair. A NAACL file only names the pairs that have
    links, so its length may be too short: see `fit`."""

    name: str
    format: str
    sentences: list[Gold]

    def links(self) -> list[list[Link]]:
        """Every link of each sentence, sorted: the file read as a system's output."""
        return [sorted(sentence.possible) for sentence in self.sentences]

    def fit(self, length: int, other: str) -> LinkFile:
        """The same file with one entry for each of the `length` sentences that `other` has."""
        found = len(self.sentences)
        if found == length:
            return self
        if self.format == "naacl" and found < length:
            return LinkFile(self.name, self.format, self.sentences + [EMPTY] * (length - found))
        naacl = self.format == "naacl"
        raise InputError(
            f"{self.name} {f'names sentence {found}' if naacl else f'has {found} lines'}, "
            f"but {other} has {length} sentences; "
            "both must hold the same sentence pairs in the same order"
        )


def read_links(
    path: str, format: str = "auto", one_based: bool = False, reverse: bool = False
) -> LinkFile:
    """Links or gold links of a file in any of FORMATS; `reverse` says that its target side
    comes first. NAACL files are 1-based by definition."""
    from ..text.files import read_lines

    name = "standard input" if path == "-" else path
    return parse_file(list(read_lines(path)), name, format, one_based, reverse)


def parse_file(
    lines: Sequence[str],
    name: str,
    format: str = "auto",
    one_based: bool = False,
    reverse: bool = False,
) -> LinkFile:
    """What `read_links` gives, from lines already read."""
    if format == "auto":
        format = detect(lines)
    if format == "naacl":
        sentences = _parse_naacl(lines, name)
    else:
        sentences = [
            parse_talp(line, one_based, f"{name} line {number}")
            for number, line in enumerate(lines, 1)
        ]
    if reverse:
        sentences = [sentence.swapped() for sentence in sentences]
    return LinkFile(name, format, sentences)


def detect(lines: Iterable[str]) -> str:
    """naacl if the first line with words begins with three bare numbers, else talp."""
    for line in lines:
        found = _words(line)
        if found:
            numbers = found[:3]
            naacl = len(numbers) == 3 and all(re.fullmatch("[0-9]+", word) for word in numbers)
            return "naacl" if naacl else "talp"
    return "talp"


def _parse_naacl(lines: Iterable[str], name: str) -> list[Gold]:
    """Sentences 1, 2, ... up to the highest number in the file. Position 0 is NULL in this
    format: such a line says that a word has no link, so it adds none."""
    sure: dict[int, set[Link]] = {}
    possible: dict[int, set[Link]] = {}
    last = 0
    for number, line in enumerate(lines, 1):
        if not (found := _words(line)):
            continue
        fields = _NAACL.fullmatch(" ".join(found))
        if fields is None or not int(fields[1]):
            raise InputError(
                f"{name} line {number}: {_shown(line)} is not a NAACL link; wanted "
                "sentence, source and target position, all from 1, then S or P, like 0001 3 4 S"
            )
        sentence, i, j = int(fields[1]), int(fields[2]), int(fields[3])
        last = max(last, sentence)
        if not i and not j:
            raise InputError(
                f"{name} line {number}: {_shown(line)} links position 0 to position 0; "
                "NAACL positions start at 1 (0 is NULL): is the file 0-based?"
            )
        if i and j:
            kind = possible if fields[4] in ("P", "p") else sure
            kind.setdefault(sentence, set()).add((i - 1, j - 1))
    nothing: set[Link] = set()
    return [
        Gold(frozenset(sure.get(n, nothing)), frozenset(possible.get(n, nothing)))
        for n in range(1, last + 1)
    ]


# ---- writing ----


class _PharaohTokens(dict[Link, str]):
    """Link -> `i-j`, remembered for short sentences: looking up is more than twice as fast as
    formatting, and a corpus repeats the same few thousand links."""

    def __missing__(self, link: Link) -> str:
        i, j = link
        token = f"{i}-{j}"
        if i < 256 and j < 256:  # at most 65,536 entries, some 10 MB
            self[link] = token
        return token


_PHARAOH = _PharaohTokens()


def format_pharaoh(links: Iterable[Link]) -> str:
    """`0-0 1-2` in the order given, without a line end; links must be tuples."""
    return " ".join(map(_PHARAOH.__getitem__, links))


def format_scored(links: Iterable[ScoredLink], digits: int = 4) -> str:
    """`0-0:0.9312 1-2:0.5000` in the order given, without a line end."""
    template = f"%d-%d:%.{digits}f"
    return " ".join([template % link for link in links])


def format_talp(gold: Gold) -> str:
    """Sure links as `i-j`, then those only possible as `ipj`, each part sorted."""
    sure = [f"{i}-{j}" for i, j in sorted(gold.sure)]
    return " ".join(sure + [f"{i}p{j}" for i, j in sorted(gold.possible - gold.sure)])


def format_naacl(number: int, gold: Gold) -> list[str]:
    """`0001 1 1 S` lines of sentence `number` (from 1), sorted; none if it has no links."""
    return [
        f"{number:04d} {i + 1} {j + 1} {'S' if (i, j) in gold.sure else 'P'}"
        for i, j in sorted(gold.possible)
    ]

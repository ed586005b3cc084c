"""Files of links or gold links: a line for each sentence pair, or NAACL lines for each link.

Does not count or score links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

from ..errors import InputError, MxError
from ..text.files import read_lines
from ..text.words import split_words
from ..types import Link, ScoredLink
from .link_lines import EMPTY_GOLD, NUMBER, Gold, parse_gold, parse_scored_links, quote_text

LINK_FILE_FORMATS = ("auto", "talp", "naacl")

_NAACL = re.compile(
    rf"([0-9]{{1,7}}) ([0-9]{{1,7}}) ([0-9]{{1,7}})(?: ([SPsp]))?(?: {NUMBER})?", re.ASCII
)
_HEAD_LINES = 100  # enough to tell the format by


# ---- whole files ----


@dataclass(frozen=True)
class LinkFile:
    """A file's links, one Gold per sentence pair. A NAACL file only names the pairs that have
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
        if found == length:
            return self
        naacl = self.format == "naacl"
        if naacl and found < length:
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
    """Read links or gold links in any of LINK_FILE_FORMATS; `reverse` if the target comes first.

    NAACL files are 1-based by definition.
    """
    name = "standard input" if path == "-" else path
    return parse_link_file(list(read_lines(path)), name, format, one_based, reverse)


def parse_link_file(
    lines: Sequence[str],
    name: str,
    format: str = "auto",
    one_based: bool = False,
    reverse: bool = False,
) -> LinkFile:
    """Return what `read_link_file` returns, from lines already read."""
    if format == "auto":
        format = detect_format(lines)
    if format == "naacl":
        sentences = _parse_naacl(lines, name)
    else:
        sentences = [
            parse_gold(line, one_based, f"{name} line {number}")
            for number, line in enumerate(lines, 1)
        ]
    if reverse:
        sentences = [sentence.swap_sides() for sentence in sentences]
    return LinkFile(name, format, sentences)


def detect_format(lines: Iterable[str]) -> str:
    """Return naacl if the first line with words begins with three bare numbers, else talp."""
    for line in lines:
        if words := split_words(line.rstrip("\r")):
            numbers = [word for word in words[:3] if re.fullmatch("[0-9]+", word)]
            return "naacl" if len(numbers) == 3 else "talp"
    return "talp"


def _parse_naacl(lines: Iterable[str], name: str) -> list[Gold]:
    """Return sentences 1, 2, ... up to the highest number in the lines."""
    sure: dict[int, set[Link]] = {}
    possible: dict[int, set[Link]] = {}
    last = 0
    for number, line in enumerate(lines, 1):
        if not (words := split_words(line.rstrip("\r"))):
            continue
        fields = _NAACL.fullmatch(" ".join(words))
        if fields is None or not int(fields[1]):
            raise InputError(
                f"{name} line {number}: {quote_text(line)} is not a NAACL link; wanted "
                "sentence, source and target position, all from 1, then S or P, like 0001 3 4 S"
            )
        sentence, i, j = int(fields[1]), int(fields[2]), int(fields[3])
        last = max(last, sentence)
        if not i and not j:
            raise InputError(
                f"{name} line {number}: {quote_text(line)} links position 0 to position 0; "
                "NAACL positions start at 1 (0 is NULL): is the file 0-based?"
            )
        # Position 0 is NULL: such a line says that a word has no link, so it adds none.
        if i and j:
            kind = possible if fields[4] in ("P", "p") else sure
            kind.setdefault(sentence, set()).add((i - 1, j - 1))
    return [
        Gold(frozenset(sure.get(n, ())), frozenset(possible.get(n, ()))) for n in range(1, last + 1)
    ]


# ---- a line at a time ----


@dataclass(frozen=True)
class LinkRow:
    """One line of a link file. `scored` if it says how good the links are."""

    gold: Gold
    links: list[ScoredLink]
    scored: bool

    def check_bounds(self, n_src: int, n_tgt: int, where: str) -> None:
        """Fail if a link lies outside a pair of so many words."""
        for i, j, _ in self.links:
            if i >= n_src or j >= n_tgt:
                raise InputError(
                    f"{where}: link {i}-{j} (counted from 0) lies outside the pair, which "
                    f"has {n_src} and {n_tgt} words; is it of other text, one-based, or reversed?"
                )


@dataclass(frozen=True)
class LinkSource:
    """A file of links in any format, and how to read it."""

    path: str
    one_based: bool = False
    reverse: bool = False
    scores: str | None = None  # a file with a number for each link, in the order of the line

    def read_rows(self) -> Iterator[LinkRow]:
        """Yield the lines, read while they are needed."""
        lines = read_lines(self.path)
        head = list(islice(lines, _HEAD_LINES))
        name = "standard input" if self.path == "-" else self.path
        if detect_format(head) == "naacl":
            if self.scores:
                raise MxError(f"{name} is a NAACL file, whose lines --scores does not know")
            file = parse_link_file([*head, *lines], name, "naacl", reverse=self.reverse)
            for gold in file.sentences:
                yield LinkRow(gold, [(i, j, 1.0) for i, j in sorted(gold.possible)], False)
            return
        lines = chain(head, lines)
        if self.scores:
            lines = _join_scores(lines, name, self.scores)
        for number, line in enumerate(lines, 1):
            where = f"{name} line {number}"
            gold = parse_gold(line, self.one_based, where)
            links = parse_scored_links(line, self.one_based, where)
            if self.reverse:
                gold, links = gold.swap_sides(), sorted((j, i, score) for i, j, score in links)
            yield LinkRow(gold, links, ":" in line)

    def select_rows(
        self, sizes: dict[int, tuple[int, int]], total: int, text: str
    ) -> list[LinkRow]:
        """Return the lines of the pairs whose words are counted in `sizes`, in that order.

        `text` has `total` pairs, and so must the file; but a NAACL file may end early, as it names
        only pairs with links.
        """
        kept = {number: LinkRow(EMPTY_GOLD, [], False) for number in sizes}
        count = 0
        for count, row in enumerate(self.read_rows(), 1):
            if count in sizes:
                row.check_bounds(*sizes[count], f"{self.path} line {count}")
                kept[count] = row
        may_end_early = count < total and self.path != "-" and self._is_naacl()
        if count != total and not may_end_early:
            raise uneven_files_error(self.path, count, total, text)
        return list(kept.values())

    def _is_naacl(self) -> bool:
        return detect_format(islice(read_lines(self.path), _HEAD_LINES)) == "naacl"


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
    return InputError(
        (
            f"{path} has {found:,} lines or more, but {text} has {wanted:,}; "
            if found > wanted
            else f"{path} ends after {found:,} lines, but {text} goes on; "
        )
        + "both must hold the same sentence pairs in the same order"
    )

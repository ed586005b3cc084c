"""Compares link files of several systems with gold: reads them side by side, scores them.

Does not print: `score_tables` makes text of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from ..text.files import read_lines
from ..text.words import split_words
from ..types import IntArray
from .link_files import LinkFile
from .scoring import (
    Comparison,
    Interval,
    Score,
    bootstrap_intervals,
    compare_systems,
    count_sentences,
    score_counts,
)


@dataclass(frozen=True)
class ScoredSystem:
    """One link file and what was found out about it; `compared` is against the first system."""

    name: str
    table: IntArray  # (N, 5), a row of LinkCounts for each sentence
    score: Score
    intervals: dict[str, Interval] | None
    compared: Comparison | None


def score_systems(
    gold: LinkFile, files: Sequence[LinkFile], samples: int = 10_000, seed: int = 1
) -> list[ScoredSystem]:
    """Score each file, and compare all but the first with the first.

    Without samples there are no intervals and no comparison.
    """
    systems: list[ScoredSystem] = []
    for file in files:
        table = count_sentences([made.possible for made in file.sentences], gold.sentences)
        intervals = compared = None
        if samples:
            intervals = bootstrap_intervals(table, samples, seed)
        if samples and systems:
            compared = compare_systems(systems[0].table, table, samples, seed)
        systems.append(ScoredSystem(file.name, table, score_counts(table), intervals, compared))
    return systems


def match_files(
    files: Sequence[LinkFile], src: str | None = None, tgt: str | None = None
) -> list[LinkFile]:
    """Return the files with one entry for each sentence pair.

    All of them, and the text files `src` and `tgt` if given, must have the same length; NAACL
    files may be shorter. No link may be outside the text.
    """
    texts = [
        (path, [len(split_words(line)) for line in read_lines(path)])
        for path in (src, tgt)
        if path is not None
    ]
    length, longest = _find_length(files, texts)
    files = [file.fit_length(length, longest) for file in files]
    for file in files:
        for path, n_words in texts:
            _check_inside(file, int(path is tgt), path, n_words)
    return files


def _find_length(
    files: Sequence[LinkFile], texts: Sequence[tuple[str, list[int]]]
) -> tuple[int, str]:
    """Return how many sentence pairs there are, and which file says so: the first that has a line
    for each, else the NAACL file that goes furthest."""
    known = [(len(file.sentences), file.name) for file in files if file.format != "naacl"]
    known += [(len(n_words), path) for path, n_words in texts]
    for length, name in known:
        if length != known[0][0]:
            raise InputError(
                f"{name} has {length} lines, but {known[0][1]} has {known[0][0]}; "
                "all files must hold the same sentence pairs in the same order"
            )
    return known[0] if known else max((len(file.sentences), file.name) for file in files)


def _check_inside(file: LinkFile, side: int, path: str, n_words: Sequence[int]) -> None:
    """Check that no link goes beyond the words of a side, 0 for the source and 1 for the target."""
    for number, (sentence, n) in enumerate(zip(file.sentences, n_words, strict=True), 1):
        link = max(sentence.possible, key=lambda link: link[side], default=None)
        if link is not None and link[side] >= n:
            raise InputError(
                f"{file.name} sentence {number}: link {link[0]}-{link[1]} (from 0, source "
                f"first) is outside {path}, which has {n} words there; check the "
                "order of the sides (--reverse) and where counting starts (--one-based)"
            )


def seems_one_based(file: LinkFile) -> bool:
    """Whether no link of ten or more sentences has index 0.

    In ten sentences some first word has a link, unless counting starts at 1.
    """
    linked = [sentence.possible for sentence in file.sentences if sentence.possible]
    return len(linked) >= 10 and not any(0 in link for links in linked for link in links)

"""Carry labels from source words to target words: BIO, BIOES, or spans of characters.

Does not read files (`label_files`) and does not find links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import InputError
from ...types import Span
from .ranges import LinkedPair, Policy, find_ranges


@dataclass(frozen=True, order=True)
class Label:
    """A labelled range of words, or of characters of a line."""

    start: int
    end: int
    name: str


@dataclass(frozen=True)
class ProjectedLabels:
    """What became of the labels of a sentence."""

    labels: list[Label]  # of target words, sorted
    lost: list[Label]  # of source words: they have no place in the target


def project_labels(
    pair: LinkedPair, labels: Sequence[Label], policy: Policy = "best"
) -> ProjectedLabels:
    """Give the labels of source words to target words."""
    found = find_ranges(pair, [(label.start, label.end) for label in labels], policy)
    placed = [
        Label(start, end, label.name)
        for label, ranges in zip(labels, found, strict=True)
        for start, end in ranges
    ]
    lost = [label for label, ranges in zip(labels, found, strict=True) if not ranges]
    return ProjectedLabels(sorted(placed), lost)


# ---- BIO ----


def parse_tags(tags: Sequence[str], where: str = "labels") -> list[Label]:
    """Return the ranges that tags of BIO, IOB or BIOES stand for, such as B-PER I-PER O.

    An I- that continues nothing begins a range, as in the older IOB.
    """
    labels: list[Label] = []
    open_name, start = None, 0
    for place, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        if tag != "O" and (mark not in ("B", "I", "E", "S", "L", "U") or not name):
            raise InputError(
                f"{where}: {tag!r} is not a label; wanted O, or B-, I-, E- or S- and a name"
            )
        goes_on = mark in ("I", "E", "L") and name == open_name
        if open_name is not None and not goes_on:
            labels.append(Label(start, place, open_name))
            open_name = None
        if tag != "O" and not goes_on:
            open_name, start = name, place
        if mark in ("E", "S", "L", "U") and open_name is not None:
            labels.append(Label(start, place + 1, open_name))
            open_name = None
    return labels


def format_tags(labels: Iterable[Label], n_words: int, bioes: bool = False) -> list[str]:
    """Return a tag for each word, BIO or BIOES."""
    tags = ["O"] * n_words
    for label in labels:
        tags[label.start] = f"B-{label.name}"
        for place in range(label.start + 1, label.end):
            tags[place] = f"I-{label.name}"
        if bioes:
            mark = "E" if label.end - label.start > 1 else "S"
            tags[label.end - 1] = f"{mark}-{label.name}"
    return tags


def uses_bioes(tags: Iterable[str]) -> bool:
    """Tell whether the tags mark the ends of ranges."""
    return any(tag[:2] in ("E-", "S-", "L-", "U-") for tag in tags)


# ---- characters ----


def cover_words(start: int, end: int, spans: Sequence[Span]) -> Span | None:
    """Return the words that have characters of a range of the line, None if none has."""
    inside = [n for n, (first, last) in enumerate(spans) if first < end and start < last]
    return (inside[0], inside[-1] + 1) if inside else None


def project_characters(
    pair: LinkedPair,
    spans: tuple[Sequence[Span], Sequence[Span]],
    labels: Sequence[Label],
    policy: Policy = "best",
) -> ProjectedLabels:
    """Give labels of characters of the source line to characters of the target line.

    `spans` are those of the words of both sides. A label that ends inside a word covers it.
    """
    words: list[Label] = []
    of: dict[Label, Label] = {}
    lost = []
    for label in labels:
        covered = cover_words(label.start, label.end, spans[0])
        if covered is None:
            lost.append(label)
        else:
            words.append(Label(*covered, label.name))
            of[words[-1]] = label
    found = project_labels(pair, words, policy)
    placed = [
        Label(spans[1][label.start][0], spans[1][label.end - 1][1], label.name)
        for label in found.labels
    ]
    return ProjectedLabels(placed, sorted([*lost, *(of[label] for label in found.lost)]))

"""The kinds of annotated text that can be carried over: how each is read, and written again.

A kind says which words of both sides are to be linked, then writes the target with annotation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import InputError
from ...text.files import read_lines
from ...text.tokens.schemes import cut_text
from ...text.tokens.tokenizer import find_word_spans
from ...text.words import split_words
from ...types import Span, Words
from .labels import Label, format_tags, parse_tags, project_characters, project_labels, uses_bioes
from .markup_tree import MarkedLine, find_placeholders, parse_markup
from .placement import place_markup
from .ranges import LinkedPair, Policy

# Under which names annotation tools keep their spans in JSON lines.
_SPAN_KEYS = ("spans", "entities", "labels", "label")


class Annotation(Protocol):
    """One annotated source sentence and its translation."""

    src_words: Words
    tgt_words: Words
    written: str  # the source as it was read
    target: str

    def render(self, pair: LinkedPair, policy: Policy) -> tuple[str, list[str], int]:
        """Return the annotated target with its line end, what has no place, and how many there
        were to place."""


# ---- CoNLL ----


@dataclass
class TaggedSentence:
    """A sentence of CoNLL: lines of a word and columns, the last of which is its label."""

    rows: list[list[str]]
    comments: list[str]
    tags: list[Label]
    bioes: bool
    target: str
    src_words: Words = field(init=False)
    tgt_words: Words = field(init=False)
    written: str = field(init=False)

    def __post_init__(self) -> None:
        self.src_words = [row[0] for row in self.rows]
        self.tgt_words = split_words(self.target)
        self.written = "\n".join([*self.comments, *map(" ".join, self.rows)])

    def render(self, pair: LinkedPair, policy: Policy) -> tuple[str, list[str], int]:
        """Return the words of the target with their labels, and an empty line."""
        found = project_labels(pair, self.tags, policy)
        tags = format_tags(found.labels, len(self.tgt_words), self.bioes)
        rows = [f"{word}\t{tag}\n" for word, tag in zip(self.tgt_words, tags, strict=True)]
        # Readers of CoNLL pass over empty sentences, and would lose count.
        comments = [*self.comments, *([] if rows else ["# no words"])]
        lost = [
            f"{' '.join(self.src_words[label.start : label.end])} ({label.name})"
            for label in found.lost
        ]
        text = "".join([*(f"{line}\n" for line in comments), *rows, "\n"])
        return text, lost, len(self.tags)


def read_tagged(path: str, targets: Iterator[str]) -> Iterator[Annotation]:
    """Yield the sentences of a CoNLL file, between empty lines, each with its translation."""
    rows: list[list[str]] = []
    comments: list[str] = []
    found_bioes = False

    def finish() -> Annotation:
        nonlocal found_bioes
        names = [row[-1] for row in rows]
        found_bioes = found_bioes or uses_bioes(names)
        target = next(targets, None)
        if target is None:
            raise InputError(f"the target ends before {path}; it needs a line for each sentence")
        tags = parse_tags(names, f"{path}, before line {number + 1:,}")
        return TaggedSentence(list(rows), list(comments), tags, found_bioes, target)

    number = 0
    for number, line in enumerate(read_lines(path), 1):
        line = line.rstrip("\r")
        fields = line.split("\t") if "\t" in line else line.split()
        if not line.strip():
            if rows or comments:
                yield finish()
            rows, comments = [], []
        elif line.startswith(("# ", "-DOCSTART-")) or line == "#":
            if not line.startswith("-DOCSTART-"):
                comments.append(line)
        elif len(fields) < 2:
            raise InputError(
                f"{path} line {number:,}: {line[:40]!r} has one column; wanted a word and its "
                "label, with a TAB or space between"
            )
        else:
            rows.append(fields)
    if rows:
        yield finish()
    if next(targets, None) is not None:
        raise InputError(f"the target goes on after the last sentence of {path}")


# ---- JSON lines ----


@dataclass
class SpanLine:
    """A line of JSON: {"text": ..., "spans": [[start, end, label], ...]} and what else is there."""

    written: str
    row: dict[str, Any]
    key: str
    labels: list[Label]
    target: str

    def __post_init__(self) -> None:
        self.plain = str(self.row["text"])
        self.spans = find_word_spans(self.plain), find_word_spans(self.target)
        self.src_words: Words = cut_text(self.plain, self.spans[0])
        self.tgt_words: Words = cut_text(self.target, self.spans[1])

    def render(self, pair: LinkedPair, policy: Policy) -> tuple[str, list[str], int]:
        """Return the line of the target, with its spans in the shape of the source's."""
        found = project_characters(pair, self.spans, self.labels, policy)
        as_objects = any(isinstance(span, dict) for span in self.row[self.key])
        spans: list[Any] = [[label.start, label.end, label.name] for label in found.labels]
        if as_objects:
            spans = [{"start": s, "end": e, "label": name} for s, e, name in spans]
        row = {**self.row, "text": self.target, self.key: spans}
        lost = [f"{self.plain[label.start : label.end]} ({label.name})" for label in found.lost]
        return json.dumps(row, ensure_ascii=False) + "\n", lost, len(self.labels)


def read_span_lines(path: str, targets: Iterator[str]) -> Iterator[Annotation]:
    """Yield the lines of a JSONL file, each with its translation."""
    for number, (line, target) in enumerate(_zip_lines(path, targets), 1):
        where = f"{path} line {number:,}"
        try:
            row = json.loads(line)
            text = row["text"]
            key = next((key for key in _SPAN_KEYS if key in row), "spans")
            labels = [_read_span(span) for span in row.setdefault(key, [])]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f'{where}: {line[:40]!r} is not {{"text": ..., "spans": [[start, end, label], '
                "...]}}"
            ) from None
        for label in labels:
            if not 0 <= label.start < label.end <= len(text):
                raise InputError(
                    f"{where}: span {label.start} to {label.end} is not inside the text, which has "
                    f"{len(text)} characters"
                )
        yield SpanLine(line, row, key, labels, target)


def _read_span(span: Any) -> Label:
    if isinstance(span, dict):
        return Label(int(span["start"]), int(span["end"]), str(span["label"]))
    start, end, name = span
    return Label(int(start), int(end), str(name))


# ---- markup ----


@dataclass
class MarkupLine:
    """A line with tags, and its translation without."""

    written: str
    target: str
    escape: bool = True

    def __post_init__(self) -> None:
        self.marked: MarkedLine = parse_markup(self.written, find_placeholders(self.target))
        self.plain = self.marked.text
        # Entities belong to markup: a line without any tag is not made markup.
        self.escape = self.escape and "<" in self.written and self.marked.has_tags()
        self.spans: tuple[list[Span], list[Span]] = (
            find_word_spans(self.plain),
            find_word_spans(self.target),
        )
        self.src_words: Words = cut_text(self.plain, self.spans[0])
        self.tgt_words: Words = cut_text(self.target, self.spans[1])

    def render(self, pair: LinkedPair, policy: Policy) -> tuple[str, list[str], int]:
        """Return the target with the tags."""
        found = place_markup(self.marked, self.target, pair, self.spans, self.escape)
        return found.text + "\n", found.unplaced, len(self.marked.list_tags())


def read_markup_lines(
    path: str, targets: Iterator[str], escape: bool = True
) -> Iterator[Annotation]:
    """Yield the lines of a file with markup, each with its translation."""
    for line, target in _zip_lines(path, targets):
        yield MarkupLine(line.rstrip("\r"), target.rstrip("\r"), escape)


def _zip_lines(path: str, targets: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield lines and translations; fail, after the last pair, if there are more of one."""
    n = 0
    for n, line in enumerate(read_lines(path), 1):
        target = next(targets, None)
        if target is None:
            raise InputError(
                f"the target ends after {n - 1:,} lines but {path} goes on; "
                "it needs a line for each line of the source"
            )
        yield line, target
    if next(targets, None) is not None:
        raise InputError(f"{path} ends after {n:,} lines but the target goes on")


def detect_kind(path: str) -> str:
    """Return conll, spans or markup, as the name of a file says."""
    name = path.removesuffix(".gz").removesuffix(".zst")
    if name.endswith((".conll", ".bio", ".iob", ".bioes", ".iob2")):
        return "conll"
    return "spans" if name.endswith((".jsonl", ".ndjson")) else "markup"


def join_words(items: Sequence[Annotation]) -> tuple[list[Words], list[Words]]:
    """Return the words of both sides of some items."""
    return [item.src_words for item in items], [item.tgt_words for item in items]

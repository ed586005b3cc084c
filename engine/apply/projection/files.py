"""Carry the annotation of a file over to its translation: `project_files` is the recipe.

Streams, and goes on where it was killed. Links come from a file, or from whoever finds them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...jobs.output_files import OutputFiles
from ...text.files import open_output, read_lines
from ...types import Counts, LinkFinder, Links, Pairs
from ..linked_text import parse_chunk
from .annotations import (
    Annotation,
    join_words,
    read_markup_lines,
    read_span_lines,
    read_tagged,
)
from .ranges import LinkedPair, Policy

# Pairs that are linked and written together.
CHUNK = 2048
_READERS: dict[str, Callable[..., Iterator[Annotation]]] = {
    "conll": read_tagged,
    "spans": read_span_lines,
    "markup": read_markup_lines,
}


@dataclass
class ProjectionSummary:
    """What became of the annotation of a file."""

    sentences: int = 0
    annotations: int = 0
    unplaced: int = 0


def open_annotations(kind: str, src: str, tgt: str, escape: bool = True) -> Iterator[Annotation]:
    """Yield the sentences of an annotated file with their translations."""
    if src == tgt == "-":
        raise InputError("both files are '-' but standard input holds only one")
    reader = partial(_READERS[kind], escape=escape) if kind == "markup" else _READERS[kind]
    return reader(src, read_lines(tgt))


def project_files(
    kind: str,
    src: str,
    tgt: str,
    output: str = "-",
    *,
    finder: LinkFinder | None = None,
    links: str | None = None,
    policy: Policy = "best",
    escape: bool = True,
    report: str | None = None,
    restart: bool = False,
    signature: str = "",
) -> ProjectionSummary:
    """Write the target with the annotation of the source; return what became of it.

    Args:
        kind: conll, spans or markup.
        finder: finds the links of a chunk of words; else `links` is a file of them.
        policy: which target words a label gets (`ranges.find_ranges`); markup takes the best.
        escape: make "<" and bare "&" of the target entities where the source has tags.
        report: a file for what has no place, one JSON line for each sentence that has such.
        restart: begin anew what was killed.
        signature: how links are made, which a run that goes on must repeat.
    """
    items = open_annotations(kind, src, tgt, escape)
    link_lines = read_lines(links) if links else None
    targets = [Path(name) for name in (output, report) if name and name != "-"]
    settings = {"kind": kind, "policy": policy, "escape": escape, "how": signature}
    summary = ProjectionSummary()
    # What went to standard output is gone: only a file can be gone on with.
    restart = restart or output == "-"
    with OutputFiles(targets, settings, restart=restart) if targets else nullcontext() as files:
        done = list(files.records) if files else []
        while chunk := list(islice(items, done[0]["pairs"] if done else CHUNK)):
            lines = _take_links(link_lines, len(chunk), str(links), summary.sentences)
            digest = _digest_chunk(chunk, lines)
            if files and done:
                record = done.pop(0)
                if digest != record["digest"]:
                    raise InputError(
                        f"{src}, {tgt} or the links have changed since the run that was killed; "
                        "give --restart to begin anew"
                    )
                counts = Counts(*record["counts"])
                unplaced, annotations = counts.skipped, counts.words
            else:
                found = _link_chunk(chunk, summary.sentences, finder, lines, str(links))
                parts, annotations, unplaced = _render_chunk(
                    chunk, found, policy, summary.sentences
                )
                counts = Counts(pairs=len(chunk), skipped=unplaced, words=annotations)
                _write_parts(files, output, report, parts, counts, digest)
            summary.sentences += len(chunk)
            summary.annotations += annotations
            summary.unplaced += unplaced
        if link_lines is not None and next(link_lines, None) is not None:
            raise InputError(f"{links} has more lines than the text, {summary.sentences:,}")
        if files:
            files.finish()
    return summary


def _take_links(
    lines: Iterator[str] | None, n: int, name: str, before: int
) -> Sequence[str] | None:
    if lines is None:
        return None
    taken = list(islice(lines, n))
    if len(taken) < n:
        raise InputError(
            f"{name} ends after {before + len(taken):,} lines but the text goes on; "
            "it must have a line for each sentence"
        )
    return taken


def _digest_chunk(chunk: Sequence[Annotation], lines: Sequence[str] | None) -> str:
    # A source and its target end with marks that no line has.
    rows = (f"{item.written}\n\0{item.target}\n\0" for item in chunk)
    text = "".join([*rows, "\n".join(lines or ())])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _link_chunk(
    chunk: Sequence[Annotation], first: int, finder: LinkFinder | None,
    lines: Sequence[str] | None, name: str,
) -> tuple[Pairs, Links]:  # fmt: skip
    """Return the words of some items and the links between them."""
    pairs = Pairs(first, *join_words(chunk))
    if lines is not None:
        return pairs, parse_chunk(name, lines, pairs)
    assert finder is not None
    return pairs, finder(pairs)


def _render_chunk(
    chunk: Sequence[Annotation], found: tuple[Pairs, Links], policy: Policy, first: int
) -> tuple[list[str], int, int]:
    """Return the text of the output and of the report, and how much there was and had no place."""
    pairs, links = found
    both = list(zip(links.src.tolist(), links.tgt.tolist(), links.score.tolist(), strict=True))
    texts, reports = [], []
    total = unplaced = 0
    for k, (start, end) in enumerate(pairwise(links.offsets.tolist())):
        pair = LinkedPair(pairs.src[k], pairs.tgt[k], both[start:end])
        text, lost, n = chunk[k].render(pair, policy)
        texts.append(text)
        total, unplaced = total + n, unplaced + len(lost)
        if lost:
            row: dict[str, Any] = {"sentence": first + k + 1, "unplaced": lost}
            reports.append(json.dumps(row, ensure_ascii=False) + "\n")
    return ["".join(texts), "".join(reports)], total, unplaced


def _write_parts(
    files: OutputFiles | None, output: str, report: str | None, parts: list[str],
    counts: Counts, digest: str,
) -> None:  # fmt: skip
    """Write a chunk to the output and the report, as far as they are wanted."""
    data = [part.encode("utf-8", "surrogatepass") for part in parts]
    if output == "-":
        with open_output("-") as out:
            out.write(data[0])
        data = data[1:]
    data = data if report else data[:-1]
    if files:
        files.append_chunk(data, counts, digest, counts.pairs == CHUNK)

"""Makes pages of links that any tool wrote, and lays gold links or another system's over a page.

Reads the files line by line beside the text, which may be long. Does not write the page.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, zip_longest

import numpy as np

from ..errors import InputError
from ..links.link_files import LinkRow, LinkSource, uneven_files_error
from ..text.files import read_pairs
from ..text.words import split_words
from ..types import Links, Pairs
from ..version import __version__
from .corpus_report import ReportCollector
from .page import MAX_SCORE, MIN_THRESHOLD, Page, PairView

_CHUNK = 8192  # pairs that are summarized together


def make_link_page(
    src: str, tgt: str, source: LinkSource, *, sample: int | None, ignore_scores: bool = False
) -> tuple[Page, int]:
    """Make a page of a sample of pairs (None: of all); returns it and the number of all pairs."""
    collector = ReportCollector(sample)
    scored = False
    for pairs, rows in _read_chunks(src, tgt, source, ignore_scores):
        scored = scored or any(row.scored for row in rows)
        collector.add(collector.summarize(pairs, _stack_links(rows)))
    scored = scored and not ignore_scores
    views = [
        PairView(one.number, one.src, one.tgt, one.links, one.score, one.scores if scored else None)
        for one in collector.picked_pairs()
    ]
    name = os.path.basename(source.path)
    page = Page(
        "",
        views,
        how=f"mx-view|v:{__version__}|links:{name}",
        threshold=MIN_THRESHOLD / MAX_SCORE if scored else None,
        names={"sys": name},
        report=collector.report(scored),
    )
    return page, collector.total.pairs


def add_layers(
    page: Page, total: int, text: str, gold: LinkSource | None, compare: LinkSource | None
) -> Page:
    """Return the page with gold links and those of another system, as far as they are given."""
    views = list(page.pairs)
    sizes = {view.number: (len(view.src), len(view.tgt)) for view in views}
    if gold:
        rows = gold.select_rows(sizes, total, text)
        views = [replace(view, gold=row.gold) for view, row in zip(views, rows, strict=True)]
    if compare:
        rows = compare.select_rows(sizes, total, text)
        views = [
            replace(view, compare=[(i, j) for i, j, _ in row.links])
            for view, row in zip(views, rows, strict=True)
        ]
        page = replace(page, names={**page.names, "cmp": os.path.basename(compare.path)})
    return replace(page, pairs=views)


def _read_chunks(
    src: str, tgt: str, source: LinkSource, ignore_scores: bool
) -> Iterator[tuple[Pairs, list[LinkRow]]]:
    """Yield words and links of the corpus, some thousand pairs at a time."""
    path = source.path
    both = enumerate(zip_longest(read_pairs(src, tgt), source.read_rows()), 1)
    first = 0
    while rows := list(islice(both, _CHUNK)):
        pairs, links = Pairs(first, [], []), []
        for number, (lines, row) in rows:
            if lines is None or row is None:
                raise uneven_files_error(
                    path, number if lines is None else number - 1, number - 1, src
                )
            words = [split_words(line) for line in lines]
            row.check_bounds(len(words[0]), len(words[1]), f"{path} line {number}")
            if not ignore_scores and not all(0 <= score <= 1 for *_, score in row.links):
                where = f"{source.scores or path} line {number}"
                raise InputError(f"{where}: a score is not between 0 and 1; give --ignore-scores")
            pairs.src.append(words[0])
            pairs.tgt.append(words[1])
            links.append(row)
        yield pairs, links
        first += len(rows)


def _stack_links(rows: list[LinkRow]) -> Links:
    flat = [link for row in rows for link in row.links]
    table = np.array(flat, np.float64).reshape(len(flat), 3)
    return Links(
        np.cumsum([0, *(len(row.links) for row in rows)]),
        table[:, 0].astype(np.int64),
        table[:, 1].astype(np.int64),
        table[:, 2].astype(np.float32),
        np.ones(len(flat), bool),
    )

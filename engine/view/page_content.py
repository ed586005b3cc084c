"""Makes pages of links that any tool wrote, or of what a model says: its links, both directions,
all scores; and lays gold links or another system's over a page.

Reads files of links line by line beside the text, which may be long. Runs a model only over the few
pairs that are shown. Does not write the page.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any, Literal, Protocol

import numpy as np

from ..align.decoding import SOFT, LinkRule
from ..errors import InputError
from ..links.average import LinkTable
from ..links.link_files import LinkRow, LinkSource, uneven_files_error
from ..text.files import read_pairs
from ..text.words import split_words
from ..types import Link, Links, Pairs, Words
from ..version import __version__
from .corpus_report import ReportCollector
from .page import MAX_CELLS, MAX_SCORE, MIN_THRESHOLD, Page, PairView

_CHUNK = 8192  # pairs that are summarized together

# ---- links of any tool ----


def make_link_page(
    src: str, tgt: str, source: LinkSource, *, sample: int | None, ignore_scores: bool = False
) -> Page:
    """Make a page of a sample of pairs (None: of all)."""
    collector = ReportCollector(sample)
    scored = False
    for pairs, rows in _read_chunks(src, tgt, source, ignore_scores):
        scored = scored or (not ignore_scores and any(row.scored for row in rows))
        collector.add(collector.summarize(pairs, _stack_links(rows)))
    views = collector.total.picked
    if not scored:
        views = [replace(view, scores=None) for view in views]
    name = os.path.basename(source.path)
    return Page(
        "",
        views,
        how=f"mx-view|v:{__version__}|links:{name}",
        threshold=MIN_THRESHOLD / MAX_SCORE if scored else None,
        names={"sys": name},
        report=collector.report(scored),
    )


def add_layers(page: Page, text: str, gold: LinkSource | None, compare: LinkSource | None) -> Page:
    """Return the page of `text` with gold links and those of another system, as far as given."""
    views, total = list(page.pairs), page.report["pairs"]
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
    both = enumerate(zip_longest(read_pairs(src, tgt), source.open_rows()[1]), 1)
    while chunk := list(islice(both, _CHUNK)):
        pairs, rows = Pairs(chunk[0][0] - 1, [], []), []
        for number, (lines, row) in chunk:
            if lines is None or row is None:
                ended = number if lines is None else number - 1
                raise uneven_files_error(path, ended, number - 1, src)
            words = [split_words(line) for line in lines]
            row.check_bounds(len(words[0]), len(words[1]), f"{path} line {number}")
            if not ignore_scores and not all(0 <= score <= 1 for *_, score in row.links):
                where = f"{source.scores or path} line {number}"
                raise InputError(f"{where}: a score is not between 0 and 1; give --ignore-scores")
            pairs.src.append(words[0])
            pairs.tgt.append(words[1])
            rows.append(row)
        yield pairs, rows


def _stack_links(rows: list[LinkRow]) -> Links:
    table = LinkTable.from_rows([(k, *link) for k, row in enumerate(rows) for link in row.links])
    offsets = np.searchsorted(table.pair, np.arange(len(rows) + 1))
    sure = np.ones(len(table.pair), bool)
    return Links(offsets, table.src, table.tgt, table.score.astype(np.float32), sure)


# ---- a model ----


class ShownModel(Protocol):
    """What a page wants to know of an `Aligner`."""

    rule: LinkRule

    def signature(self) -> str: ...

    def soft(self, src: Words, tgt: Words, /) -> Any: ...

    def best_partners(
        self, pairs: Pairs, direction: Literal["forward", "backward"], /
    ) -> list[list[Link]]: ...


def make_model_page(
    model: ShownModel, collector: ReportCollector, title: str, how: str | None = None
) -> Page:
    """Make a page of the pairs that were kept while the model ran over a corpus.

    With `how`, a signature, the links are not the model's alone.
    """
    soft = model.rule.mode == SOFT and how is None
    return Page(
        title,
        _view_pairs(model, collector.total.picked),
        how=how or model.signature(),
        # Only soft links are all cells above a threshold; of others the slider can take some away.
        threshold=model.rule.threshold if soft else 0.0,
        matrix=soft,
        names={"sys": "symmetrised" if soft else "averaged" if how else model.rule.mode},
        report=collector.report(),
    )


def make_page_of_links(collector: ReportCollector, title: str, how: str) -> Page:
    """Make a page of the pairs that were kept while statistics ran over a corpus."""
    return Page(
        title,
        collector.total.picked,
        how=how,
        threshold=MIN_THRESHOLD / MAX_SCORE,
        names={"sys": "statistics"},
        report=collector.report(),
    )


def _view_pairs(model: ShownModel, views: list[PairView]) -> Iterable[PairView]:
    """Yield the pairs with what the model says about all of their words."""
    pairs = Pairs(0, [view.src for view in views], [view.tgt for view in views])
    fwd, bwd = model.best_partners(pairs, "forward"), model.best_partners(pairs, "backward")
    for view, fwd_links, bwd_links in zip(views, fwd, bwd, strict=True):
        small = 0 < len(view.src) * len(view.tgt) <= MAX_CELLS
        weights = vars(model.soft(view.src, view.tgt)) if small else None
        yield replace(view, weights=weights, fwd=fwd_links, bwd=bwd_links)

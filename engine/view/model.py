"""Pages about what a model does: its links, both directions, all scores.
Runs an `Aligner` over the few pairs that are shown; the rest of the corpus is not its matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..align.decoding import SOFT
from ..align.pipeline import run_here
from ..aligner import TURNED, Aligner
from ..types import Link, Pairs
from .digest import Collector, Picked
from .page import MAX_CELLS, Page, PairView


def model_page(aligner: Aligner, collector: Collector, title: str, how: str | None = None) -> Page:
    """A page of the pairs that were kept while the aligner ran over a corpus. With `how`, the
    links are not the model's alone."""
    soft = aligner.rule.mode == SOFT and how is None
    return Page(
        title,
        views(aligner, collector.picked()),
        how=how or aligner.signature(),
        # Only soft links are all cells above a threshold; of others the slider can take some away.
        threshold=aligner.rule.threshold if soft else 0.0,
        matrix=soft,
        names={"sys": "symmetrised" if soft else "averaged" if how else aligner.rule.mode},
        report=collector.report(),
    )


def views(aligner: Aligner, picked: Sequence[Picked]) -> Iterable[PairView]:
    """The pairs with what the model says about all of their words."""
    fwd = _directed(aligner, picked, "forward")
    bwd = _directed(aligner, picked, "backward")
    for one, *directions in zip(picked, fwd, bwd, strict=True):
        small = 0 < len(one.src) * len(one.tgt) <= MAX_CELLS
        yield PairView(
            one.number, one.src, one.tgt, one.links, one.score, one.scores,
            weights=aligner.soft(one.src, one.tgt) if small else None,
            fwd=directions[0], bwd=directions[1],
        )  # fmt: skip


def _directed(aligner: Aligner, picked: Sequence[Picked], mode: str) -> list[list[Link]]:
    """Links of one direction: the best partner, where it beats NULL."""
    mode = TURNED[mode] if aligner.swapped else mode
    rule = replace(aligner.rule, mode=mode, threshold=None, nulls=False)
    directed = Aligner(aligner.bundle, aligner.backend, aligner.reason, rule, aligner.swapped)
    found = directed.engine(
        [
            lambda pairs, links: [
                list(zip(links.src[a:b].tolist(), links.tgt[a:b].tolist(), strict=True))
                for a, b in zip(links.offsets[:-1], links.offsets[1:], strict=True)
            ]
        ]
    )
    pairs = Pairs(0, [one.src for one in picked], [one.tgt for one in picked])
    return run_here(found, pairs).result.items[0]

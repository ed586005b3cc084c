"""Makes pages about what a model does: its links, both directions, all scores.

Runs an aligner over the few pairs that are shown. Does not go over the rest of the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from ..align.decoding import SOFT, LinkRule
from ..types import Link, Pairs, Words
from .corpus_report import PickedPair, ReportCollector
from .page import MAX_CELLS, Page, PairView, ShownWeights


class ShownModel(Protocol):
    """What a page wants to know of an `Aligner`."""

    rule: LinkRule

    def signature(self) -> str: ...

    def soft(self, src: Words, tgt: Words, /) -> ShownWeights: ...

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
        view_pairs(model, collector.picked_pairs()),
        how=how or model.signature(),
        # Only soft links are all cells above a threshold; of others the slider can take some away.
        threshold=model.rule.threshold if soft else 0.0,
        matrix=soft,
        names={"sys": "symmetrised" if soft else "averaged" if how else model.rule.mode},
        report=collector.report(),
    )


def view_pairs(model: ShownModel, picked: Sequence[PickedPair]) -> Iterable[PairView]:
    """Yield the pairs with what the model says about all of their words."""
    pairs = Pairs(0, [one.src for one in picked], [one.tgt for one in picked])
    fwd, bwd = model.best_partners(pairs, "forward"), model.best_partners(pairs, "backward")
    for one, fwd_links, bwd_links in zip(picked, fwd, bwd, strict=True):
        small = 0 < len(one.src) * len(one.tgt) <= MAX_CELLS
        yield PairView(
            one.number,
            one.src,
            one.tgt,
            one.links,
            one.score,
            one.scores,
            weights=model.soft(one.src, one.tgt) if small else None,
            fwd=fwd_links,
            bwd=bwd_links,
        )

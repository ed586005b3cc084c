"""Who finds links where none were given: a model, what mx-seed learned, or the text itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..alignment import Alignment
from ..types import LinkFinder, Links, Words

OpenText = Callable[[], Iterator[tuple[Words, Words]]]


def load_finder(
    model: str | None, langs: str | None, learned: str | None, open_text: OpenText
) -> tuple[LinkFinder, str]:
    """Return what finds the links of a chunk, and a line about how it does.

    `learned` is a file of mx-seed --save; without anything, the text is learned from, which
    `open_text` gives.
    """
    if model or langs:
        from ..aligner import Aligner

        aligner = Aligner.load(model, langs=langs)
        return (lambda pairs: pack_links(aligner.align_batch(pairs.src, pairs.tgt))), (
            aligner.signature()
        )
    from ..statistical.aligner import StatisticalAligner

    if learned:
        statistical = StatisticalAligner.load(learned)
    else:
        from ..alignment import unzip_pairs

        statistical = StatisticalAligner.learn(*unzip_pairs(open_text()), lowercase=True)
    find, threshold = statistical.model.find_links, statistical.threshold
    return (lambda pairs: find(pairs, threshold)), statistical.signature()


def pack_links(found: list[Alignment]) -> Links:
    """Return the links of some pairs as arrays."""
    rows = [(i, j) for alignment in found for i, j in alignment.links]
    both = np.array(rows, np.int64).reshape(-1, 2)
    scores = [score for alignment in found for score in alignment.scores]
    offsets = np.cumsum([0, *(len(alignment.links) for alignment in found)])
    sure = np.ones(len(rows), np.bool_)
    return Links(offsets, both[:, 0], both[:, 1], np.array(scores, np.float32), sure)

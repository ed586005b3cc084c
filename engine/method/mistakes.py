"""Notices what is likely a mistake, on a sample of a text: warnings, never refusals.

Does not read files and does not choose what aligns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..types import LinkFinder, Pairs, Words

# Pairs below which a sample says too little.
_ENOUGH = 50
# Share of the lines with words that must look wrong. Good text has a few equal lines, as names.
_MOST = 0.5
# Statistics give so many more links for each word, counted by their scores, to pairs than to
# sentences put side by side wrongly. Dutch and Turkish text of 5,000 pairs with its target shuffled
# had 0.19 and 0.26; good text see docs/lab/2026-11-18-combination-by-fit.md.
_PARALLEL = 0.3
_LINK = re.compile(r"\d+[-p?]\d+(?::[\d.]+)?")


def find_text_mistakes(pairs: Pairs) -> list[str]:
    """Return warnings that follow from the words of a sample alone."""
    warnings = []
    filled = [(src, tgt) for src, tgt in zip(pairs.src, pairs.tgt, strict=True) if src and tgt]
    n_same = sum(list(src) == list(tgt) for src, tgt in filled)
    if len(filled) > 2 and n_same > _MOST * len(filled):
        warnings.append(
            f"warning: both sides are the same in {n_same:,} of {len(filled):,} lines looked at; "
            "is one file given twice?"
        )
    for name, side in (("source", pairs.src), ("target", pairs.tgt)):
        if _look_like_links(side):
            warnings.append(
                f"warning: the {name} looks like links, such as 0-0 1-2, not like text; "
                "give the two files of sentences"
            )
    return warnings


def looks_parallel(pairs: Pairs, find_links: LinkFinder) -> bool:
    """Tell whether statistics link pairs clearly more than sentences put together wrongly."""
    n_words = sum(map(len, pairs.src)) + sum(map(len, pairs.tgt))
    if len(pairs.src) < _ENOUGH or not n_words:
        return True
    shifted = Pairs(0, pairs.src, [*pairs.tgt[1:], *pairs.tgt[:1]])
    right, wrong = (float(find_links(each).score.sum()) for each in (pairs, shifted))
    return 2 * (right - wrong) / n_words >= _PARALLEL


def _look_like_links(side: Sequence[Words]) -> bool:
    lines = [words for words in side if words]
    n_links = sum(all(map(_LINK.fullmatch, words)) for words in lines)
    return n_links > _MOST * len(lines)

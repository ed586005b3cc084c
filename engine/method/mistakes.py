"""Notices what is likely a mistake, on a sample of a text: warnings, never refusals.

Does not read files and does not choose what aligns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..types import Links, Pairs, Words

# Pairs below which a sample says too little.
_ENOUGH = 50
# Share of the lines with words that must look wrong. Good text has a few equal lines, as names.
_MOST = 0.5
# Links that statistics give for each word, counted by their scores, fewer of which look like lines
# that do not belong together: good text of 16 languages had 0.66 (Japanese) to 0.84, learned from
# 500 to 50,000 pairs; Dutch text with its target shuffled 0.52 to 0.56.
_PARALLEL = 0.6
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


def looks_parallel(pairs: Pairs, links: Links) -> bool:
    """Tell whether statistics link enough words of a sample, given all of their links."""
    n_words = sum(map(len, pairs.src)) + sum(map(len, pairs.tgt))
    few = len(pairs.src) < _ENOUGH or not n_words
    return few or 2 * float(links.score.sum()) / n_words >= _PARALLEL


def _look_like_links(side: Sequence[Words]) -> bool:
    lines = [words for words in side if words]
    n_links = sum(all(map(_LINK.fullmatch, words)) for words in lines)
    return n_links > _MOST * len(lines)

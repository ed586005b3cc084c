"""A class in the shape of `simalign.SentenceAligner`."""

from __future__ import annotations

from typing import Any

from ..aligner import Aligner
from ..text.words import split_words
from ..types import Link, Words

_METHODS = {"m": "mwmf", "a": "inter", "i": "itermax", "f": "fwd", "r": "rev"}


class SentenceAligner:
    """Aligns one pair at a time; `model` is a bundle, or languages like "en-fr".

    `inter` has few wrong links, `mwmf` few missing ones, `itermax` is between; `fwd` and `rev` give
    each word of the target, or of the source, its best partner.
    """

    def __init__(
        self, model: str = "en-fr", token_type: str = "word", distortion: float = 0.0,
        matching_methods: str = "mai", device: str = "cpu", layer: int = 8, **more: Any,
    ) -> None:  # fmt: skip
        # A path has a dot or a slash, languages do not.
        is_path = "." in model or "/" in model
        self._aligner = Aligner.load(
            model if is_path else None,
            langs=None if is_path else model,
            optimize_for="recall",
            **more,
        )
        self._methods = [_METHODS[letter] for letter in matching_methods]

    def get_word_aligns(
        self, src_sent: str | Words, trg_sent: str | Words
    ) -> dict[str, list[Link]]:
        """Return the links of each method, sorted; a sentence is a line or its words."""
        src, tgt = (
            split_words(side) if isinstance(side, str) else side for side in (src_sent, trg_sent)
        )
        found = self._aligner.align_pair(src, tgt)
        scored = list(zip(found.links, found.scores, strict=True))
        bundle, _ = self._aligner.require_model()
        thresholds = {
            "inter": bundle.threshold("precision"),
            "itermax": bundle.threshold("aer"),
            "mwmf": bundle.threshold("recall"),
        }
        lists = {
            name: [link for link, score in scored if score >= threshold]
            for name, threshold in thresholds.items()
        }
        for name, side in (("fwd", 1), ("rev", 0)):
            best: dict[int, tuple[float, Link]] = {}
            for link, score in scored:
                if score > best.get(link[side], (0.0, link))[0]:
                    best[link[side]] = score, link
            lists[name] = sorted(link for _, link in best.values())
        return {name: lists[name] for name in self._methods}

"""Says what the links of a corpus look like as a whole: histograms, worst pairs, a fair sample.

Pairs are sampled by a hash of their number: which ones does not depend on chunks or threads. Does
not draw pages.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import MxError
from ..links.formats import sentence_scores
from ..links.link_files import format_links
from ..types import IntArray, Link, Links, Pairs

WORST = 20  # pairs
MOST_LINKS = 6  # words with as many links or more are counted together
BINS = 20  # of scores

_HISTOGRAMS = ("links_per_src", "links_per_tgt", "link_scores", "pair_scores")


@dataclass(frozen=True)
class PickedPair:
    """A pair that was kept, with its links; `number` is its line, from 1."""

    number: int
    src: tuple[str, ...]
    tgt: tuple[str, ...]
    links: list[Link]
    scores: list[float]
    score: float


@dataclass(frozen=True)
class CorpusStatistics:
    """Histograms of some pairs, and those of them worth showing."""

    pairs: int
    links_per_src: IntArray  # (MOST_LINKS + 1,) source words with 0, 1, 2 ... links
    links_per_tgt: IntArray
    link_scores: IntArray  # (BINS,) links by score
    pair_scores: IntArray  # (BINS,) pairs with words on both sides, by score
    worst: list[PickedPair] = field(default_factory=list)
    sample: list[PickedPair] = field(default_factory=list)


class ReportCollector:
    """Summarizes chunks, in any thread, and adds up what it is given in the order of the text.

    As a `Renderer` it returns not an item per pair but one `CorpusStatistics` for the chunk.
    """

    def __init__(self, sample: int | None = 0, worst: int = WORST) -> None:
        self.sample = sample  # None: all pairs
        self.worst = worst
        self._lock = threading.Lock()
        empty = np.zeros(0, np.int64)
        links = Links(np.zeros(1, np.int64), empty, empty, np.zeros(0, np.float32), empty > 0)
        self.total = self.summarize(Pairs(0, [], []), links)

    def __call__(self, pairs: Pairs, links: Links) -> list[CorpusStatistics]:
        return [self.summarize(pairs, links)]

    def summarize(self, pairs: Pairs, links: Links) -> CorpusStatistics:
        """Return what is to be known of a chunk."""
        n_src = np.array([len(words) for words in pairs.src], np.int64)
        n_tgt = np.array([len(words) for words in pairs.tgt], np.int64)
        pair = np.repeat(np.arange(len(n_src)), np.diff(links.offsets))
        scores = np.array(sentence_scores(pairs, links), np.float64)
        # A pair with an empty side has no links to judge: above 1 it is never among the worst.
        full = np.minimum(n_src, n_tgt) > 0
        worst = _lowest_places(np.where(full, scores, 2), self.worst)
        numbers = np.arange(pairs.first, pairs.first + len(scores))
        chosen = _lowest_places(hash_numbers(numbers), self.sample)
        return CorpusStatistics(
            len(scores),
            _count_links_per_word(n_src, pair, links.src),
            _count_links_per_word(n_tgt, pair, links.tgt),
            _score_histogram(links.score),
            _score_histogram(scores[full]),
            [_pick_pair(pairs, links, int(k), float(scores[k])) for k in worst if full[k]],
            [_pick_pair(pairs, links, int(k), float(scores[k])) for k in chosen],
        )

    def add(self, found: CorpusStatistics) -> CorpusStatistics:
        """Add what was found of a chunk; returns it with only those of its pairs that were kept,
        which is all that has to be remembered of it."""
        with self._lock:
            old = self.total
            worst = sorted(old.worst + found.worst, key=lambda one: (one.score, one.number))
            sample = old.sample + found.sample
            if self.sample is not None:
                # The lowest hashes of all pairs so far, whatever the chunks were: in the order of
                # the text again, so that the page lists them so.
                order = hash_numbers(np.array([one.number - 1 for one in sample], np.int64))
                sample = [sample[k] for k in np.sort(_lowest_places(order, self.sample))]
            self.total = CorpusStatistics(
                old.pairs + found.pairs,
                old.links_per_src + found.links_per_src,
                old.links_per_tgt + found.links_per_tgt,
                old.link_scores + found.link_scores,
                old.pair_scores + found.pair_scores,
                worst[: self.worst],
                sample,
            )
            return replace(
                found,
                worst=_intersect_pairs(found.worst, self.total.worst),
                sample=_intersect_pairs(found.sample, self.total.sample),
            )

    def encode_note(self, kept: CorpusStatistics) -> bytes:
        """Return what `add` returned as a line of JSON that `add_notes` understands."""
        values = {"of": self.sample, **vars(kept)}
        return json.dumps(values, default=_encode_value).encode() + b"\n"

    def add_notes(self, notes: Iterable[bytes]) -> None:
        """Add what an earlier run noted; afterwards nothing tells that there were two runs."""
        for line in notes:
            try:
                values = json.loads(line)
                of = values.pop("of")
                found = _decode_statistics(values)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise MxError(
                    "the notes for --report and --html are damaged; give --restart to begin anew"
                ) from None
            if self.sample and of < self.sample:
                begun = f"with --html-sample {of}" if of else "without --html"
                raise MxError(
                    f"the first run was begun {begun}; repeat its command, or give --restart to "
                    "begin anew"
                )
            self.add(found)

    def picked_pairs(self) -> list[PickedPair]:
        """Return the sample and the worst pairs, each once, in the order of the text."""
        by_number = {one.number: one for one in (*self.total.sample, *self.total.worst)}
        return [by_number[number] for number in sorted(by_number)]

    def report(self, scored: bool = True) -> dict[str, Any]:
        """Return the numbers, ready for JSON.

        `scored` says that links have scores of their own: without them, a pair's score is the share
        of its words that have a link.
        """
        total = self.total
        per_word = {"src": total.links_per_src, "tgt": total.links_per_tgt}
        names = [*map(str, range(MOST_LINKS)), f"{MOST_LINKS}+"]
        return {
            "pairs": total.pairs,
            "scored": scored,
            "links_per_word": {
                side: dict(zip(names, counts.tolist(), strict=True))
                for side, counts in per_word.items()
            },
            "unaligned": {
                side: round(float(counts[0] / max(counts.sum(), 1)), 6)
                for side, counts in per_word.items()
            },
            "link_scores": {"from": 0, "to": 1, "counts": total.link_scores.tolist()},
            "pair_scores": {"from": 0, "to": 1, "counts": total.pair_scores.tolist()},
            "worst": [
                {
                    "line": one.number,
                    "score": round(one.score, 4),
                    "src": " ".join(one.src),
                    "tgt": " ".join(one.tgt),
                    "links": format_links(one.links),
                }
                for one in total.worst
            ],
        }


def hash_numbers(numbers: IntArray) -> npt.NDArray[np.uint64]:
    """Return a hash of each number: well spread, the same everywhere (splitmix64)."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def _count_links_per_word(n_words: IntArray, pair: IntArray, word: IntArray) -> IntArray:
    """Return how many words have 0, 1, 2 ... links; the last place is for MOST_LINKS or more.

    Words are numbered through the chunk: with pairs of 2 and 3 words, word 1 of pair 1 is word 3.
    """
    starts = np.cumsum(n_words) - n_words
    n_links = np.bincount(starts[pair] + word, minlength=int(n_words.sum()))
    return np.bincount(np.minimum(n_links, MOST_LINKS), minlength=MOST_LINKS + 1)


def _score_histogram(scores: npt.NDArray[Any]) -> IntArray:
    bins = np.clip((np.asarray(scores, np.float64) * BINS).astype(np.int64), 0, BINS - 1)
    return np.bincount(bins, minlength=BINS)


def _lowest_places(values: npt.NDArray[Any], n: int | None) -> IntArray:
    """Return the places of the n lowest values, the earlier of equal ones; of all with None."""
    order = np.argsort(values, kind="stable")
    return order if n is None else order[:n]


def _pick_pair(pairs: Pairs, links: Links, k: int, score: float) -> PickedPair:
    part = slice(int(links.offsets[k]), int(links.offsets[k + 1]))
    return PickedPair(
        pairs.first + k + 1,
        tuple(pairs.src[k]),
        tuple(pairs.tgt[k]),
        list(zip(links.src[part].tolist(), links.tgt[part].tolist(), strict=True)),
        links.score[part].tolist(),
        score,
    )


def _intersect_pairs(some: list[PickedPair], others: list[PickedPair]) -> list[PickedPair]:
    numbers = {one.number for one in others}
    return [one for one in some if one.number in numbers]


# ---- notes ----


def _encode_value(value: Any) -> Any:
    """Return arrays and pairs as what JSON knows; its numbers come back exactly as they were."""
    return value.tolist() if isinstance(value, np.ndarray) else vars(value)


def _decode_statistics(values: dict[str, Any]) -> CorpusStatistics:
    counts = {name: np.array(values[name], np.int64) for name in _HISTOGRAMS}
    worst, sample = ([_decode_pair(pair) for pair in values[name]] for name in ("worst", "sample"))
    return CorpusStatistics(values["pairs"], **counts, worst=worst, sample=sample)


def _decode_pair(values: dict[str, Any]) -> PickedPair:
    words = {side: tuple(values[side]) for side in ("src", "tgt")}
    return PickedPair(**{**values, **words, "links": [(i, j) for i, j in values["links"]]})

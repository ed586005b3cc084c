"""Says what the links of a corpus look like as a whole: histograms, worst pairs, a fair sample.

Pairs are sampled by a hash of their number: which ones does not depend on chunks or threads. Does
not draw pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import MxError
from ..links.formats import sentence_scores
from ..types import IntArray, Links, Pairs
from .page import PairView

WORST = 20  # pairs
MOST_LINKS = 6  # words with as many links or more are counted together
BINS = 20  # of scores

_HISTOGRAMS = ("links_per_src", "links_per_tgt", "link_scores", "pair_scores")


@dataclass(frozen=True)
class CorpusStatistics:
    """Histograms of some pairs, and those of them worth showing."""

    pairs: int
    links_per_src: IntArray  # (MOST_LINKS + 1,) source words with 0, 1, 2 ... links
    links_per_tgt: IntArray
    link_scores: IntArray  # (BINS,) links by score
    pair_scores: IntArray  # (BINS,) pairs with words on both sides, by score
    picked: list[PairView]  # the worst ones and a sample, in the order of the text


class ReportCollector:
    """Summarizes chunks, in any thread, and adds up what it is given in the order of the text.

    As a `Renderer` it returns not an item per pair but one `CorpusStatistics` for the chunk.
    """

    def __init__(self, sample: int | None = 0) -> None:
        self.sample = sample  # None: all pairs
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
        full = np.minimum(n_src, n_tgt) > 0
        numbers = np.arange(len(scores)) + pairs.first + 1
        picked = self._pick_places(numbers, np.where(full, scores, np.nan))
        return CorpusStatistics(
            len(scores),
            _count_links_per_word(n_src, pair, links.src),
            _count_links_per_word(n_tgt, pair, links.tgt),
            _score_histogram(links.score),
            _score_histogram(scores[full]),
            [_view_pair(pairs, links, k, float(scores[k])) for k in picked],
        )

    def add(self, found: CorpusStatistics) -> CorpusStatistics:
        """Add what was found of a chunk; returns it with only those of its pairs that were kept,
        which is all that has to be remembered of it."""
        old, picked = self.total, self.total.picked + found.picked
        numbers = np.array([one.number for one in picked], np.int64)
        scores = np.array([one.score if one.src and one.tgt else np.nan for one in picked])
        self.total = CorpusStatistics(
            old.pairs + found.pairs,
            **{name: getattr(old, name) + getattr(found, name) for name in _HISTOGRAMS},
            picked=[picked[k] for k in self._pick_places(numbers, scores)],
        )
        kept = {one.number for one in self.total.picked}
        return replace(found, picked=[one for one in found.picked if one.number in kept])

    def _pick_places(self, numbers: IntArray, scores: npt.NDArray[np.float64]) -> list[int]:
        """Return the places of the worst pairs and of the sample; NaN has no links to judge.

        The lowest scores and hashes of all pairs are among those of its chunks: it can be asked
        again for what was picked of several chunks.
        """
        worst = np.argsort(scores, kind="stable")[:WORST]  # NaN comes last
        sample = np.argsort(_hash_numbers(numbers - 1), kind="stable")[: self.sample]
        places: list[int] = np.union1d(worst[~np.isnan(scores[worst])], sample).tolist()
        return places

    def encode_note(self, kept: CorpusStatistics) -> bytes:
        """Return what `add` returned as a line of JSON that `add_notes` understands."""
        values = {"of": self.sample, **vars(kept)}
        values |= {name: values[name].tolist() for name in _HISTOGRAMS}
        # Floats come back from JSON exactly as they were.
        return json.dumps(values, default=vars).encode() + b"\n"

    def add_notes(self, notes: Iterable[bytes]) -> None:
        """Add what an earlier run noted; afterwards nothing tells that there were two runs."""
        for line in notes:
            try:
                values = json.loads(line)
                of = values["of"]
                counts = {name: np.array(values[name], np.int64) for name in _HISTOGRAMS}
                picked = [PairView(**pair) for pair in values["picked"]]
                found = CorpusStatistics(values["pairs"], **counts, picked=picked)
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

    def report(self, scored: bool = True) -> dict[str, Any]:
        """Return the numbers, ready for JSON.

        `scored` says that links have scores of their own: without them, a pair's score is the share
        of its words that have a link.
        """
        total = self.total
        judged = [one for one in total.picked if one.src and one.tgt]
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
                    "links": " ".join(f"{i}-{j}" for i, j in one.links),
                }
                for one in sorted(judged, key=lambda one: one.score)[:WORST]
            ],
        }


def _hash_numbers(numbers: IntArray) -> npt.NDArray[np.uint64]:
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


def _view_pair(pairs: Pairs, links: Links, k: int, score: float) -> PairView:
    part = slice(int(links.offsets[k]), int(links.offsets[k + 1]))
    return PairView(
        pairs.first + k + 1,
        tuple(pairs.src[k]),
        tuple(pairs.tgt[k]),
        list(zip(links.src[part].tolist(), links.tgt[part].tolist(), strict=True)),
        score,
        links.score[part].tolist(),
    )

"""What a corpus of links looks like as a whole: histograms, the worst pairs, a fair sample.
Knows `Pairs` and `Links`, a chunk at a time; drawing and writing are the matter of others.

Pairs are sampled by a hash of their number: which ones does not depend on chunks or threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import MxError
from ..types import IntArray, Link, Links, Pairs

WORST = 20
MOST_LINKS = 6  # words with as many links or more are counted together
BINS = 20  # of scores

_COUNTED = ("links_per_src", "links_per_tgt", "link_scores", "pair_scores")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Picked:
    """A pair that was kept, with its links; `number` is its line, from 1."""

    number: int
    src: tuple[str, ...]
    tgt: tuple[str, ...]
    links: list[Link]
    scores: list[float]
    score: float


@dataclass(frozen=True)
class Digest:
    """Counts of some pairs; two can be added."""

    pairs: int
    links_per_src: IntArray
    links_per_tgt: IntArray
    link_scores: IntArray
    pair_scores: IntArray
    worst: list[Picked] = field(default_factory=list)
    sample: list[Picked] = field(default_factory=list)


class Collector:
    """Digests chunks, in any thread, and adds up what it is given back in the order of the text.

    As a `Render` it gives not an item per pair but one `Digest` for the chunk.
    """

    def __init__(self, sample: int | None = 0, worst: int = WORST) -> None:
        self.sample = sample  # None: all pairs
        self.worst = worst
        self._lock = threading.Lock()
        empty = np.zeros(0, np.int64)
        links = Links(np.zeros(1, np.int64), empty, empty, np.zeros(0, np.float32), empty > 0)
        self.total = self.digest(Pairs(0, [], []), links)

    def __call__(self, pairs: Pairs, links: Links) -> list[Digest]:
        return [self.digest(pairs, links)]

    def digest(self, pairs: Pairs, links: Links) -> Digest:
        """What is to be known of a chunk."""
        src_words = np.array([len(words) for words in pairs.src], np.int64)
        tgt_words = np.array([len(words) for words in pairs.tgt], np.int64)
        pair = np.repeat(np.arange(len(src_words)), np.diff(links.offsets))
        src_links, src_best = _per_word(src_words, links.src, pair, links.score)
        tgt_links, tgt_best = _per_word(tgt_words, links.tgt, pair, links.score)
        words = src_words + tgt_words
        scores = (src_best + tgt_best) / np.maximum(words, 1)
        full = np.minimum(src_words, tgt_words) > 0
        worst = _lowest(np.where(full, scores, 2), self.worst)
        numbers = np.arange(pairs.first, pairs.first + len(words))
        chosen = _lowest(mixed(numbers), self.sample)
        return Digest(
            len(words),
            _counted(src_links),
            _counted(tgt_links),
            _histogram(links.score),
            _histogram(scores[full]),
            [_pick(pairs, links, int(k), float(scores[k])) for k in worst if full[k]],
            [_pick(pairs, links, int(k), float(scores[k])) for k in chosen],
        )

    def add(self, digest: Digest) -> Digest:
        """Count a digest; gives it back with only those of its pairs that were kept, which is all
        that has to be remembered of it."""
        with self._lock:
            old = self.total
            worst = sorted(old.worst + digest.worst, key=lambda one: (one.score, one.number))
            sample = old.sample + digest.sample
            if self.sample is not None:
                order = mixed(np.array([one.number - 1 for one in sample], np.int64))
                sample = [sample[k] for k in np.sort(_lowest(order, self.sample))]
            self.total = Digest(
                old.pairs + digest.pairs,
                old.links_per_src + digest.links_per_src,
                old.links_per_tgt + digest.links_per_tgt,
                old.link_scores + digest.link_scores,
                old.pair_scores + digest.pair_scores,
                worst[: self.worst],
                sample,
            )
            return replace(
                digest,
                worst=_common(digest.worst, self.total.worst),
                sample=_common(digest.sample, self.total.sample),
            )

    def note(self, kept: Digest) -> bytes:
        """What `add` gave back, as a line of JSON that `recall` understands."""
        values = {"of": self.sample, **vars(kept)}
        return json.dumps(values, default=_plain).encode() + b"\n"

    def recall(self, notes: Iterable[bytes]) -> None:
        """Add what an earlier run noted; afterwards nothing tells that there were two runs."""
        for line in notes:
            try:
                values = json.loads(line)
                of = values.pop("of")
                digest = _recalled(values)
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
            self.add(digest)

    def picked(self) -> list[Picked]:
        """The sample and the worst pairs, each once, in the order of the text."""
        by_number = {one.number: one for one in (*self.total.sample, *self.total.worst)}
        return [by_number[number] for number in sorted(by_number)]

    def report(self, scored: bool = True) -> dict[str, Any]:
        """The numbers, ready for JSON. `scored` says that links have scores of their own: without
        them, a pair's score is the share of its words that have a link."""
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
            "worst": [_row(one) for one in total.worst],
        }


def mixed(numbers: IntArray) -> npt.NDArray[np.uint64]:
    """A hash of each number: well spread, the same everywhere (splitmix64)."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def _per_word(
    n_words: IntArray, word: IntArray, pair: IntArray, score: npt.NDArray[np.float32]
) -> tuple[IntArray, Floats]:
    """Links of each word of the chunk, and of each pair the sum of its words' best scores."""
    starts = np.cumsum(n_words) - n_words
    place = starts[pair] + word
    total = int(n_words.sum())
    best = np.zeros(total)
    np.maximum.at(best, place, score.astype(np.float64))
    owner = np.repeat(np.arange(len(n_words)), n_words)
    sums = np.zeros(len(n_words))
    np.add.at(sums, owner, best)
    return np.bincount(place, minlength=total), sums


def _counted(n_links: IntArray) -> IntArray:
    return np.bincount(np.minimum(n_links, MOST_LINKS), minlength=MOST_LINKS + 1)


def _lowest(values: npt.NDArray[Any], n: int | None) -> IntArray:
    """Places of the n lowest values, the earlier of equal ones."""
    order = np.argsort(values, kind="stable")
    return order if n is None else order[:n]


def _histogram(scores: npt.NDArray[Any]) -> IntArray:
    bins = np.clip((np.asarray(scores, np.float64) * BINS).astype(np.int64), 0, BINS - 1)
    return np.bincount(bins, minlength=BINS)


def _pick(pairs: Pairs, links: Links, k: int, score: float) -> Picked:
    part = slice(int(links.offsets[k]), int(links.offsets[k + 1]))
    return Picked(
        pairs.first + k + 1,
        tuple(pairs.src[k]),
        tuple(pairs.tgt[k]),
        list(zip(links.src[part].tolist(), links.tgt[part].tolist(), strict=True)),
        links.score[part].tolist(),
        score,
    )


def _common(some: list[Picked], others: list[Picked]) -> list[Picked]:
    numbers = {one.number for one in others}
    return [one for one in some if one.number in numbers]


def _plain(value: Any) -> Any:
    """Arrays and picked pairs as what JSON knows; its numbers come back exactly as they were."""
    return value.tolist() if isinstance(value, np.ndarray) else vars(value)


def _recalled(values: dict[str, Any]) -> Digest:
    counts = {name: np.array(values[name], np.int64) for name in _COUNTED}
    worst, sample = (list(map(_picked, values[name])) for name in ("worst", "sample"))
    return Digest(values["pairs"], **counts, worst=worst, sample=sample)


def _picked(values: dict[str, Any]) -> Picked:
    words = {side: tuple(values[side]) for side in ("src", "tgt")}
    return Picked(**{**values, **words, "links": [(i, j) for i, j in values["links"]]})


def _row(one: Picked) -> dict[str, Any]:
    return {
        "line": one.number,
        "score": round(one.score, 4),
        "src": " ".join(one.src),
        "tgt": " ".join(one.tgt),
        "links": " ".join(f"{i}-{j}" for i, j in one.links),
    }

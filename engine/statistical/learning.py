"""Seed links by statistics alone: two HMM aligners that are taught to agree, in NumPy.
Knows what is learned and how it is used; text as arrays is seed_text's matter, the recursion
seed_hmm's, word beginnings seed_prior's, files and flags seed_cli's.

The model: Vogel's HMM (1996) with Och and Ney's empty word (2003), one in each direction, whose
expected counts are the product of both posteriors (Liang, Taskar and Klein, 2006). Rare words
lean on a table over word beginnings and on words that begin alike in both languages.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from ..errors import InputError, MxError
from ..text.files import atomic_write
from .blocks import (
    PADDING,
    Block,
    Floats,
    Ints,
    Pair,
    Side,
    Vocabulary,
    by_block,
    cell_keys,
    encode,
    ids_of,
    make_blocks,
    make_groups,
    merged,
    pair_keys,
    sample,
    thinned,
)
from .hmm import Direction, Moves, Pairing, smoothed
from .spelling import Prior, beginnings, find, shares

SeedLink = tuple[int, int, float]
Progress = Callable[[str], None]
# Counts are kept in single precision for this many cells, then added to double ones.
_FLUSH_CELLS = 24_000_000
# What an impossible translation is worth: small, yet a forced path stays finite.
_FLOOR = 1e-8


@dataclass(frozen=True)
class SeedConfig:
    """How to learn. The defaults were measured; see docs/seed.md."""

    lowercase: bool = False
    max_pairs: int = 1_000_000  # of a longer text, an even sample of at least half as many
    max_cells: int = 100_000_000  # the same for source words x target words, over all pairs
    max_words: int = 100  # pairs with a longer side teach nothing, but are aligned
    ibm1_rounds: int = 4
    hmm_rounds: int = 6
    null_prob: float = 0.2
    max_jump: int = 8  # longer jumps share one probability
    jump_smoothing: float = 0.05
    prefix_length: int = 4
    prefix_weight: float = 6.0  # pseudo-counts per word from the table of word beginnings
    cognate_weight: float = 1.0  # pseudo-counts of a pair of words that begin alike


# ---- learning ----


class _Learner:
    """The text with a parameter number in each cell, and the parameters. Parameter 0 stands in
    padding and is worth nothing; the others are numbered by frequency, which keeps the busy ones
    together in the cache."""

    def __init__(
        self,
        src: Side,
        tgt: Side,
        words: tuple[Vocabulary, Vocabulary],
        config: SeedConfig,
        report: Progress,
    ) -> None:
        self.config, self.report = config, report
        self.sides = src, tgt
        blocks = make_blocks(src.lengths, tgt.lengths)
        self.groups = make_groups(blocks)
        self.cells = _on_disk(sum(block.cells for block in blocks))
        self.occurrences = tuple(
            np.bincount(side.ids, minlength=len(vocabulary.words))
            for side, vocabulary in zip(self.sides, words, strict=True)
        )
        self.src_of, self.tgt_of = self._number_cells()
        self.fwd = np.ones(len(self.src_of), np.float32)
        self.fwd[0] = 0
        self.bwd = self.fwd.copy()
        self.totals: tuple[Any, Any] = (None, None)
        self._group_by_beginning(words)
        self.pairing = self._first_pairing()

    def _number_cells(self) -> tuple[Ints, Ints]:
        """Fill self.cells; the source and the target word of each parameter."""
        keys, order = self._pairs_by_frequency()
        rank = np.empty(len(keys), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        start = 0
        for group in self.groups:
            found, place = np.unique(cell_keys(group, *self.sides), return_inverse=True)
            numbers = rank[np.searchsorted(keys, found)]
            self.cells[start : start + len(place)] = numbers[place]
            start += len(place)
        src, tgt = ids_of(keys[order])
        return src.astype(np.int32), tgt.astype(np.int32)

    def _pairs_by_frequency(self) -> tuple[Ints, Ints]:
        """Sorted keys of all pairs of words that meet, and their order: padding, then by count."""
        keys, counts = np.array([PADDING]), np.zeros(1, np.int64)
        for group in self.groups:
            found = np.unique(cell_keys(group, *self.sides), return_counts=True)
            keys, counts = merged(keys, counts, *found)
        counts[0] = np.iinfo(np.int64).max
        return keys, np.argsort(-counts, kind="stable")

    def _group_by_beginning(self, words: tuple[Vocabulary, Vocabulary]) -> None:
        known: dict[str, int] = {}
        length = self.config.prefix_length
        src, tgt = (beginnings(vocabulary.words, length, known) for vocabulary in words)
        keys = pair_keys(src[self.src_of], tgt[self.tgt_of])
        keys, class_of = np.unique(keys, return_inverse=True)
        self.class_of = class_of.astype(np.int32)
        weights = self.config.prefix_weight, self.config.cognate_weight
        of_words = shares(self.occurrences[0], src), shares(self.occurrences[1], tgt)
        none = np.zeros(0)
        self.prior = Prior(*weights, src, tgt, *of_words, keys, none, none)

    def _first_pairing(self) -> Pairing:
        max_jump = self.config.max_jump
        jump = np.exp(-0.5 * np.abs(np.arange(-max_jump, max_jump + 1) - 1)).astype(np.float32)
        end = np.exp(-0.5 * np.arange(max_jump + 1)).astype(np.float32)
        # Before anything is known, every translation is worth 1 and so is the empty word.
        fwd, bwd = (
            Direction(np.ones(len(n) + 1, np.float32), jump, end, end)
            for n in reversed(self.occurrences)
        )
        return Pairing(fwd, bwd, self.config.null_prob)

    def run(self) -> None:
        config = self.config
        for n in range(config.ibm1_rounds + config.hmm_rounds):
            self.pairing.hmm = n >= config.ibm1_rounds
            self.report(f"round {n + 1} of {config.ibm1_rounds + config.hmm_rounds}")
            self._update(*self._expect())

    def _expect(self) -> tuple[npt.NDArray[np.float64], tuple[Moves, Moves]]:
        """Expected counts of each parameter, both directions agreeing, and of the moves."""
        counts = np.zeros(len(self.fwd))
        moves = Moves.zero(self.config.max_jump), Moves.zero(self.config.max_jump)
        recent, n_recent = np.zeros(len(counts), np.float32), 0
        for block, cells in by_block(chain.from_iterable(self.groups), self.cells):
            emissions = self.fwd[cells], self.bwd[cells]
            fwd, bwd = self.pairing.posteriors(
                block, self.sides, emissions, moves if self.pairing.hmm else None
            )
            np.add.at(recent, cells.ravel(), (fwd * bwd).ravel())
            n_recent += block.cells
            if n_recent > _FLUSH_CELLS:
                counts += recent
                recent[:], n_recent = 0, 0
        counts += recent
        counts[0] = 0
        return counts, moves

    def _update(self, counts: npt.NDArray[np.float64], moves: tuple[Moves, Moves]) -> None:
        self.counts = counts
        by_class = np.bincount(self.class_of, counts, len(self.prior.keys))
        self.prior.update(by_class.astype(np.float64))
        fwd, bwd = self.prior.counts_at(self.class_of, self.src_of, self.tgt_of)
        fwd += counts
        bwd += counts
        n_src, n_tgt = map(len, self.occurrences)
        self.fwd, src_total = _normal(fwd, self.src_of, n_src)
        self.bwd, tgt_total = _normal(bwd, self.tgt_of, n_tgt)
        # Words that were met only in pairs not sampled count once, as new words do.
        self.totals = np.where(src_total > 0, src_total, 1), np.where(tgt_total > 0, tgt_total, 1)
        self.pairing.fwd.null = self._null(self.occurrences[1], self.tgt_of)
        self.pairing.bwd.null = self._null(self.occurrences[0], self.src_of)
        if self.pairing.hmm:
            for direction, seen in zip((self.pairing.fwd, self.pairing.bwd), moves, strict=True):
                share = self.config.jump_smoothing
                direction.jump = smoothed(seen.jump, share, (0, -1))
                direction.start = smoothed(seen.start, share, (-1,))
                direction.end = smoothed(seen.end, share, (-1,))

    def _null(self, occurrences: Ints, word_of: Ints) -> Floats:
        """Probability of each word given the empty word: what the links leave over of it."""
        linked = np.bincount(word_of, self.counts, len(occurrences))
        left = np.maximum(occurrences - linked, 0)
        total = max(left.sum(), 1.0)
        null = np.append(left / total, 1 / total)  # last: a word never seen
        return np.maximum(null, 1e-9).astype(np.float32)


def _on_disk(n: int) -> npt.NDArray[np.int32]:
    """Room for n numbers in a file, which the system may drop from memory while it needs others.
    The file has no name in its folder, so that nothing stays there however the process ends."""
    size = n * np.dtype(np.int32).itemsize
    folder = "the temporary folder"
    try:
        folder = tempfile.gettempdir()  # writes to see where it can
        with tempfile.TemporaryFile(prefix="mx-seed-") as file:
            if hasattr(os, "posix_fallocate"):
                # A mapped file with holes kills the process (SIGBUS) when the disk gets full.
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, np.int32, "r+", shape=n)
    except OSError as error:
        raise MxError(
            f"learning needs a temporary file of {size / 1e6:,.1f} MB in {folder}: "
            f"{error.strerror}; make room there or set TMPDIR to a folder on another disk"
        ) from error


def _normal(counts: npt.NDArray[Any], given: Ints, n: int) -> tuple[Floats, Any]:
    """Counts as probabilities given a word, and the total of each word."""
    counts[0] = 0
    totals = np.bincount(given, counts, n)
    out = np.maximum(counts / np.maximum(totals, 1e-9)[given], _FLOOR).astype(np.float32)
    out[0] = 0
    return out, totals


# ---- the model ----

_FORMAT = 1
_ARRAYS = ("keys", "fwd", "bwd", "src_totals", "tgt_totals")
_PRIOR_ARRAYS = ("src_class", "tgt_class", "src_share", "tgt_share", "keys", "fwd", "bwd")


def _packed(strings: Sequence[str]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Strings as UTF-8 bytes and where each one ends."""
    encoded = [string.encode() for string in strings]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def _strings(packed: npt.NDArray[np.uint8], ends: Ints) -> list[str]:
    data = packed.tobytes()
    return [data[start:end].decode() for start, end in pairwise([0, *ends.tolist()])]


@dataclass
class SeedModel:
    """What was learned from a text; aligns that text or any other of the same languages."""

    config: SeedConfig
    src_words: list[str]
    tgt_words: list[str]
    keys: Ints  # sorted pairs of word ids that were linked
    fwd: Floats  # (keys,) target word given source word
    bwd: Floats
    src_totals: npt.NDArray[np.float64]  # (source words,) counts that fwd was divided by
    tgt_totals: npt.NDArray[np.float64]
    n_learned: int  # pairs it learned from
    _prior: Prior = field(repr=False)
    _pairing: Pairing = field(repr=False)

    @classmethod
    def learn(
        cls,
        pairs: Iterable[Pair],
        config: SeedConfig | None = None,
        *,
        report: Progress = lambda message: None,
    ) -> SeedModel:
        """From pairs of sentences as lists of words, read once. The same pairs give the same
        model. `report` is told what is being done."""
        config = config or SeedConfig()
        words = Vocabulary(config.lowercase), Vocabulary(config.lowercase)
        src, tgt, n_read = sample(pairs, config.max_pairs, *words)
        src, tgt = thinned(src, tgt, config.max_words, config.max_cells)
        n_learned = len(src.offsets) - 1
        if not n_learned:
            raise InputError(
                f"no pair has 1 to {config.max_words} words on both sides; "
                "there is nothing to learn from"
            )
        report(f"learning from {n_learned:,} of {n_read:,} pairs")
        learner = _Learner(src, tgt, words, config, report)
        learner.run()
        return cls._from(learner, words, n_learned)

    @classmethod
    def _from(
        cls, learner: _Learner, words: tuple[Vocabulary, Vocabulary], n_learned: int
    ) -> SeedModel:
        """Keeps the parameters that say more than the prior, by key."""
        kept = np.flatnonzero(learner.counts > 1e-3)
        keys = pair_keys(learner.src_of[kept], learner.tgt_of[kept])
        order = np.argsort(keys)
        kept = kept[order]
        return cls(
            learner.config,
            words[0].words,
            words[1].words,
            keys[order],
            learner.fwd[kept],
            learner.bwd[kept],
            *learner.totals,
            n_learned,
            learner.prior.pruned(),
            learner.pairing,
        )

    def align(
        self, pairs: Iterable[Pair], *, threshold: float = 0.4, chunk: int = 10_000
    ) -> Iterator[list[SeedLink]]:
        """For each pair its links (source word, target word, confidence), sorted; none where a
        side is empty. Confidence is the geometric mean of both directions' posteriors."""
        stream = iter(pairs)
        while held := list(islice(stream, chunk)):
            yield from self._links(held, threshold)

    def save(self, path: str | Path) -> None:
        """Into one .npz file, without pickle."""
        pairing, prior = self._pairing, self._prior
        arrays: dict[str, Any] = {
            "format": np.array([_FORMAT]),
            "config": _packed([json.dumps(asdict(self.config))])[0],
            "n_learned": np.array([self.n_learned]),
            **dict(zip(("src_words", "src_ends"), _packed(self.src_words), strict=True)),
            **dict(zip(("tgt_words", "tgt_ends"), _packed(self.tgt_words), strict=True)),
            **{name: getattr(self, name) for name in _ARRAYS},
            **{f"prior_{name}": getattr(prior, name) for name in _PRIOR_ARRAYS},
            **{f"fwd_{f.name}": getattr(pairing.fwd, f.name) for f in fields(pairing.fwd)},
            **{f"bwd_{f.name}": getattr(pairing.bwd, f.name) for f in fields(pairing.bwd)},
        }
        with atomic_write(path) as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> SeedModel:
        """What `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            if arrays["format"].tolist() != [_FORMAT]:
                raise InputError(f"{path} is a seed model of another version; learn it again")
            return cls._unpacked(arrays)
        except FileNotFoundError:
            raise InputError(f"{path} does not exist; write it with mx-seed --save") from None
        except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
            raise InputError(f"{path} is not a seed model ({error}); learn it again") from error

    @classmethod
    def _unpacked(cls, arrays: dict[str, Any]) -> SeedModel:
        config = SeedConfig(**json.loads(arrays["config"].tobytes()))
        fwd, bwd = (
            Direction(**{f.name: arrays[f"{side}_{f.name}"] for f in fields(Direction)})
            for side in ("fwd", "bwd")
        )
        prior = {name: arrays[f"prior_{name}"] for name in _PRIOR_ARRAYS}
        return cls(
            config=config,
            src_words=_strings(arrays["src_words"], arrays["src_ends"]),
            tgt_words=_strings(arrays["tgt_words"], arrays["tgt_ends"]),
            n_learned=int(arrays["n_learned"][0]),
            _prior=Prior(config.prefix_weight, config.cognate_weight, **prior),
            _pairing=Pairing(fwd, bwd, config.null_prob, config.hmm_rounds > 0),
            **{name: arrays[name] for name in _ARRAYS},
        )

    @cached_property
    def _beginnings(self) -> dict[str, int]:
        known: dict[str, int] = {}
        for words in (self.src_words, self.tgt_words):
            beginnings(words, self.config.prefix_length, known)
        return known

    def _links(self, pairs: Sequence[Pair], threshold: float) -> Iterator[list[SeedLink]]:
        lowercase = self.config.lowercase
        src, tgt = Vocabulary(lowercase, self.src_words), Vocabulary(lowercase, self.tgt_words)
        sides = encode([pair[0] for pair in pairs], src), encode([pair[1] for pair in pairs], tgt)
        look_up = _LookUp(self, src.words[len(self.src_words) :], tgt.words[len(self.tgt_words) :])
        found = [
            _confident(block, self._pairing.posteriors(block, sides, emissions), threshold)
            for group in make_groups(make_blocks(sides[0].lengths, sides[1].lengths))
            for block, emissions in look_up.emissions(group, sides)
        ]
        none = np.zeros(0, np.int64)
        columns = zip((none, none, none, none.astype(np.float32)), *found, strict=True)
        rows, i, j, score = (np.concatenate(column) for column in columns)
        order = np.lexsort((j, i, rows))
        ends = np.searchsorted(rows[order], np.arange(len(pairs) + 1))
        links = list(zip(i[order].tolist(), j[order].tolist(), score[order].tolist(), strict=True))
        for start, end in pairwise(ends.tolist()):
            yield links[start:end]


def _confident(
    block: Block, posteriors: tuple[Floats, Floats], threshold: float
) -> tuple[Ints, Ints, Ints, Floats]:
    """Row, source word, target word and confidence of each link."""
    score = np.sqrt(posteriors[0] * posteriors[1])
    j, b, i = np.nonzero(score >= threshold)
    return block.rows[b], i, j, np.minimum(score[j, b, i], 1)


class _LookUp:
    """Translations for a text that may hold words and pairs of words the model never met."""

    def __init__(self, model: SeedModel, new_src: list[str], new_tgt: list[str]) -> None:
        self.model = model
        known, length = dict(model._beginnings), model.config.prefix_length
        new = beginnings(new_src, length, known), beginnings(new_tgt, length, known)
        self.prior = model._prior.with_new(*new)
        self.src_totals = np.pad(model.src_totals, (0, len(new_src)), constant_values=1)
        self.tgt_totals = np.pad(model.tgt_totals, (0, len(new_tgt)), constant_values=1)

    def emissions(
        self, group: Sequence[Block], sides: tuple[Side, Side]
    ) -> Iterator[tuple[Block, tuple[Floats, Floats]]]:
        """Each block with its translation probabilities by fwd and bwd, (T, B, S)."""
        keys, place = np.unique(cell_keys(group, *sides), return_inverse=True)
        fwd, bwd = self._values(keys)
        for block, cells in by_block(group, place):
            yield block, (fwd[cells], bwd[cells])

    def _values(self, keys: Ints) -> tuple[Floats, Floats]:
        """What each pair of words is worth: as learned, or what its prior alone gives."""
        place, known = find(self.model.keys, keys)
        src, tgt = ids_of(keys)
        fwd, bwd = self.prior.counts(src, tgt)

        def worth(learned: Floats, counts: npt.NDArray[Any], totals: npt.NDArray[Any]) -> Floats:
            guess = np.clip(counts / np.maximum(totals, 1e-3), _FLOOR, 1)
            found = np.where(known, learned[place], guess).astype(np.float32)
            found[keys == PADDING] = 0
            return found

        return (
            worth(self.model.fwd, fwd, self.src_totals[src]),
            worth(self.model.bwd, bwd, self.tgt_totals[tgt]),
        )

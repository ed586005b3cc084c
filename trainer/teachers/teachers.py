"""Teachers: whatever says which words of a text belong together, and how sure it is of that.

The statistical aligner, files of links, bundles and run folders, and the mean of any mix of them.
Does not know where the links are kept.
"""

import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from ...engine.alignment import unzip_pairs
from ...engine.bundle.bundle import Bundle
from ...engine.errors import InputError, MxError
from ...engine.links.average import LinkTable, average_links
from ...engine.links.link_files import parse_scored_links
from ...engine.text.files import count_lines, read_lines
from ...engine.text.words import normalize_word
from ...engine.types import ScoredLink
from ..config import STATISTICAL, RunConfig, TrainConfig
from ..networks.weights import check_trained

Pair = tuple[list[str], list[str]]
Report = Callable[[str], None]

LEAST = 0.2  # links of which the teachers are less sure teach nothing; judged, not measured
CHUNK = 4096  # pairs that are aligned together


class Teacher(Protocol):
    """Whatever aligns."""

    def align(self, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        """Yield the links of each pair, in order, with weights from 0 to 1."""
        ...


def open_teacher(
    name: str,
    learn_from: Callable[[], Iterator[Pair]],
    config: RunConfig,
    report: Report,
    langs: str | None = None,
) -> Teacher:
    """Open the teacher of that name: `statistical`, which learns from the text first, or a path.

    Exported models are turned round if the text's languages are theirs in the other order.
    """
    if name == STATISTICAL:
        report("learning links with the statistical aligner")
        return StatisticalTeacher(learn_from(), config.train, report)
    path = Path(name)
    if (path / "config.json").exists():
        return RunTeacher(path)
    return LinkFileTeacher(path) if is_link_file(name) else BundleTeacher(path, langs, report)


def is_link_file(name: str) -> bool:
    """Tell whether a teacher is a file of links, which knows the training text and no other."""
    path = Path(name)
    other = path.is_dir() or path.suffix == ".mx" or zipfile.is_zipfile(path)
    return name != STATISTICAL and not other


def check_teacher(name: str, count: Callable[[], int]) -> None:
    """Raise an error for a teacher that cannot teach, as far as that is quickly seen.

    `count` gives the number of pairs of the text.
    """
    path = Path(name)
    if name == STATISTICAL:
        return
    if (path / "config.json").exists():
        check_trained(path)
    elif not is_link_file(name):
        Bundle.load(path)
    elif (lines := count_lines(path)) != (pairs := count()):
        raise InputError(
            f"{path} has {lines:,} lines but the text has {pairs:,} pairs; "
            "a teacher needs a line of links for each pair, empty if it has none"
        )


class StatisticalTeacher:
    """The statistical aligner, which sees the words as the network will."""

    def __init__(self, pairs: Iterable[Pair], config: TrainConfig, report: Report) -> None:
        from ...engine.statistical.aligner import StatisticalAligner

        self.config = config
        src, tgt = unzip_pairs(self.normalize_pairs(pairs))
        self.aligner = StatisticalAligner.learn(src, tgt, on_progress=report)

    def align(self, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        for found in self.aligner.align(*unzip_pairs(self.normalize_pairs(pairs))):
            links = zip(found.links, found.scores, strict=True)
            yield [(i, j, score) for (i, j), score in links]

    def normalize_pairs(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the words of each pair as the network sees them."""
        kind = self.config.lowercase, self.config.fold_accents
        for src, tgt in pairs:
            yield (
                [normalize_word(word, *kind) for word in src],
                [normalize_word(word, *kind) for word in tgt],
            )


class LinkFileTeacher:
    """Links of the training text in a file: `i-j`, with a score (`i-j:0.9`) if there is one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def align(self, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        number = 0
        lines = read_lines(self.path)
        for number, (src, tgt) in enumerate(pairs, 1):
            line = next(lines, None)
            if line is None:
                raise InputError(
                    f"{self.path} ends after {number - 1:,} lines but the text goes on; "
                    "a teacher needs a line of links for each pair, empty if it has none"
                )
            # Links that do not fit would teach nonsense without a word: the file of another text.
            where = f"{self.path} line {number}"
            links = parse_scored_links(line, where=where)
            for i, j, _ in links:
                if i >= len(src) or j >= len(tgt):
                    raise InputError(
                        f"{where}: link {i}-{j} is outside its sentences of {len(src)} and "
                        f"{len(tgt)} words; words count from 0, source first"
                    )
            yield [(i, j, min(max(score, 0.0), 1.0)) for i, j, score in links]
        if next(lines, None) is not None:
            raise InputError(f"{self.path} has more lines than the text, which has {number:,}")


class BundleTeacher:
    """A model made by mx-export; the weight of a link is its calibrated probability."""

    def __init__(
        self, path: Path, langs: str | None = None, report: Report = lambda text: None
    ) -> None:
        from ...engine.aligner import Aligner

        # With the threshold for recall: unsure links count little, but better than not at all.
        self.aligner = Aligner.load(path, langs=langs, optimize_for="recall")
        bundle = self.aligner.bundle
        has_languages = bundle.languages != ("und", "und")
        if langs and has_languages and not bundle.language_order(langs):
            report(f"{path} is a model for {' and '.join(bundle.language_pairs)}, not for {langs}")
        elif has_languages and not langs:
            src, tgt = (side.replace("+", " or ") for side in bundle.languages)
            report(f"{path} reads SRC as {src} and TGT as {tgt}; --langs turns it round")

    def align(self, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        stream = iter(pairs)
        while chunk := list(islice(stream, CHUNK)):
            src, tgt = zip(*chunk, strict=True)
            for found in self.aligner.align_batch(src, tgt):
                weights = self.aligner.bundle.calibrate(found.scores).tolist()
                yield [(i, j, w) for (i, j), w in zip(found.links, weights, strict=True)]


class RunTeacher:
    """A model of mx-train; a link at the run's threshold weighs a half, one of twice that, one.

    Of pairs longer than those it learned from it says nothing.
    """

    def __init__(self, run: Path) -> None:
        import torch

        from ..data.vocabulary import load_tokenizers
        from ..networks.weights import load_network

        self.model, config = load_network(run)
        self.tokenizers = load_tokenizers(run, config)
        self.threshold, self.longest = config.train.threshold, config.train.max_length
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model.to(self.device)

    def align(self, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        from ..networks.word_scores import word_scores

        stream = iter(pairs)
        while chunk := list(islice(stream, CHUNK)):
            src, tgt = [s for s, _ in chunk], [t for _, t in chunk]
            found: list[list[ScoredLink]] = [[] for _ in chunk]
            for k, scores in word_scores(
                self.model, src, tgt, self.tokenizers, self.device, self.longest
            ):
                weights = np.minimum(scores / (2 * self.threshold), 1.0)
                places = np.argwhere(weights >= LEAST)
                found[k] = [(int(i), int(j), float(weights[i, j])) for i, j in places]
            yield from found


def average_teachers(streams: Sequence[Iterable[list[ScoredLink]]]) -> Iterator[list[ScoredLink]]:
    """Yield the mean of what the teachers say; a link that one does not have weighs 0 there."""
    if not streams:
        raise MxError("there is no teacher")
    every = zip(*streams, strict=True)
    while chunk := list(islice(every, CHUNK)):
        tables = [
            LinkTable.from_rows([(k, *link) for k, links in enumerate(one) for link in links])
            for one in zip(*chunk, strict=True)
        ]
        found: list[list[ScoredLink]] = [[] for _ in chunk]
        columns = (column.tolist() for column in average_links(tables))
        for k, i, j, weight in zip(*columns, strict=True):
            if weight >= LEAST:
                found[k].append((i, j, weight))
        yield from found

"""Teachers: whatever says which words of a text belong together, and how sure it is of that.

Knows the statistical aligner, files of links, bundles and run folders, and makes one stream of
weighted links of any mix of them. Where the links are kept is the matter of `corpus.py`.
"""

import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from ...engine.bundle.bundle import Bundle
from ...engine.errors import InputError, MxError
from ...engine.links.link_files import parse_scored
from ...engine.text.files import count_lines, read_lines
from ...engine.text.words import visible
from ...engine.types import ScoredLink
from ..config import RunConfig, TrainConfig
from ..run.checkpoint import check_trained

Pair = tuple[list[str], list[str]]
Report = Callable[[str], None]

SEED = "seed"
LEAST = 0.2  # links of which the teachers are less sure teach nothing
CHUNK = 4096


class Teacher(Protocol):
    """Links (source word, target word, weight from 0 to 1) for each pair, in order."""

    def align(self, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]: ...


def open_teacher(
    name: str,
    learn_from: Callable[[], Iterator[Pair]],
    config: RunConfig,
    report: Report,
    langs: str | None = None,
) -> Teacher:
    """The teacher of that name: `seed`, which learns from the text first, or a path. Exported
    models are turned round if the text's languages are theirs in the other order."""
    if name == SEED:
        report("learning seed links with the statistical aligner")
        return SeedTeacher(learn_from(), config.train, report)
    path = Path(name)
    if (path / "config.json").exists():
        return RunTeacher(path)
    return LinkFile(path) if is_bound_to_text(name) else BundleTeacher(path, langs, report)


def is_bound_to_text(name: str) -> bool:
    """Whether a teacher is a file of links, which knows the training text and no other."""
    path = Path(name)
    other = path.is_dir() or path.suffix == ".mx" or zipfile.is_zipfile(path)
    return name != SEED and not other


def check(name: str, count: Callable[[], int]) -> None:
    """An error for a teacher that cannot teach, as far as that is quickly seen. `count` gives the
    pairs of the text."""
    path = Path(name)
    if name == SEED:
        return
    if (path / "config.json").exists():
        check_trained(path)
    elif not is_bound_to_text(name):
        Bundle.load(path)
    elif (lines := count_lines(path)) != (pairs := count()):
        raise InputError(
            f"{path} has {lines:,} lines but the text has {pairs:,} pairs; "
            "a teacher needs a line of links for each pair, empty if it has none"
        )


class SeedTeacher:
    """The statistical aligner, which sees the words as the network will."""

    def __init__(self, pairs: Iterable[Pair], config: TrainConfig, report: Report) -> None:
        from ...engine.statistical.learning import SeedModel

        self.config = config
        self.model = SeedModel.learn(self.seen(pairs), report=report)

    def align(self, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        return self.model.align(self.seen(pairs))

    def seen(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        kind = self.config.lowercase, self.config.fold_accents
        for src, tgt in pairs:
            yield [visible(word, *kind) for word in src], [visible(word, *kind) for word in tgt]


class LinkFile:
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
            where = f"{self.path} line {number}"
            yield self.checked(parse_scored(line, where=where), len(src), len(tgt), where)
        if next(lines, None) is not None:
            raise InputError(f"{self.path} has more lines than the text, which has {number:,}")

    def checked(
        self, links: list[ScoredLink], n_src: int, n_tgt: int, where: str
    ) -> list[ScoredLink]:
        for i, j, _ in links:
            if i >= n_src or j >= n_tgt:
                raise InputError(
                    f"{where}: link {i}-{j} is outside its sentences of {n_src} and {n_tgt} words; "
                    "words count from 0, source first"
                )
        return [(i, j, min(max(score, 0.0), 1.0)) for i, j, score in links]


class BundleTeacher:
    """A model made by mx-export; the weight of a link is its calibrated probability."""

    def __init__(
        self, path: Path, langs: str | None = None, report: Report = lambda text: None
    ) -> None:
        from ...engine.aligner import Aligner

        self.aligner = Aligner.load(path, langs=langs, wish="recall")
        bundle = self.aligner.bundle
        told = bundle.languages != ("und", "und")
        if langs and told and not bundle.order(langs):
            report(f"{path} is a model for {' and '.join(bundle.pairs)}, not for {langs}")
        elif told and not langs:
            src, tgt = (side.replace("+", " or ") for side in bundle.languages)
            report(f"{path} reads SRC as {src} and TGT as {tgt}; --langs turns it round")

    def align(self, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        stream = iter(pairs)
        while held := list(islice(stream, CHUNK)):
            src, tgt = zip(*held, strict=True)
            for found in self.aligner.align_batch(src, tgt):
                weights = self.aligner.bundle.calibrate(found.scores).tolist()
                yield [(i, j, w) for (i, j), w in zip(found.links, weights, strict=True)]


class RunTeacher:
    """A model of mx-train; a link at the run's threshold weighs a half, one of twice that, one.
    Of pairs longer than those it learned from it says nothing."""

    def __init__(self, run: Path) -> None:
        import torch

        from ..data.corpus import tokenizers
        from ..run.checkpoint import load_model

        self.model, config = load_model(run)
        self.tokenizers = tokenizers(run, config)
        self.threshold, self.longest = config.train.threshold, config.train.max_length
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model.to(self.device)

    def align(self, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        from ..loop.evaluate import word_scores

        stream = iter(pairs)
        while held := list(islice(stream, CHUNK)):
            src, tgt = [s for s, _ in held], [t for _, t in held]
            found: list[list[ScoredLink]] = [[] for _ in held]
            for k, scores in word_scores(
                self.model, src, tgt, self.tokenizers, self.device, self.longest
            ):
                weights = np.minimum(scores / (2 * self.threshold), 1.0)
                places = np.argwhere(weights >= LEAST)
                found[k] = [(int(i), int(j), float(weights[i, j])) for i, j in places]
            yield from found


def mixed(streams: Sequence[Iterable[list[ScoredLink]]]) -> Iterator[list[ScoredLink]]:
    """The mean of what the teachers say; a link that one of them does not have weighs 0 there."""
    if not streams:
        raise MxError("there is no teacher")
    for each in zip(*streams, strict=True):
        total: dict[tuple[int, int], float] = {}
        for links in each:
            for i, j, weight in links:
                total[i, j] = total.get((i, j), 0.0) + weight / len(streams)
        yield [(i, j, weight) for (i, j), weight in sorted(total.items()) if weight >= LEAST]

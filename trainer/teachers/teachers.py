"""Teachers: whatever says which words of a text belong together, and how sure it is of that.

The statistical aligner, files of links, bundles and run folders, and the mean of any mix of them.
Does not know where the links are kept.
"""

import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from ...engine.aligner import Aligner
from ...engine.alignment import unzip_pairs
from ...engine.bundle.bundle import Bundle
from ...engine.errors import InputError
from ...engine.links.average import LinkTable, average_links
from ...engine.links.link_files import parse_links
from ...engine.statistical.aligner import StatisticalAligner
from ...engine.text.files import count_lines, read_lines, read_pairs
from ...engine.text.words import normalize_word
from ...engine.types import ScoredLink
from ..config import STATISTICAL, RunConfig, TrainConfig
from ..data.vocabulary import load_tokenizers
from ..networks.weights import check_trained, load_network
from ..networks.word_scores import score_pieces, select_links

Pair = tuple[list[str], list[str]]
# Yields the links of each pair, in order, with weights from 0 to 1.
Teacher = Callable[[Iterable[Pair]], Iterator[list[ScoredLink]]]
Report = Callable[[str], None]

LEAST = 0.2  # links of which the teachers are less sure teach nothing; judged, not measured
CHUNK = 4096  # pairs that are aligned together


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
    path = Path(name)
    if name == STATISTICAL:
        report("learning links with the statistical aligner")
        return learn_statistics(learn_from(), config.train, report)
    if (path / "config.json").exists():
        return load_run_teacher(path)
    if is_link_file(name):
        return partial(read_link_lines, path)
    return load_bundle_teacher(path, langs, report)


def is_link_file(name: str) -> bool:
    """Tell whether a teacher is a file of links, which knows the training text and no other."""
    path = Path(name)
    other = path.is_dir() or path.suffix == ".mx" or zipfile.is_zipfile(path)
    return name != STATISTICAL and not other


def check_teachers(names: list[str], src: str, tgt: str) -> None:
    """Raise an error for those that cannot teach this text, as far as that is quickly seen."""
    pairs = 0  # counted at most once, and only if a file of links is among the teachers
    for path in (Path(name) for name in names if name != STATISTICAL):
        if (path / "config.json").exists():
            check_trained(path)
        elif not is_link_file(str(path)):
            Bundle.load(path)
        else:
            pairs = pairs or sum(1 for _ in read_pairs(src, tgt))
            lines = count_lines(path)
            if lines != pairs:
                raise InputError(
                    f"{path} has {lines:,} lines but the text has {pairs:,} pairs; "
                    "a teacher needs a line of links for each pair, empty if it has none"
                )


def learn_statistics(text: Iterable[Pair], config: TrainConfig, report: Report) -> Teacher:
    """Let the statistical aligner learn from a text, whose words it sees as the network will."""

    def normalize_pairs(pairs: Iterable[Pair]) -> Iterator[Pair]:
        kind = config.lowercase, config.fold_accents
        for pair in pairs:
            src, tgt = ([normalize_word(word, *kind) for word in side] for side in pair)
            yield src, tgt

    def align(pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        for found in aligner.align(*unzip_pairs(normalize_pairs(pairs))):
            yield [(i, j, w) for (i, j), w in zip(found.links, found.scores, strict=True)]

    aligner = StatisticalAligner.learn(*unzip_pairs(normalize_pairs(text)), on_progress=report)
    return align


def read_link_lines(path: Path, pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
    """Yield the links in a file of them: `i-j`, with a score (`i-j:0.9`) if there is one."""
    number = 0
    lines = read_lines(path)
    for number, (src, tgt) in enumerate(pairs, 1):
        line = next(lines, None)
        if line is None:
            raise InputError(
                f"{path} ends after {number - 1:,} lines but the text goes on; "
                "a teacher needs a line of links for each pair, empty if it has none"
            )
        # Links that do not fit would teach nonsense without a word: the file of another text.
        where = f"{path} line {number}"
        links = parse_links(line, where=where).links
        for i, j, _ in links:
            if i >= len(src) or j >= len(tgt):
                raise InputError(
                    f"{where}: link {i}-{j} is outside its sentences of {len(src)} and "
                    f"{len(tgt)} words; words count from 0, source first"
                )
        yield [(i, j, min(max(score, 0.0), 1.0)) for i, j, score in links]
    if next(lines, None) is not None:
        raise InputError(f"{path} has more lines than the text, which has {number:,}")


def load_bundle_teacher(path: Path, langs: str | None, report: Report) -> Teacher:
    """Load a model made by mx-export; the weight of a link is its calibrated probability."""
    # With the threshold for recall: unsure links count little, but better than not at all.
    aligner = Aligner.load(path, langs=langs, optimize_for="recall")
    bundle, _ = aligner.require_model()
    has_languages = bundle.languages != ("und", "und")
    if langs and has_languages and not bundle.language_order(langs):
        report(f"{path} is a model for {' and '.join(bundle.told_pairs)}, not for {langs}")
    elif has_languages and not langs:
        src, tgt = (side.replace("+", " or ") for side in bundle.languages)
        report(f"{path} reads SRC as {src} and TGT as {tgt}; --langs turns it round")

    def align(pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        for found in aligner.align(*unzip_pairs(pairs), chunk=CHUNK):
            weights = bundle.calibrate(found.scores).tolist()
            yield [(i, j, w) for (i, j), w in zip(found.links, weights, strict=True)]

    return align


def load_run_teacher(run: Path) -> Teacher:
    """Load a model of mx-train; a link at its threshold weighs a half, one of twice that, one.

    Of pairs longer than those it learned from it says nothing.
    """
    model, config = load_network(run)
    tokenizers, train = load_tokenizers(run, config), config.train
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)

    def align(pairs: Iterable[Pair]) -> Iterator[list[ScoredLink]]:
        stream = iter(pairs)
        while chunk := list(islice(stream, CHUNK)):
            src, tgt = ([tok.encode(p[k]) for p in chunk] for k, tok in enumerate(tokenizers))
            scored = score_pieces(model, src, tgt, device, train.max_length)
            weights = ((k, np.minimum(s / (2 * train.threshold), 1.0)) for k, s in scored)
            yield from select_links(weights, len(chunk), LEAST)

    return align


def average_teachers(streams: Sequence[Iterable[list[ScoredLink]]]) -> Iterator[list[ScoredLink]]:
    """Yield the mean of what the teachers say; a link that one does not have weighs 0 there."""
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

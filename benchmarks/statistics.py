"""Measures how well and how fast statistics are learned on the development golds, beside eflomal.

    alias statistics='python -m mx_align.benchmarks.statistics --data DATA --work FOLDER'
    statistics --pairs 20000 --peer-python .eflomal/bin/python
    statistics --pairs 20000 --lang sv --lang cs --set ibm1_rounds=4 --set hmm_rounds=6

DATA and the text are those of `development`; all is lowercased. AER with precision and recall, in
per cent; of eflomal in the symmetrization that is best on the gold pairs. CPU seconds (user and
system) to learn, reading the text included: run it with OMP_NUM_THREADS=1. Those of eflomal are
for aligning, too, which it does at once.
"""

import os
import resource
import sys
from pathlib import Path
from typing import Any

import click

from ..engine.alignment import chunk_sentences, unzip_pairs
from ..engine.links.evaluation import align_columns
from ..engine.links.scoring import Score, score_links
from ..engine.statistical.learning import learn_model
from ..engine.statistical.model import StatisticalModel
from ..engine.statistical.settings import THRESHOLD, LearningSettings
from ..engine.text.files import read_pairs
from ..engine.types import Link, Pairs
from .development import DevelopmentSet, find_sets, format_score, run_eflomal


def measure_learning(
    one: DevelopmentSet, texts: tuple[Path, Path], settings: LearningSettings
) -> tuple[StatisticalModel, float]:
    """Return what was learned from two files, and the CPU seconds it took."""
    before = sum(os.times()[:2])
    chunks = chunk_sentences(*unzip_pairs(read_pairs(*texts)), 1 << 15)
    model = learn_model(chunks, settings, lambda message: None)
    return model, sum(os.times()[:2]) - before


def score_model(one: DevelopmentSet, texts: tuple[Path, Path], model: StatisticalModel) -> Score:
    """Return the score of the links of the gold pairs, which are the last of the text."""
    gold = one.read_gold()
    src, tgt = (path.read_text("utf-8").split("\n")[:-1][-len(gold) :] for path in texts)
    pairs = Pairs(0, [line.split() for line in src], [line.split() for line in tgt])
    links = model.find_links(pairs, THRESHOLD)
    found: list[set[Link]] = [set() for _ in gold]
    for pair, (start, end) in enumerate(zip(links.offsets, links.offsets[1:], strict=False)):
        found[pair] = set(
            zip(links.src[start:end].tolist(), links.tgt[start:end].tolist(), strict=True)
        )
    return score_links(found, gold)


def read_settings(given: tuple[str, ...]) -> LearningSettings:
    """Return the settings with some changed: `hmm_rounds=6`."""
    values: dict[str, Any] = {"lowercase": True}
    for text in given:
        name, _, value = text.partition("=")
        values[name] = type(getattr(LearningSettings, name))(value)
    return LearningSettings(**values)


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.option("--data", type=click.Path(path_type=Path), required=True)
@click.option("--work", type=click.Path(path_type=Path), required=True)
@click.option("--pairs", type=int, default=20_000, show_default=True)
@click.option("--lang", "langs", multiple=True, help="Only these, such as sv or en-fr.")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="Change a setting.")
@click.option("--peer-python", help="The interpreter that has eflomal beside it.")
def main(
    data: Path,
    work: Path,
    pairs: int,
    langs: tuple[str, ...],
    given: tuple[str, ...],
    peer_python: str | None,
) -> None:
    work.mkdir(parents=True, exist_ok=True)
    settings = read_settings(given)
    rows = [["set", "statistics", "CPU s", "eflomal", "CPU s"]]
    scores: list[Score] = []
    for one in find_sets(data):
        if langs and not {one.name, one.name.removeprefix("en-")} & set(langs):
            continue
        texts = one.write_text(work, pairs)
        model, seconds = measure_learning(one, texts, settings)
        scores.append(score_model(one, texts, model))
        row = [one.name, format_score(scores[-1]), f"{seconds:.1f}", "", ""]
        if peer_python:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            links = run_eflomal(one, texts, work / f"{one.name}.eflomal", peer_python)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = sum(after[:2]) - sum(before[:2])
            row[3:] = [format_score(score_links(links, one.read_gold())), f"{spent:.1f}"]
        rows.append(row)
        print(*row, file=sys.stderr, flush=True)
    mean = sum(score.aer for score in scores) / max(1, len(scores))
    print("\n".join(align_columns(rows)))
    print(f"mean AER {100 * mean:.2f}; peak memory of this process "
          f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")  # fmt: skip


if __name__ == "__main__":
    main()

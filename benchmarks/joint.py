"""Compares one model for several language pairs with one for each, at equal steps for every pair.

    python -m mx_align.benchmarks.joint --data DATA --set en-fr --set de-en --steps 1000 --work DIR
    python -m mx_align.benchmarks.joint --data DATA --work DIR --bundle de-en=de-en.mx ...

All models are students, from the same statistical links. In the joint text the language that the
sets share is the target, and pairs of all sets are mixed; its model has the steps of the separate
ones together. The gold pairs are the last of every text: nothing is learned from them, but stopping
and threshold go by them (not by their links). The command goes on where it was stopped. Separate
models that are trained already are given as `--bundle SET=PATH`.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..engine.aligner import Aligner
from ..engine.bundle.bundle import Bundle
from ..engine.errors import MxError
from ..engine.links.link_files import parse_links, read_link_file
from ..engine.links.scoring import (
    best_threshold,
    bootstrap_intervals,
    count_sentences,
    score_counts,
)
from ..engine.text.files import read_lines
from . import accuracy, records, watch
from .systems import Text, export_command, module_command

LOWEST = 0.05  # score of the links from which thresholds are chosen


@dataclass(frozen=True)
class Lesson:
    """What one model learns from: texts, their teacher's links, and the gold pairs at the end."""

    src: Path
    tgt: Path
    links: Path
    gold_pairs: int

    @property
    def files(self) -> tuple[Path, Path, Path]:
        return self.src, self.tgt, self.links


def learn_links(text: Text, log: Path) -> Lesson:
    """Add the links of the statistical aligner to a set, made unless they are there."""
    links = text.src.with_name("statistical.links")
    if not links.exists():
        command = module_command("mx_align.engine.commands.seed", text.src, text.tgt, "--lowercase")
        watch.run_command((*command, "-o", os.devnull, "--scores", str(links)), log)
    return Lesson(text.src, text.tgt, links, text.gold_pairs)


def shared_language(names: tuple[str, ...]) -> str:
    """Return the language that all sets have."""
    counts = Counter(side for name in set(names) for side in text_sides(name))
    language, count = counts.most_common(1)[0]
    if count < len(names) or len(names) < 2:
        raise MxError(f"give two sets or more that share a language, not {' and '.join(names)}")
    return language


def text_sides(name: str) -> tuple[str, str]:
    return accuracy.SETS[name].src, accuracy.SETS[name].tgt


def mix_texts(lessons: dict[str, Lesson], language: str, folder: Path) -> Lesson:
    """Write all pairs with `language` as the target, in random order, gold pairs last."""
    folder.mkdir(parents=True, exist_ok=True)
    learned, gold = [], []
    for name, lesson in lessons.items():
        rows = list(zip(*map(read_lines, lesson.files), strict=True))
        if text_sides(name)[0] == language:
            rows = [(tgt, src, swap_links(links)) for src, tgt, links in rows]
        learned += rows[: -lesson.gold_pairs]
        gold += rows[-lesson.gold_pairs :]
    random.Random(0).shuffle(learned)
    paths = folder / "text.src", folder / "text.tgt", folder / "statistical.links"
    for path, lines in zip(paths, zip(*learned, *gold, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return Lesson(*paths, len(gold))


def swap_links(line: str) -> str:
    """Put the other side of links first: `0-2:0.8` becomes `2-0:0.8`."""
    swapped = sorted((j, i, score) for i, j, score in parse_links(line).links)
    return " ".join(f"{i}-{j}:{score:.4f}" for i, j, score in swapped)


def train_student(lesson: Lesson, folder: Path, flags: list[Any]) -> tuple[Path, watch.Cost]:
    """Train a student and export it."""
    folder.mkdir(parents=True, exist_ok=True)
    run, bundle = folder / "run", folder / "model.mx"
    train = module_command(
        "mx_align.trainer", lesson.src, lesson.tgt, "-o", run, "--student", "--lowercase",
        "--teacher", lesson.links, "--valid-last", lesson.gold_pairs, "--patience", 0, *flags,
    )  # fmt: skip
    cost = watch.run_command(train, folder / "log")
    return bundle, cost + watch.run_command(export_command(run, bundle), folder / "log")


def score_bundle(bundle: Path, text: Text, swap: bool) -> dict[str, Any]:
    """Return AER on a set's gold pairs with the bundle's threshold, and with the best one."""
    gold = read_link_file(str(text.gold)).fit_length(text.gold_pairs, str(text.src)).sentences
    src, tgt = (list(read_lines(path))[-text.gold_pairs :] for path in (text.src, text.tgt))
    aligner = Aligner.load(bundle, threshold=LOWEST)
    found = aligner.align(tgt, src) if swap else aligner.align(src, tgt)
    candidates = [
        [(*(reversed(link) if swap else link), score)
         for link, score in zip(one.links, one.scores, strict=True)]
        for one in found
    ]  # fmt: skip
    threshold = Bundle.load(bundle).manifest.thresholds.aer
    links = [{(i, j) for i, j, value in one if value >= threshold} for one in candidates]
    counts = count_sentences(links, gold)
    best, at_best = best_threshold(candidates, gold)
    return {
        "aer": accuracy.as_percent(score_counts(counts).aer),
        "interval": [accuracy.as_percent(end) for end in bootstrap_intervals(counts)["aer"]],
        "threshold": threshold,
        "best_aer": accuracy.as_percent(at_best.aer),
        "best_threshold": round(best, 4),
    }


def bundle_settings(bundle: Path) -> dict[str, Any]:
    settings = Bundle.load(bundle).manifest.training["settings"]
    return {name: settings[name] for name in ("steps", "vocab_size", "fold_accents")}


# ---- the command ----


@click.command(help=__doc__.split("\n")[0])
@click.option("--data", type=Path, required=True, help="Folder with a folder for each set.")
@click.option(
    "--set", "names", multiple=True, type=click.Choice(list(accuracy.SETS)),
    default=("en-fr", "de-en"), help="[en-fr and de-en]",
)  # fmt: skip
@click.option("--steps", type=int, default=1000, help="Steps for each language pair [1000].")
@click.option("--joint-vocab", type=int, default=24000, help="Pieces of the joint model [24000].")
@click.option("--bundle", "given", multiple=True, metavar="SET=PATH", help="A separate model.")
@click.option("--fold-accents", is_flag=True, help="Fold the accents of the text for all models.")
@click.option("--threads", type=int, default=1, help="CPU threads [1].")
@click.option("--work", type=Path, required=True, help="Folder for texts and runs, to go on with.")
@click.option("--json", "path", type=Path, default=records.RESULTS / "joint.json")
def main(
    data: Path,
    names: tuple[str, ...],
    steps: int,
    joint_vocab: int,
    given: tuple[str, ...],
    fold_accents: bool,
    threads: int,
    work: Path,
    path: Path,
) -> None:
    """Train what is missing and score every model on the sets it serves."""
    try:
        language = shared_language(names)
        bundles = accuracy.split_name(given, "--bundle")
        texts = {name: accuracy.prepare_text(data, name, None, work) for name in names}
        lessons = {
            name: learn_links(text, work / "statistical.log") for name, text in texts.items()
        }
        together = " + ".join(names)
        todo = {name: (lesson, steps, 16000) for name, lesson in lessons.items()}
        todo[together] = (
            mix_texts(lessons, language, work / "joint"), steps * len(names), joint_vocab
        )  # fmt: skip
        for name, (lesson, count, pieces) in todo.items():
            flags = ["--steps", count, "--eval-every", count, "--vocab-size", pieces]
            flags += ["--fold-accents"] * fold_accents
            folder = work / f"{name.replace(' ', '')}-{count}-{pieces}{'-folded' * fold_accents}"
            if name in bundles:
                bundle, cost = Path(bundles[name]), None
            else:
                bundle, cost = train_student(lesson, folder, [*flags, "--threads", threads])
            for one in names if name == together else (name,):
                swap = name == together and text_sides(one)[0] == language
                row = score_bundle(bundle, texts[one], swap)
                click.echo(f"{one} by the model of {name}: {row}")
                records.add_run(path, f"{one} by {name}, {steps} steps each", {
                    "set": one, "model": name, **bundle_settings(bundle), **row,
                    "train": cost and cost.round_values(),
                    **records.describe_circumstances(accuracy.PACKAGES),
                })  # fmt: skip
    except (MxError, watch.CommandError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()

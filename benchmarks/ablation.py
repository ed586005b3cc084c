"""Repeats the paper's ablation: masked decoder, leaky attention, agreement, with and without each.

    python -m mx_align.benchmarks.ablation --data DATA --set de-en --steps 4000 --work DIR
    python -m mx_align.benchmarks.ablation --data DATA --guided 0.4 --steps 1000 --work DIR

Eight models on one token cache, the same steps (or minutes) each. With `--guided` statistical links
show all rows alike what to look for, less and less, until that share of the run is over; from there
on each row goes where its own loss leads. Without it nothing but the loss teaches. AER is that of
the best threshold of each row, chosen on the gold set: rows without NULL or agreement want another
one than the others. The end-punctuation test counts nothing that a word gives to the other side's
final punctuation, unless it is final punctuation itself. The command goes on where it was stopped,
in the middle of a row as well.
"""

import os
import shutil
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..engine.errors import MxError
from ..engine.version import __version__
from . import accuracy, records, systems, watch

PARTS = {
    "masked": ("--masked", "--no-masked"),
    "leaky": ("--leaky", "--no-leaky"),
    "agree": ("--alpha=5", "--alpha=0"),
}


@dataclass(frozen=True)
class AblationRow:
    """Parts that are switched on, and the paper's AER on its De-En set."""

    parts: tuple[str, ...]
    paper: float
    without_end: float | None = None  # of the end-punctuation test

    def flags(self) -> list[str]:
        return [on if part in self.parts else off for part, (on, off) in PARTS.items()]


# Early in training NULL takes nearly all of the weight: thresholds are looked for down to here.
LOWEST = 0.0005

ROWS = {
    "none": AblationRow((), 28.4),
    "masked": AblationRow(("masked",), 27.2, 17.7),
    "leaky": AblationRow(("leaky",), 28.3),
    "agree": AblationRow(("agree",), 26.6),
    "leaky+agree": AblationRow(("leaky", "agree"), 23.4),
    "masked+agree": AblationRow(("masked", "agree"), 17.6),
    "masked+leaky": AblationRow(("masked", "leaky"), 17.2, 17.4),
    "all": AblationRow(("masked", "leaky", "agree"), 14.4),
}


WITH_END = "with the end's punctuation"  # what the end-punctuation test is compared with
SMALL = 0.2  # a change of AER that is nothing to speak of
UNLEARNED = 75.0  # an AER that is worse says nothing about what a part is worth

# ---- what the paper says ----


@dataclass(frozen=True)
class ClaimCheck:
    """A claim, what was found, and whether it holds: yes, no, within the noise, or not to be seen
    because neither row has learned to align."""

    claim: str
    here: str
    verdict: str


def check_claims(runs: dict[str, dict[str, Any]]) -> list[ClaimCheck]:
    """Check each step between rows that adds one part, and the end-punctuation test."""
    found = []
    for worse, better in list_steps():
        if worse in runs and better in runs:
            claim = f"{worse} {ROWS[worse].paper} → {better} {ROWS[better].paper}"
            change = runs[better].get("against", {}).get(worse)
            found.append(compare_aer(claim, runs[worse]["aer"], runs[better]["aer"], change))
    for name, row in ROWS.items():
        if row.without_end and name in runs:
            claim = f"{name}, end's punctuation dropped: {row.paper} → {row.without_end}"
            before, after = runs[name]["aer"], runs[name]["aer_without_end"]
            if row.without_end < row.paper:
                change = runs[name].get("against", {}).get(WITH_END)
                found.append(compare_aer(claim, before, after, change))
            else:  # the paper: no gain, as NULL does that work already
                verdict = "yes" if before[0] - after[0] < 1 else "no"
                found.append(judge_claim(claim, before, after, verdict))
    return found


def list_steps() -> Iterable[tuple[str, str]]:
    """Yield the rows that differ by one part, the one without it first."""
    for worse, less in ROWS.items():
        for better, more in ROWS.items():
            if set(less.parts) < set(more.parts) and len(more.parts) == len(less.parts) + 1:
                yield worse, better


def compare_aer(
    claim: str, before: list[float], after: list[float], change: list[float] | None = None
) -> ClaimCheck:
    """Tell whether AER falls, values in percent with the ends of their intervals.

    In doubt if the `change` (with its interval, over the same sentences) is small or may be 0; if
    it is unknown, if each interval holds the other's value.
    """
    near = after[1] <= before[0] <= after[2] and before[1] <= after[0] <= before[2]
    if change:
        near = change[1] <= 0 <= change[2] or abs(change[0]) < SMALL
    verdict = "within the noise" if near else "yes" if after[0] < before[0] else "no"
    return judge_claim(claim, before, after, verdict)


def judge_claim(claim: str, before: list[float], after: list[float], verdict: str) -> ClaimCheck:
    """Make the verdict, unless neither row has learned to align."""
    unlearned = min(before[0], after[0]) > UNLEARNED
    here = f"{before[0]:.1f} → {after[0]:.1f}"
    return ClaimCheck(claim, here, "nothing learned yet" if unlearned else verdict)


# ---- training ----


def copy_base_run(base: Path, run: Path) -> None:
    """Make a run folder with the vocabulary and token cache of the base, and nothing trained."""
    if run.exists():
        return
    temp = run.with_name(f".{run.name}.tmp")
    shutil.rmtree(temp, ignore_errors=True)
    temp.mkdir(parents=True)
    for name in ("command.json", "config.json", "src.spm", "tgt.spm"):
        if (base / name).exists():
            shutil.copy2(base / name, temp / name)
    # The same bytes on disk: the files of a cache are replaced, never changed.
    shutil.copytree(base / "cache", temp / "cache", copy_function=os.link)
    temp.rename(run)


def prepare_base_run(base: Path, text: systems.Text, preset: str, settings: dict[str, Any]) -> None:
    """Make vocabulary and token cache, as mx-train does."""
    from ..trainer.run.folder import RunCommand, hold_run, prepare_run
    from ..trainer.run.texts import Texts

    with hold_run(base):
        texts = Texts(str(text.src), str(text.tgt))
        command = RunCommand(base, texts, preset, (settings,))
        prepare_run(command, lambda line: click.echo(line, err=True))


def train_row(
    run: Path, text: systems.Text, row: AblationRow, preset: str, flags: list[str]
) -> watch.Cost:
    """Train one row with mx-train, or go on with it."""
    line = systems.module_command(
        "mx_align.trainer", text.src, text.tgt, "-o", run, "--preset", preset
    )
    return watch.run_command([*line, *flags, *row.flags()], run.with_name(f"{run.name}.log"))


# ---- scoring ----


def score_run(run: Path, text: systems.Text) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return AER at the best threshold with its interval, and the counts of each sentence.

    Both under `aer` and, by the end-punctuation test, under `aer_without_end`.
    """
    import numpy as np

    from ..engine.links.link_files import read_link_file
    from ..engine.links.scoring import best_threshold, bootstrap_intervals, count_sentences
    from ..engine.text.files import read_lines
    from ..engine.text.words import split_words

    gold = read_link_file(str(text.gold)).fit_length(text.gold_pairs, str(text.src)).sentences
    src, tgt = (
        [split_words(line) for line in list(read_lines(path))[-text.gold_pairs :]]
        for path in (text.src, text.tgt)
    )
    weights = word_weights(run, src, tgt)
    result: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for name in ("aer", "aer_without_end"):
        candidates = []
        for s, t, scores in zip(src, tgt, weights, strict=True):
            if name == "aer_without_end":
                drop_end(s, t, scores)
            places = np.argwhere(scores >= LOWEST)
            candidates.append([(int(i), int(j), float(scores[i, j])) for i, j in places])
        threshold, best = best_threshold(candidates, gold)
        links = [{(i, j) for i, j, value in one if value >= threshold} for one in candidates]
        counts[name] = count_sentences(links, gold)
        ends = bootstrap_intervals(counts[name])["aer"]
        result[name] = [accuracy.as_percent(value) for value in (best.aer, *ends)]
        result[f"threshold{name[3:]}"] = round(threshold, 4)
    return result, counts


def measure_changes(counts: dict[str, dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return the change of AER with its 95 % interval, sentence by sentence, in percent.

    Of each row against those with one part less, and of its end-punctuation test against itself.
    """
    from ..engine.links.scoring import compare_systems

    def change(before: Any, after: Any) -> list[float]:
        found = compare_systems(before, after)
        values = found.difference["aer"], *found.interval_95["aer"]
        return [accuracy.as_percent(value) for value in values]

    result = {row: {WITH_END: change(own["aer"], own["aer_without_end"])}
              for row, own in counts.items()}  # fmt: skip
    for worse, better in list_steps():
        if worse in counts and better in counts:
            result[better][worse] = change(counts[worse]["aer"], counts[better]["aer"])
    return result


def word_weights(run: Path, src: list[list[str]], tgt: list[list[str]]) -> list[Any]:
    """Return the word scores of each pair, (source words, target words)."""
    import numpy as np
    import torch

    from ..trainer.data.vocabulary import load_tokenizers
    from ..trainer.networks.weights import load_network
    from ..trainer.networks.word_scores import word_scores

    model, config = load_network(run)
    found = [np.zeros((len(s), len(t)), np.float32) for s, t in zip(src, tgt, strict=True)]
    every = word_scores(model, src, tgt, load_tokenizers(run, config), torch.device("cpu"))
    for number, scores in every:
        found[number] = scores
    return found


def drop_end(src: list[str], tgt: list[str], scores: Any) -> None:
    """Take away what links to a final punctuation mark, unless it is another one."""
    if not scores.size:
        return
    kept = scores[-1, -1] if is_punctuation(src[-1]) and is_punctuation(tgt[-1]) else 0.0
    if is_punctuation(src[-1]):
        scores[-1, :] = 0
    if is_punctuation(tgt[-1]):
        scores[:, -1] = 0
    if kept:
        scores[-1, -1] = kept


def is_punctuation(word: str) -> bool:
    return all(unicodedata.category(character).startswith("P") for character in word)


def check_comparable(path: Path, signature: str, digest: str) -> None:
    """Fail if the file has rows that were trained in another way or on another text."""
    for run in records.load_runs(path).values():
        if run["text"]["sha256"] != digest:
            raise MxError(f"{path} has rows of another text; give another --json, or move it away")
        if run["signature"] != signature:
            raise MxError(
                f"{path} has rows of {run['signature']}, which cannot be compared with "
                f"{signature}; give another --json, or move it away"
            )


# ---- the command ----


@click.command(help=__doc__.split("\n")[0])
@click.option("--data", type=Path, required=True, help="Folder with a folder for each set.")
@click.option("--set", "name", type=click.Choice(list(accuracy.SETS)), default="de-en")
@click.option("--preset", default="compact", help="Size of the models [compact].")
@click.option("--steps", type=int, help="Optimizer steps of each row.")
@click.option("--minutes", type=float, help="Or minutes of each row.")
@click.option("--row", "rows", multiple=True, type=click.Choice(list(ROWS)), help="[all eight]")
@click.option(
    "--guided", type=float, default=0.0, help="Share of the run with statistical links [0]."
)
@click.option("--pairs", type=int, help="Only the first N training pairs.")
@click.option(
    "--flags",
    default="",
    help="More flags of mx-train, for all rows; none that change the vocabulary.",
)
@click.option("--threads", type=int, default=1, help="CPU threads [1].")
@click.option("--work", type=Path, required=True, help="Folder for the runs, to go on with.")
@click.option("--json", "path", type=Path, default=records.RESULTS / "ablation.json")
def main(
    data: Path,
    name: str,
    preset: str,
    steps: int | None,
    minutes: float | None,
    rows: tuple[str, ...],
    guided: float,
    pairs: int | None,
    flags: str,
    threads: int,
    work: Path,
    path: Path,
) -> None:
    """Train and score the rows, then tell which of the paper's claims hold."""
    if (steps is None) == (minutes is None):
        raise click.UsageError("give --steps N or --minutes M, the same for every row")
    budget = f"--steps={steps}" if steps else f"--minutes={minutes:g}"
    try:
        text = accuracy.prepare_text(data, name, pairs, work)
        folder = work / f"{text.src.parent.name}-{preset}{'-guided' if guided else ''}"
        settings = {"lowercase": True, "warm_start": "statistical" if guided else "none"}
        prepare_base_run(folder / "base", text, preset, settings)
        common = ["--lowercase", "--warm-start", settings["warm_start"], "--patience", "0", budget]
        common += [f"--guidance-until={guided:g}"] * bool(guided) + flags.split()
        common += ["--threads", str(threads), "--quiet"]
        signature = f"mx-train|v:{__version__}|{name}|--preset {preset} {' '.join(common[:-3])}"
        check_comparable(path, signature, text.digest)
        for row in rows or ROWS:
            run = folder / f"{row}{budget}"
            click.echo(f"{row}: {' '.join(ROWS[row].flags())}", err=True)
            copy_base_run(folder / "base", run)
            before = systems.earlier_cost(run)
            cost = train_row(run, text, ROWS[row], preset, common)
            if row in records.load_runs(path) and systems.earlier_cost(run) == before:
                continue  # nothing was trained: what is known stays
            found, _ = score_run(run, text)
            record = {
                "row": row, "set": name, "parts": list(ROWS[row].parts), **found,
                "text": {"pairs": text.pairs, "sha256": text.digest},
                "train": accuracy.add_earlier_seconds(cost.round_values(), before),
                "signature": signature, **records.describe_circumstances(accuracy.PACKAGES),
            }  # fmt: skip
            records.add_run(path, row, record)
            click.echo("{}: AER {:.2f} ({:.2f} to {:.2f})".format(row, *record["aer"]))
        runs = {row: folder / f"{row}{budget}" for row in records.load_runs(path)}
        there = {row: score_run(run, text)[1] for row, run in runs.items() if run.exists()}
        against = measure_changes(there)
        for row, record in records.load_runs(path).items():
            records.add_run(path, row, {**record, "against": against.get(row, {})})
    except (MxError, watch.CommandError) as error:
        raise click.ClickException(str(error)) from None
    for one in check_claims(records.load_runs(path)):
        click.echo(f"{one.claim}   here {one.here}: {one.verdict}")


if __name__ == "__main__":
    main()

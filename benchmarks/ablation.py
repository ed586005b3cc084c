"""The paper's ablation: masked decoder, leaky attention, agreement, each with and without.

    python benchmarks/ablation.py --data DATA --set de-en --preset compact --steps 4000 --work DIR
    python benchmarks/ablation.py --data DATA --guided 0.4 --steps 1000 --work DIR --json FILE

Eight models on one token cache, the same steps (or minutes) each. With `--guided` seed links show
all rows alike what to look for, less and less, until that share of the run is over; from there on
each row goes where its own loss leads. Without it nothing but the loss teaches. AER is that of the
best threshold of each row, chosen on the gold set: rows without NULL or agreement want another one
than the others. The end-punctuation test counts nothing that a word gives to the other side's final
punctuation, unless it is final punctuation itself. The command goes on where it was stopped, in the
middle of a row as well.
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
class Row:
    """Parts that are switched on, and the paper's AER on its De-En set."""

    parts: tuple[str, ...]
    paper: float
    without_end: float | None = None  # of the end-punctuation test

    def flags(self) -> list[str]:
        return [on if part in self.parts else off for part, (on, off) in PARTS.items()]


# Early in training NULL takes nearly all of the weight: thresholds are looked for down to here.
LOWEST = 0.0005

ROWS = {
    "none": Row((), 28.4),
    "masked": Row(("masked",), 27.2, 17.7),
    "leaky": Row(("leaky",), 28.3),
    "agree": Row(("agree",), 26.6),
    "leaky+agree": Row(("leaky", "agree"), 23.4),
    "masked+agree": Row(("masked", "agree"), 17.6),
    "masked+leaky": Row(("masked", "leaky"), 17.2, 17.4),
    "all": Row(("masked", "leaky", "agree"), 14.4),
}


WITH_END = "with the end's punctuation"  # what the end-punctuation test is compared with
SMALL = 0.2  # a change of AER that is nothing to speak of
UNLEARNED = 75.0  # an AER that is worse says nothing about what a part is worth

# ---- what the paper says ----


@dataclass(frozen=True)
class Direction:
    """A claim, what was found, and whether it holds: yes, no, within the noise, or not to be seen
    because neither row has learned to align."""

    claim: str
    here: str
    verdict: str


def directions(runs: dict[str, dict[str, Any]]) -> list[Direction]:
    """Every step from one row to another that adds one part, and the end-punctuation test."""
    found = []
    for worse, better in steps():
        if worse in runs and better in runs:
            claim = f"{worse} {ROWS[worse].paper} → {better} {ROWS[better].paper}"
            change = runs[better].get("against", {}).get(worse)
            found.append(compared(claim, runs[worse]["aer"], runs[better]["aer"], change))
    for name, row in ROWS.items():
        if row.without_end and name in runs:
            claim = f"{name}, end's punctuation dropped: {row.paper} → {row.without_end}"
            before, after = runs[name]["aer"], runs[name]["aer_without_end"]
            if row.without_end < row.paper:
                change = runs[name].get("against", {}).get(WITH_END)
                found.append(compared(claim, before, after, change))
            else:  # the paper: no gain, as NULL does that work already
                verdict = "yes" if before[0] - after[0] < 1 else "no"
                found.append(judged(claim, before, after, verdict))
    return found


def steps() -> Iterable[tuple[str, str]]:
    """Rows that differ by one part, the one without it first."""
    for worse, less in ROWS.items():
        for better, more in ROWS.items():
            if set(less.parts) < set(more.parts) and len(more.parts) == len(less.parts) + 1:
                yield worse, better


def compared(
    claim: str, before: list[float], after: list[float], change: list[float] | None = None
) -> Direction:
    """Holds if AER falls; in doubt if the `change` (with its interval, of the same sentences) is
    small or may be 0 or, if it is unknown, if the intervals have each other's value."""
    near = after[1] <= before[0] <= after[2] and before[1] <= after[0] <= before[2]
    if change:
        near = change[1] <= 0 <= change[2] or abs(change[0]) < SMALL
    verdict = "within the noise" if near else "yes" if after[0] < before[0] else "no"
    return judged(claim, before, after, verdict)


def judged(claim: str, before: list[float], after: list[float], verdict: str) -> Direction:
    unlearned = min(before[0], after[0]) > UNLEARNED
    here = f"{before[0]:.1f} → {after[0]:.1f}"
    return Direction(claim, here, "nothing learned yet" if unlearned else verdict)


# ---- training ----


def begin(base: Path, run: Path) -> None:
    """A run folder with the vocabulary and token cache of the base, and nothing trained."""
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


def prepared(base: Path, text: systems.Text, preset: str, settings: dict[str, Any]) -> None:
    """Vocabulary and token cache, as mx-train makes them."""
    from ..trainer.data.corpus import Texts
    from ..trainer.run.folder import Command, held, settle

    with held(base):
        texts = Texts(str(text.src), str(text.tgt))
        command = Command(base, texts, preset, (settings,))
        settle(command, lambda line: click.echo(line, err=True))


def train(run: Path, text: systems.Text, row: Row, preset: str, flags: list[str]) -> watch.Cost:
    line = systems.module("mx_align.trainer", text.src, text.tgt, "-o", run, "--preset", preset)
    return watch.run([*line, *flags, *row.flags()], run.with_name(f"{run.name}.log"))


# ---- scoring ----


def scored(run: Path, text: systems.Text) -> tuple[dict[str, Any], dict[str, Any]]:
    """AER of the best threshold with its interval, as it is and by the end-punctuation test; and
    the counts of each sentence, by the same names."""
    import numpy as np

    from ..engine.links.link_files import read_links
    from ..engine.links.scoring import best_threshold, bootstrap, count_all
    from ..engine.text.words import split

    gold = read_links(str(text.gold)).fit(text.gold_pairs, str(text.src)).sentences
    pairs = [
        tuple(split(line) for line in sides)
        for sides in zip(*(last(p, text.gold_pairs) for p in (text.src, text.tgt)), strict=True)
    ]
    result: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for name, drop in (("aer", False), ("aer_without_end", True)):
        candidates = []
        for (src, tgt), scores in zip(pairs, weights(run, pairs, drop), strict=True):
            assert scores.shape == (len(src), len(tgt))
            places = np.argwhere(scores >= LOWEST)
            candidates.append([(int(i), int(j), float(scores[i, j])) for i, j in places])
        threshold, best = best_threshold(candidates, gold)
        links = [{(i, j) for i, j, value in one if value >= threshold} for one in candidates]
        counts[name] = count_all(links, gold)
        ends = bootstrap(counts[name])["aer"]
        result[name] = [accuracy.percent(value) for value in (best.aer, *ends)]
        result[f"threshold{name[3:]}"] = round(threshold, 4)
    return result, counts


def changes(counts: dict[str, dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Of each row against those with one part less, and of the end-punctuation test against the
    row as it is: the change of AER and its 95 % interval, sentence by sentence."""
    from ..engine.links.scoring import compare

    def change(before: Any, after: Any) -> list[float]:
        found = compare(before, after)
        return [accuracy.percent(v) for v in (found.difference["aer"], *found.interval["aer"])]

    result = {row: {WITH_END: change(own["aer"], own["aer_without_end"])}
              for row, own in counts.items()}  # fmt: skip
    for worse, better in steps():
        if worse in counts and better in counts:
            result[better][worse] = change(counts[worse]["aer"], counts[better]["aer"])
    return result


def last(path: Path, count: int) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1][-count:]


def weights(run: Path, pairs: list[Any], drop: bool) -> list[Any]:
    """Word scores (source × target) of each pair."""
    import numpy as np
    import torch

    from ..trainer.data.corpus import tokenizers
    from ..trainer.loop.evaluate import word_scores
    from ..trainer.run.checkpoint import load_model

    model, config = load_model(run)
    src, tgt = [list(s) for s, _ in pairs], [list(t) for _, t in pairs]
    found: list[Any] = [np.zeros((len(s), len(t)), np.float32) for s, t in pairs]
    every = word_scores(model, src, tgt, tokenizers(run, config), torch.device("cpu"))
    for number, scores in every:
        found[number] = scores
    if drop:
        for (s, t), scores in zip(pairs, found, strict=True):
            drop_end(s, t, scores)
    return found


def drop_end(src: list[str], tgt: list[str], scores: Any) -> None:
    """Nothing links to a final punctuation mark but another one."""
    if not scores.size:
        return
    kept = scores[-1, -1] if punctuation(src[-1]) and punctuation(tgt[-1]) else 0.0
    if punctuation(src[-1]):
        scores[-1, :] = 0
    if punctuation(tgt[-1]):
        scores[:, -1] = 0
    if kept:
        scores[-1, -1] = kept


def punctuation(word: str) -> bool:
    return all(unicodedata.category(character).startswith("P") for character in word)


def same(path: Path, signature: str, digest: str) -> None:
    """An error if the file has rows that were trained in another way or on another text."""
    for run in records.load(path).values():
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
@click.option("--guided", type=float, default=0.0, help="Share of the run with seed links [0].")
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
    if (steps is None) == (minutes is None):
        raise click.UsageError("give --steps N or --minutes M, the same for every row")
    budget = f"--steps={steps}" if steps else f"--minutes={minutes:g}"
    try:
        text = accuracy.prepare(data, name, pairs, work)
        folder = work / f"{text.src.parent.name}-{preset}{'-guided' if guided else ''}"
        settings = {"lowercase": True, "warm_start": "seed" if guided else "none"}
        prepared(folder / "base", text, preset, settings)
        common = ["--lowercase", "--warm-start", settings["warm_start"], "--patience", "0", budget]
        common += [f"--seed-until={guided:g}"] * bool(guided) + flags.split()
        common += ["--threads", str(threads), "--quiet"]
        signature = f"mx-train|v:{__version__}|{name}|--preset {preset} {' '.join(common[:-3])}"
        same(path, signature, text.digest)
        for row in rows or ROWS:
            run = folder / f"{row}{budget}"
            click.echo(f"{row}: {' '.join(ROWS[row].flags())}", err=True)
            begin(folder / "base", run)
            before = systems.earlier(run)
            cost = train(run, text, ROWS[row], preset, common)
            if row in records.load(path) and systems.earlier(run) == before:
                continue  # nothing was trained: what is known stays
            found, _ = scored(run, text)
            record = {
                "row": row, "set": name, "parts": list(ROWS[row].parts), **found,
                "text": {"pairs": text.pairs, "sha256": text.digest},
                "train": accuracy.altogether(cost.rounded(), before),
                "signature": signature, **records.circumstances(accuracy.PACKAGES),
            }  # fmt: skip
            records.add(path, row, record)
            click.echo("{}: AER {:.2f} ({:.2f} to {:.2f})".format(row, *record["aer"]))
        runs = {row: folder / f"{row}{budget}" for row in records.load(path)}
        there = {row: scored(run, text)[1] for row, run in runs.items() if run.exists()}
        against = changes(there)
        for row, record in records.load(path).items():
            records.add(path, row, {**record, "against": against.get(row, {})})
    except (MxError, watch.CommandError) as error:
        raise click.ClickException(str(error)) from None
    for one in directions(records.load(path)):
        click.echo(f"{one.claim}   here {one.here}: {one.verdict}")


if __name__ == "__main__":
    main()

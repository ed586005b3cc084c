"""Measures AER of our aligners and others on the same pairs, and what they cost.

    alias accuracy='python -m mx_align.benchmarks.accuracy --data DATA'
    accuracy --set en-fr --system eflomal --system mx-seed
    accuracy --bundle en-fr=en-fr.mx
    accuracy --bundle en-fr=en-fr.mx --average scored.links
    accuracy --set de-en --train tiny='--preset tiny --minutes 60'
    accuracy --peer mine='mine -s {src} -t {tgt} -o {out}'

DATA has a folder for each set with train.XX (or .gz) and the gold pairs, as SETS says. The gold
pairs are the last of the text that every system learns from and aligns, without their links; both
sides are lowercased. Where a system gives both directions, every way to join them is scored on the
gold set and the best one is reported, as the literature does. Each run is put into the JSON file as
soon as it is done, in place of an older run of that name on that set.
"""

import json
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from ..engine.bundle.bundle import Bundle
from ..engine.bundle.installed import installed_models
from ..engine.errors import MxError
from ..engine.links.evaluation import align_columns
from ..engine.links.heuristics import JOIN_METHODS, join_directions
from ..engine.links.link_files import parse_links, read_link_file
from ..engine.links.scoring import MEASURES, bootstrap_intervals, count_sentences, score_counts
from ..engine.text.files import read_lines, read_pairs
from . import records, systems, watch
from .systems import ALIGN, BOTH, TRAIN, System, SystemPlan, Text

PACKAGES = ("mx-align", "numpy", "onnxruntime", "torch")


@dataclass(frozen=True)
class GoldSet:
    """Languages in the order of the links, and the name of the files with gold links."""

    src: str
    tgt: str
    gold: str


SETS = {
    "en-fr": GoldSet("en", "fr", "test"),
    "de-en": GoldSet("de", "en", "test"),
    "ja-en": GoldSet("ja", "en", "dev"),
}


# ---- the text ----


def prepare_text(data: Path, name: str, limit: int | None, work: Path) -> Text:
    """Write the text of a set, unless it is there already."""
    languages = SETS[name]
    folder = work / (name if limit is None else f"{name}-{limit}")
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / "text.src", folder / "text.tgt", folder / "text.both"
    gold = [data / name / f"{languages.gold}.{side}" for side in (languages.src, languages.tgt)]
    count = sum(1 for _ in read_pairs(*gold))
    done = folder / "text.json"
    if not done.exists():
        train = [training_file(data / name, side) for side in (languages.src, languages.tgt)]
        pairs = chain(islice(usable_pairs(*train), limit), read_pairs(*gold))
        written = write_text(((s.lower(), t.lower()) for s, t in pairs), files)
        done.write_text(json.dumps({"pairs": written, "digest": records.hash_files(files[:2])}))
    kept = json.loads(done.read_text())
    links = data / name / f"{languages.gold}.talp"
    return Text(name, *files, kept["pairs"], count, links, kept["digest"])


def training_file(folder: Path, language: str) -> Path:
    """Return the training text of one language, plain or compressed."""
    for suffix in ("", ".gz", ".zst"):
        path = folder / f"train.{language}{suffix}"
        if path.exists():
            return path
    raise MxError(f"{folder} has no train.{language}, plain or .gz or .zst")


def usable_pairs(src: Path, tgt: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs that all aligners can read: both sides have words, none of them `|||`."""
    for pair in read_pairs(src, tgt):
        if all(side.strip(" \t") and "|||" not in side for side in pair):
            yield pair


def write_text(pairs: Iterator[tuple[str, str]], paths: tuple[Path, ...]) -> int:
    """Write both sides, and both in one file; return the number of pairs."""
    count = 0
    with ExitStack() as stack:
        src, tgt, both = (
            stack.enter_context(open(path, "w", encoding="utf-8", newline="\n")) for path in paths
        )
        for s, t in pairs:
            src.write(f"{s}\n")
            tgt.write(f"{t}\n")
            both.write(f"{s} ||| {t}\n")
            count += 1
    return count


# ---- one run ----


def measure_system(
    text: Text, name: str, system: System, work: Path, options: Any
) -> dict[str, Any]:
    """Run a system on a text; return everything that is to be known about it."""
    out = work / text.src.parent.name / name
    out.mkdir(parents=True, exist_ok=True)
    plan = system(text, out, options)
    env = {"OMP_NUM_THREADS": str(options.threads)} if options.threads else {}
    costs: dict[str, watch.Cost] = {}
    for phase in plan.phases:
        click.echo(f"{text.name} {name}: {phase.what}", err=True)
        cost = watch.run_command(phase.command, out / "log", stdout=phase.stdout, env=env)
        costs[phase.what] = costs.get(phase.what, watch.Cost()) + cost
    return {
        "system": name,
        "set": text.name,
        "text": {"pairs": text.pairs, "sha256": text.digest, "lowercased": True},
        "gold_pairs": text.gold_pairs,
        **measure_quality(text, plan),
        **phase_costs(plan, costs, plan.aligned or text.pairs),
        "threads": options.threads,
        "size_mb": plan.size_mb,
        **({"averaged": list(plan.averaged)} if plan.averaged else {}),
        "signature": plan.signature,
        **records.describe_circumstances(PACKAGES),
    }


def phase_costs(plan: SystemPlan, costs: dict[str, watch.Cost], pairs: int) -> dict[str, Any]:
    """Return the costs by phase; one that learns while it aligns is as fast as both together."""
    result: dict[str, Any] = {what: cost.round_values() for what, cost in costs.items()}
    if plan.trained:
        result[TRAIN] = add_earlier_seconds(result.get(TRAIN, {"wall": 0.0}), plan.trained)
    aligning = costs.get(ALIGN) or costs[BOTH]
    return {
        **result,
        "aligned_pairs": pairs,
        "pairs_per_second": round(pairs / max(aligning.wall, 1e-9), 1),
        "pairs_per_cpu_second": round(pairs / max(aligning.cpu, 1e-9), 1),
    }


def add_earlier_seconds(cost: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    """Add the seconds of an earlier part; its CPU time, and so that of all, is not known."""
    if not before:
        return cost
    rest = {name: value for name, value in cost.items() if name != "cpu"}
    return {**rest, "wall": round(cost["wall"] + before["wall"], 1)}


def measure_quality(text: Text, plan: SystemPlan) -> dict[str, Any]:
    """Return AER, precision and recall in percent with 95 % intervals, by the best way to join."""
    gold = read_link_file(str(text.gold)).fit_length(text.gold_pairs, str(text.src)).sentences
    lines = plan.aligned or text.pairs
    files = [last_links(path, text.gold_pairs, lines) for path in plan.links]
    if len(files) == 1:
        ways = {plan.method or "its own": files[0]}
    else:
        ways = {way: join_links(way, *files) for way in JOIN_METHODS}
        ways |= {"forward": files[0], "backward": files[1]}
    tables = {way: count_sentences(links, gold) for way, links in ways.items()}
    scores = {way: score_counts(table) for way, table in tables.items()}
    best = min(scores, key=lambda way: scores[way].aer)
    ends = bootstrap_intervals(tables[best])
    return {
        **{name: as_percent(getattr(scores[best], name)) for name in MEASURES},
        "interval": {name: [as_percent(x) for x in ends[name]] for name in MEASURES},
        "symmetrization": best,
        "symmetrizations": {way: as_percent(score.aer) for way, score in scores.items()},
    }


def as_percent(value: float) -> float:
    return round(100 * value, 2)


def join_links(way: str, fwd: list[set[Any]], bwd: list[set[Any]]) -> list[set[Any]]:
    return [set(join_directions(way, f, b)) for f, b in zip(fwd, bwd, strict=True)]


def last_links(path: Path, count: int, lines: int) -> list[set[Any]]:
    """Read the links of the last pairs, after checking that there is a line for every pair."""
    kept: deque[str] = deque(maxlen=count)
    found = 0
    for line in read_lines(path):
        kept.append(line)
        found += 1
    if found != lines:
        raise MxError(f"{path} has {found:,} lines of links for {lines:,} pairs")
    return [set(parse_links(line, where=str(path)).gold.possible) for line in kept]


# ---- what is said ----


def format_runs(runs: list[dict[str, Any]]) -> str:
    """Format runs as text in columns."""
    head = ("set", "system", "AER", "95 %", "P", "R", "joined by", "train s (CPU)",
            "align s (CPU)", "MB", "pairs/s")  # fmt: skip
    return "\n".join(align_columns([head, *(run_cells(run) for run in runs)]))


def run_cells(run: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one run, in the order of the columns."""
    low, high = run["interval"]["aer"]
    phases = [run[what] for what in (TRAIN, ALIGN, BOTH) if what in run]
    return (
        run["set"],
        run["system"],
        f"{run['aer']:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{run['precision']:.2f}",
        f"{run['recall']:.2f}",
        run["symmetrization"],
        total_seconds(run.get(TRAIN)),
        total_seconds(run.get(ALIGN))
        if BOTH not in run
        else f"{total_seconds(run[BOTH])} together",
        f"{max(phase.get('peak_mb', 0) for phase in phases):,.0f}",
        f"{run['pairs_per_second']:,.0f}",
    )


def total_seconds(cost: dict[str, float] | None) -> str:
    """Format wall seconds, and CPU seconds where they are known."""
    if not cost:
        return "-"
    cpu = f" ({cost['cpu']:,.0f})" if "cpu" in cost else ""
    return f"{cost['wall']:,.0f}{cpu}"


# ---- flags ----


def split_name(values: tuple[str, ...], what: str) -> dict[str, str]:
    """Split each NAME=VALUE."""
    pairs = [value.partition("=") for value in values]
    wrong = [name for name, mark, rest in pairs if not (name and mark and rest)]
    if wrong:
        raise MxError(f"{what} must be NAME=VALUE, not {wrong[0]!r}")
    return {name: rest for name, _, rest in pairs}


def choose_systems(flags: Any, sets: tuple[str, ...]) -> Iterator[tuple[str, str, System]]:
    """Yield set, name and system of each run; bundles belong to one set."""
    everything = {**systems.OURS, **systems.PEERS}
    names, bundles = flags.names, split_name(flags.bundles, "--bundle")
    train, peers = split_name(flags.train, "--train"), split_name(flags.peers, "--peer")
    if not (names or bundles or train or peers):
        names = tuple(everything)
        bundles = {
            f"{one}:{path.stem}": str(path)
            for path in installed_models().values()
            for one in sets
            if Bundle.load(path).language_order(one)
        }
    for one in sets:
        yield from ((one, name, everything[name]) for name in names)
        yield from ((one, name, systems.training_system(line)) for name, line in train.items())
        yield from ((one, name, systems.peer_system(line)) for name, line in peers.items())
    for where, path in bundles.items():
        one, _, name = where.partition(":")
        if one not in SETS:
            raise MxError(f"--bundle SET=PATH: there is no set {one!r}, only {', '.join(SETS)}")
        system = systems.bundle_system(Path(path), flags.averaged)
        yield one, name or Bundle.load(path).name, system


@click.command(help=__doc__.split("\n")[0])
@click.option("--data", type=Path, required=True, help="Folder with a folder for each set.")
@click.option("--set", "sets", multiple=True, type=click.Choice(list(SETS)), help="[all there]")
@click.option(
    "--system", "names", multiple=True, type=click.Choice([*systems.OURS, *systems.PEERS]),
    help="Aligners that learn from the text [all, if nothing else is named].",
)  # fmt: skip
@click.option("--bundle", "bundles", multiple=True, metavar="SET[:NAME]=PATH", help="Our model.")
@click.option("--average", "averaged", multiple=True, type=Path, metavar="LINKS",
              help="Scored links of the whole text, to average those of the bundles with, such as "
              "SET/mx-seed/scored.links in --work; the folder's name is the system's.")  # fmt: skip
@click.option("--train", multiple=True, metavar="NAME=FLAGS", help="Train one: flags of mx-train.")
@click.option("--peer", "peers", multiple=True, metavar="NAME=COMMAND",
              help="Command with {src} {tgt} or {joint}, and {out} or {fwd} {bwd}.")  # fmt: skip
@click.option("--peer-python", default=sys.executable, help="Interpreter that has the peers.")
@click.option("--pairs", type=int, help="Only the first N training pairs: a try, kept nowhere.")
@click.option("--speed-pairs", type=int, help="A model aligns the last N pairs only [all].")
@click.option("--threads", type=int, help="Threads of each system [as it likes].")
@click.option("--work", type=Path, help="Keep texts, runs and logs here [a temporary folder].")
@click.option("--json", "path", type=Path, help="Where results are kept [results/accuracy.json].")
@click.option("--remark", help="What is to be said below the tables about these runs.")
def main(**given: Any) -> None:
    """Run every system that was chosen on every set, and keep what was measured."""
    flags = SimpleNamespace(**given)
    options = systems.Options(flags.peer_python, flags.threads, flags.speed_pairs)
    if flags.path is None and flags.pairs is None:
        flags.path = records.RESULTS / "accuracy.json"
    done, failed = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = flags.work or Path(temporary)
        there = flags.sets or tuple(name for name in SETS if (flags.data / name).is_dir())
        try:
            todo = list(choose_systems(flags, there))
        except MxError as error:
            raise click.ClickException(str(error)) from None
        for one, name, system in todo:
            try:
                text = prepare_text(flags.data, one, flags.pairs, folder)
                run = measure_system(text, name, system, folder, options)
                run |= {"remark": flags.remark} if flags.remark else {}
            except (MxError, watch.CommandError) as error:
                click.echo(f"{one} {name}: left out: {error}", err=True)
                failed += 1
                continue
            done.append(run)
            if flags.path:
                records.add_run(flags.path, f"{one}/{name}", run)
    if done:
        click.echo(format_runs(done))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

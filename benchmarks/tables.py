"""Makes tables and plots of the README and the docs from the results on disk.

    python -m mx_align.benchmarks.tables          # write what has changed
    python -m mx_align.benchmarks.tables --check  # say what would change; exit code 1 if anything

A table stands between `<!-- table: NAME -->` and `<!-- end -->`, NAME being one of TABLES. Numbers
are made by the benchmarks; nothing is measured here.
"""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..engine.errors import MxError
from . import records
from .charts import Axes, ChartPoint, draw_chart

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/accuracy.md", "docs/student.md")
SETS = ("en-fr", "de-en", "ja-en")
OPEN, CLOSE = "<!-- table: ", "<!-- end -->"
NOTHING = "*Nothing measured yet.*"
PUBLISHED = {"paper": 4.4}  # AER on En-Fr of sizes that take GPUs to train, by the paper
SHAPE = ("--width", "--ff", "--encoder-layers", "--refine", "--vocab-size")  # decide the speed

Runs = dict[str, dict[str, Any]]


# ---- accuracy ----


def accuracy_table(runs: Runs) -> str:
    """List every system, set by set, best first."""
    lines = [
        "| set | system | AER (95 %) | P | R | training | aligning | memory | pairs a CPU second |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in sort_runs(runs):
        low, high = run["interval"]["aer"]
        lines.append(
            f"| {run['set']} | {run['system']}{joined_by(run)} | **{run['aer']:.2f}** "
            f"({low:.2f} to {high:.2f}) | {run['precision']:.1f} | {run['recall']:.1f} "
            f"| {format_time(run.get('train'))} | {align_cost(run)} | {format_memory(run)} "
            f"| {per_cpu_second(run, runs):,.0f} |"
        )
    return "\n".join([*lines, "", *write_remarks(sort_runs(runs))])


# What the README compares: names of systems, what they are for a reader, what they need.
SUMMARY = (
    ("mx-align", "`mx-align`, as it comes", "NumPy, ONNX Runtime"),
    ("mx-seed", "statistics of the text alone", "NumPy"),
    ("bundled model", "the model that ships alone", "NumPy, ONNX Runtime"),
    ("student", "a student trained on the text", "PyTorch, once"),
    ("eflomal", "eflomal", "a C compiler"),
    ("systran-align", "fast_align (systran-align)", "–"),
)


def summary_table(runs: Runs) -> str:
    """List few systems with their AER on each set, for the README."""
    lines = [
        "| AER, lower is better | En-Fr | De-En | Ja-En | pairs a CPU second, En-Fr | needs |",
        "|---|---|---|---|---|---|",
    ]
    for system, shown, needs in SUMMARY:
        there = [runs.get(f"{name}/{system}") for name in SETS]
        if not any(there):
            continue
        cells = ["–" if run is None else f"{run['aer']:.1f}" for run in there]
        speed = f"{round(per_cpu_second(there[0], runs), -2):,.0f}" if there[0] else "–"
        lines.append(f"| {shown} | {' | '.join(cells)} | {speed} | {needs} |")
    measured = [run for run in sort_runs(runs) if run["system"] in {name for name, *_ in SUMMARY}]
    about = "the speed includes learning from the text, but not the training of the student"
    return "\n".join([*lines, "", f"{where_and_when(measured)}; {about}."])


def per_cpu_second(run: dict[str, Any], runs: Runs) -> float:
    """Return pairs per CPU second; learning counts for aligners that learn each text anew.

    One that is averaged with others takes their time, too.
    """
    train = run.get("train", {}).get("cpu", 0.0)
    if not is_ours(run) and train:
        return float(run["aligned_pairs"] / (train + run["align"]["cpu"]))
    others = [runs[f"{run['set']}/{name}"] for name in run.get("averaged", ())]
    alone = 1 / float(run["pairs_per_cpu_second"])
    return 1 / (alone + sum(1 / per_cpu_second(one, runs) for one in others))


def is_ours(run: dict[str, Any]) -> bool:
    return str(run["signature"]).startswith("mx-")


def sort_runs(runs: Runs) -> list[dict[str, Any]]:
    return sorted(runs.values(), key=lambda r: (SETS.index(r["set"]), r["aer"], r["system"]))


def joined_by(run: dict[str, Any]) -> str:
    ours = run["symmetrization"] in ("soft", "its own")
    return "" if ours else f", {run['symmetrization']}"


def format_time(cost: dict[str, float] | None) -> str:
    """Format wall time, and CPU time where it is known."""
    if not cost:
        return "–"
    cpu = f" ({format_seconds(cost['cpu'])} CPU)" if "cpu" in cost else ""
    return format_seconds(cost["wall"]) + cpu


def format_seconds(seconds: float) -> str:
    """Format a time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def align_cost(run: dict[str, Any]) -> str:
    """Format what aligning cost, or learning and aligning together."""
    if "both" in run:
        return f"with training: {format_time(run['both'])}"
    return format_time(run.get("align"))


def format_memory(run: dict[str, Any]) -> str:
    peaks = [run[what].get("peak_mb", 0) for what in ("train", "align", "both") if what in run]
    return f"{max(peaks) / 1000:.2f} GB"


def write_remarks(runs: list[dict[str, Any]]) -> list[str]:
    """Say what the figures rest on, in a line or two."""
    texts = {run["set"]: (run["text"]["pairs"], run["gold_pairs"]) for run in runs}
    sizes = ", ".join(f"{name} {n:,} pairs, {gold} with gold" for name, (n, gold) in texts.items())
    return [
        f"Lowercased, gold pairs (without links) at the end of everybody's text: {sizes}. "
        "After the comma: how its two directions were joined, the way with the lowest AER. "
        "The speed of averages (`+`) is that of all their aligners; the rest of their cost is "
        "in their rows. Other work ran on the machine, so CPU time says more than the clock. "
        f"{where_and_when(runs)}; `benchmarks/results/accuracy.json`.",
        *(f"{run['set']} {run['system']}: {run['remark']}." for run in runs if "remark" in run),
    ]


def where_and_when(runs: list[dict[str, Any]]) -> str:
    """Name the machines that something was measured on, and the days."""
    machines, dates = (sorted({run[key] for run in runs}) for key in ("hardware", "date"))
    return f"{'; '.join(machines)}; {dates[0] if len(dates) == 1 else f'{dates[0]} to {dates[-1]}'}"


# ---- ablation ----


def ablation_table(runs: Runs) -> str:
    """Put the paper's rows beside ours, then tell what became of each of its claims."""
    from .ablation import ROWS, check_claims

    found = {name: run for name, run in runs.items() if "row" in run}
    if not found:
        return NOTHING
    lines = ["| masked | leaky | agreement | paper, De-En | ours (95 %) |", "|---|---|---|---|---|"]
    for name, row in ROWS.items():
        ticked = ["✓" if part in row.parts else "" for part in ("masked", "leaky", "agree")]
        run = found.get(name)
        ours = "–" if run is None else "{:.1f} ({:.1f} to {:.1f})".format(*run["aer"])
        lines.append(f"| {' | '.join(ticked)} | {row.paper} | {ours} |")
    for name, row in ROWS.items():
        if row.without_end and name in found:
            aer = found[name]["aer_without_end"][0]
            lines.append(
                f"| {name} without the end's punctuation | | | {row.without_end} | {aer:.1f} |"
            )
    lines += ["", "| the paper's direction | here | holds |", "|---|---|---|"]
    lines += [f"| {d.claim} | {d.here} | {d.verdict} |" for d in check_claims(found)]
    one = next(iter(found.values()))
    return "\n".join([*lines, "", f"{one['signature']}; {one['hardware']}; {one['date']}."])


# ---- students ----


def students_table(runs: Runs) -> str:
    """List every variant of the student, the default first, then by AER."""
    lines = [
        "| variant | AER | at best threshold | learning, CPU | pairs a CPU second | int8 graph |",
        "|---|---|---|---|---|---|",
    ]
    for name, run in sorted(runs.items(), key=lambda item: (item[0] != "default", item[1]["aer"])):
        lines.append(
            f"| {name} | {run['aer']:.2f} | {run['best_aer']:.2f} "
            f"| {format_seconds(run['train_cpu_seconds'])} | {run['pairs_per_cpu_second']:,} "
            f"| {run['bytes'].get('int8', 0) / 1e6:.1f} MB |"
        )
    one = next(iter(runs.values()))
    about = (
        f"{one['steps']} steps each, from the same statistical links (not counted in the "
        "learning), threshold chosen without gold; pairs a CPU second file to file on one thread. "
        f"{where_and_when(list(runs.values()))}; `benchmarks/results/students.json`."
    )
    return "\n".join([*lines, "", about])


# ---- long lines ----


def long_lines_table(runs: Runs) -> str:
    """List AER of each set when neighbouring pairs are joined, and the words of a side."""
    sets = [run for name in SETS for run in sorted(runs) if run.split()[0] == name]
    head = " | ".join(f"{name}, words a side | AER (95 %) | change (95 %)" for name in sets)
    lines = [f"| joined | {head} |", "|---|" + "---|---|---|" * len(sets)]
    for number in sorted({int(k) for name in sets for k in runs[name]["joined"]}):
        cells = [long_line_cells(runs[name]["joined"], str(number)) for name in sets]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    about = "; ".join(f"{name}: `{runs[name]['signature']}`, {runs[name]['date']}" for name in sets)
    return "\n".join([*lines, "", f"{about}; `benchmarks/results/long_lines.json`."])


def long_line_cells(joined: dict[str, dict[str, float]], number: str) -> str:
    """Return three cells; the pairs as they are have no change to tell."""
    row = joined.get(number)
    if row is None:
        return " | | "
    aer = f"{row['words']:.1f} | {row['aer']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
    if number == "1":
        return f"{aer} | "
    return f"{aer} | {row['more']:+.2f} ({row['more_low']:+.2f} to {row['more_high']:+.2f})"


TABLES: dict[str, tuple[str, Callable[[Runs], str]]] = {
    "accuracy": ("accuracy.json", accuracy_table),
    "summary": ("accuracy.json", summary_table),
    "ablation": ("ablation.json", ablation_table),
    "ablation-guided": ("ablation_guided.json", ablation_table),
    "students": ("students.json", students_table),
    "long-lines": ("long_lines.json", long_lines_table),
}


def format_table(name: str, results: Path) -> str:
    """Make the table of that name."""
    if name not in TABLES:
        raise MxError(f"no table {name!r}; there are {', '.join(TABLES)}")
    file, make = TABLES[name]
    runs = records.load_runs(results / file)
    return make(runs) if runs else NOTHING


def fill_page(page: str, results: Path) -> str:
    """Make every table of a page anew; whatever is outside the marks stays."""
    parts = page.split(OPEN)
    for k, part in enumerate(parts[1:], 1):
        name, mark, rest = part.partition(" -->\n")
        _, end, after = rest.partition(CLOSE)
        if not (mark and end):
            raise MxError(f"the table {name.split(' ')[0]!r} lacks its {CLOSE!r}")
        parts[k] = f"{name}{mark}{format_table(name, results)}\n{CLOSE}{after}"
    return OPEN.join(parts)


# ---- plots ----


def draw_plots(results: Path) -> dict[str, str]:
    """Return files of docs/images, two for each set that was measured."""
    found = {}
    runs = records.load_runs(results / "accuracy.json")
    for name in SETS:
        there = [run for run in sort_runs(runs) if run["set"] == name]
        trained = [
            make_point(run, training_seconds(run) / 60) for run in there if training_seconds(run)
        ]
        speed = label_once([make_point(run, per_cpu_second(run, runs)) for run in there])
        if trained:
            axes = Axes(f"{name}: AER and training time", "minutes (wall)", "AER, %", "low")
            found[f"aer-time-{name}.svg"] = draw_chart(axes, trained)
        if speed:
            axes = Axes(f"{name}: AER and speed", "pairs per CPU second", "AER, %", "high")
            found[f"aer-speed-{name}.svg"] = draw_chart(axes, speed)
    return found


def draw_pareto(results: Path) -> dict[str, str]:
    """Plot AER against the CPU time of aligning: students, Mask-Align, other aligners."""
    tried = records.load_runs(results / "students.json")
    runs = records.load_runs(results / "accuracy.json")
    there = [run for run in sort_runs(runs) if run["set"] == "en-fr"]
    points = label_once([make_point(run, per_cpu_second(run, runs)) for run in there])
    points = [
        replace(p, group="students", labelled=False) if p.name.startswith("student of") else p
        for p in points
    ]
    for name, run in tried.items():
        if name != "default" and not set(run["settings"][:1]) & set(SHAPE):
            continue  # differs in how it learned only, and would cover the default
        x, y = run["pairs_per_cpu_second"], run["aer"]
        points.append(ChartPoint(name, "students", x, y, y, y, labelled=False))
    if not tried:
        return {}
    speeds = untrained_points(results / "graphs_en_fr.json")
    for name in PUBLISHED.keys() & speeds.keys():
        aer = PUBLISHED[name]
        points.append(
            ChartPoint(name, "published", speeds.pop(name), aer, aer, aer, measured=False)
        )
    measured = {run["system"] for run in there}
    begun = records.load_runs(results / "ablation.json").get("all", {})
    marks = tuple(
        (describe_unfinished(n, begun), x) for n, x in speeds.items() if n not in measured
    )
    title = "en-fr: AER and cost of aligning"
    axes = Axes(title, "pairs per CPU second", "AER, %", "high", marks)
    return {"pareto-en-fr.svg": draw_chart(axes, points)}


def describe_unfinished(preset: str, begun: dict[str, Any]) -> str:
    """Tell of a size that was not trained to its end how far the ablation came."""
    flags = re.search(r"--preset (\S+).*--steps=(\d+)", begun.get("signature", ""))
    if flags and begun["set"] == "en-fr" and flags[1] == preset:
        return f"{preset}: AER {begun['aer'][0]:.0f} after {int(flags[2]):,} steps, not done"
    return f"{preset}, untrained"


def untrained_points(path: Path) -> dict[str, float]:
    """Return pairs a second of sizes of Mask-Align timed in int8 with random weights."""
    presets = json.loads(path.read_text("utf-8"))["presets"] if path.exists() else {}
    return {name: run["forms"]["int8"]["pairs_per_second"] for name, run in presets.items()}


def training_seconds(run: dict[str, Any]) -> float:
    return float((run.get("train") or run.get("both") or {}).get("wall", 0.0))


def make_point(run: dict[str, Any], x: float) -> ChartPoint:
    """Place a run in a plot; averages are named by how many they join."""
    low, high = run["interval"]["aer"]
    group = "ours" if is_ours(run) else "others"
    others = len(run.get("averaged", ()))
    name = f"average of {1 + others}" if others else run["system"]
    return ChartPoint(name, group, max(x, 1e-3), run["aer"], low, high)


def label_once(points: list[ChartPoint]) -> list[ChartPoint]:
    """Label only the first point of each name: there is little room."""
    names = [p.name for p in points]
    return [
        p if p.name not in names[:n] else replace(p, labelled=False) for n, p in enumerate(points)
    ]


# ---- the command ----


def expected_files(root: Path, results: Path) -> dict[Path, str]:
    """Return every file that is made here, with its content."""
    paths = [root / name for name in PAGES if (root / name).exists()]
    pages = {path: fill_page(path.read_text("utf-8"), results) for path in paths}
    images = root / "docs" / "images"
    drawn = draw_plots(results) | draw_pareto(results)
    return pages | {images / name: text for name, text in drawn.items()}


def outdated_files(root: Path = ROOT, results: Path = records.RESULTS) -> dict[Path, str]:
    """Return those files that are not what they should be, with what they should be."""
    every = expected_files(root, results)
    return {p: t for p, t in every.items() if not p.exists() or p.read_text("utf-8") != t}


@click.command(help=__doc__.split("\n")[0])
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if anything would change.")
def main(check: bool) -> None:
    """Write the pages and plots that have changed, or name them."""
    try:
        files = outdated_files()
    except MxError as error:
        raise click.ClickException(str(error)) from None
    for path, text in files.items():
        click.echo(f"{'differs' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    sys.exit(1 if check and files else 0)


if __name__ == "__main__":
    main()

"""Draws how runs went: one HTML page of line charts from their `log.jsonl`.

Does not need torch or any plotting library.
"""

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Any

from ...engine.errors import MxError
from ...engine.storage import replace_file
from ...engine.view import svg

WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 26, 12, 34
# Told apart by dashes too, not by colour alone.
DASHES = ("", "7 3", "2 3", "10 3 2 3")
MAX_POINTS = 1500  # of a line; longer ones are thinned, which nobody can see
# Lines of this many points are also drawn smoothed, each value counting 0.9 of the one before it:
# validations are fewer, and what training reports is hidden by its noise (chosen by eye).
SMOOTHED, DECAY = 30, 0.9


@dataclass(frozen=True)
class Chart:
    """Names of the log that are drawn together, over `x`."""

    title: str
    names: tuple[str, ...]
    x: str = "step"
    percent: bool = False


CHARTS = (
    Chart("Loss", ("loss", "nll_fwd", "nll_bwd")),
    Chart("Other terms of the loss", ("agreement", "entropy", "guidance", "links", "nulls")),
    Chart("Prediction on the validation text", ("accuracy",), percent=True),
    Chart("Negative log likelihood on the validation text", ("nll",)),
    Chart("AER on the gold set", ("aer", "best_aer"), percent=True),
    Chart("Precision and recall on the gold set", ("precision", "recall"), percent=True),
    Chart("Learning rate", ("lr",)),
    Chart("Pieces per second, over minutes of training", ("pieces_per_second",), x="minutes"),
)

AXES = {"step", "minutes", "seconds"}

STYLE = svg.insert_colours("""
:root { color-scheme: light dark; --ink: $ink; --soft: $soft; --edge: $edge; --paper: $paper;
  --c0: $c0; --c1: $c1; --c2: $c2; --c3: $c3; }
@media (prefers-color-scheme: dark) { :root { --ink: $dark_ink; --soft: $dark_soft;
  --edge: $dark_edge; --paper: $dark_paper; --c0: $dark_c0; --c1: $dark_c1; --c2: $dark_c2;
  --c3: $dark_c3; } }
body { margin: 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.4 system-ui, "Noto Sans", sans-serif; }
h1 { font-size: 1.1rem; overflow-wrap: anywhere; } h2 { font-size: .95rem; margin: 0 0 .2rem; }
main { display: grid; gap: 1.2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
svg { width: 100%; height: auto; font-size: 12px; }
text { fill: var(--soft); } .grid { stroke: var(--edge); }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.raw { opacity: .3; stroke-width: 1.2; } .rule { stroke: var(--soft); }
.values { min-height: 1.4em; margin: .1rem 0; font-size: .85rem; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); }
ul { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: 0; padding: 0;
  color: var(--soft); font-size: .85rem; }
li svg { width: 2rem; height: .6rem; margin-right: .3rem; }
table { border-collapse: collapse; margin-bottom: 1.2rem; } caption { text-align: left; }
td, th { padding: .15rem .8rem .15rem 0; text-align: right; }
""")


SCRIPT = """"use strict";
for (const { chart, left, right, low, high, lines } of JSON.parse(document.getElementById("lines").textContent)) {
  const box = document.querySelectorAll("section")[chart], image = box.querySelector("svg");
  const rule = box.querySelector(".rule"), values = box.querySelector(".values");
  const tell = (event) => {
    const place = image.getBoundingClientRect();
    const at = low + (high - low) * ((event.clientX - place.left) / place.width * image.viewBox.baseVal.width - left) / (right - left);
    const found = lines.map(([name, points]) => [name, points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a))]);
    const x = found.reduce((a, b) => (Math.abs(b[1][0] - at) < Math.abs(a[1][0] - at) ? b : a))[1][0];
    rule.setAttribute("x1", left + (right - left) * (x - low) / (high - low));
    rule.setAttribute("x2", rule.getAttribute("x1"));
    rule.style.visibility = "visible";
    values.textContent = `at ${Number(x.toPrecision(6))}: ${found.map(([name, [, y]]) => `${name} ${Number(y.toPrecision(4))}`).join(", ")}`;
  };
  image.addEventListener("pointermove", tell);
  image.addEventListener("pointerdown", tell);
  image.addEventListener("pointerleave", () => { rule.style.visibility = "hidden"; values.textContent = ""; });
}
"""  # noqa: E501


def plot_runs(runs: Sequence[Path]) -> Path:
    """Write plot.html into the first run, with the lines of all of them, and return its path."""
    logs = {run.resolve().name: read_log(run / "log.jsonl") for run in runs}
    if len(logs) < len(runs):  # same names in different folders
        logs = {str(run): read_log(run / "log.jsonl") for run in runs}
    path = runs[0] / "plot.html"
    replace_file(path, build_plot_page(logs).encode())
    return path


def read_log(path: Path) -> list[dict[str, float]]:
    """Read what can be drawn of a log: finite numbers, of lines that were written to their end."""
    try:
        lines = path.read_text("utf-8", "replace").split("\n")
    except OSError as error:
        raise MxError(
            f"cannot read {path}: {error.strerror}; give the folder of a run that has begun"
        ) from None
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if "seconds" in record:
            record["minutes"] = record["seconds"] / 60
        if "seeds" in record:  # what earlier versions called it
            record["guidance"] = record.pop("seeds")
        records.append({name: value for name, value in record.items() if math.isfinite(value)})
    if not records:
        raise MxError(f"{path} has no steps yet; wait for the first report of mx-train")
    return records


Log = list[dict[str, float]]


def build_plot_page(logs: dict[str, Log]) -> str:
    """Return the page: the best values, and a chart for each group of names in the logs."""
    charts: list[str] = []
    lines: list[dict[str, Any]] = []
    for chart in [*CHARTS, *find_other_charts(logs)]:
        drawn = draw_chart(chart, logs)
        if drawn:
            lines.append({"chart": len(charts), **drawn[1]})
            charts.append(drawn[0])
    title = " · ".join(logs)
    steps = ", ".join(f"{max(r['step'] for r in records):,.0f}" for records in logs.values())
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    points = json.dumps(lines, separators=(",", ":")).replace("<", "\\u003c")
    tables = "".join(best_table(name if len(logs) > 1 else "", log) for name, log in logs.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}: {steps} steps</h1>{tables}"
        f"<main>{''.join(charts)}</main>"
        f'<script type="application/json" id="lines">{points}</script>'
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def find_other_charts(logs: dict[str, Log]) -> list[Chart]:
    """Return a chart for each value of the logs that none of ours has."""
    ours = AXES.union(*(chart.names for chart in CHARTS))
    names = dict.fromkeys(name for log in logs.values() for record in log for name in record)
    return [Chart(name, (name,)) for name in names if name not in ours]


def best_table(run: str, records: Log) -> str:
    """Return a table of the best validation by each measure."""
    rows = []
    for name, better in (("accuracy", max), ("aer", min), ("best_aer", min)):
        found = [r for r in records if name in r]
        if found:
            one = better(found, key=lambda r: r[name])
            rows.append(
                f'<tr><th scope="row">{name}</th><td>{100 * one[name]:.2f} %</td>'
                f"<td>at step {one['step']:,.0f}</td></tr>"
            )
    caption = f"Best values of {escape(run)}" if run else "Best values"
    return f"<table><caption>{caption}</caption>{''.join(rows)}</table>" if rows else ""


# ---- one chart ----


def draw_chart(chart: Chart, logs: dict[str, Log]) -> tuple[str, dict[str, Any]] | None:
    """Return the chart with its legend, and what is told under the pointer; None if it is empty."""
    lines = collect_lines(chart, logs)
    if not lines:
        return None
    every = [point for line in lines.values() for point in line]
    x_ticks = svg.axis_ticks(min(x for x, _ in every), max(x for x, _ in every))
    low, high = min(y for _, y in every), max(y for _, y in every)
    y_ticks = svg.axis_ticks(0 if low >= 0 and low < 0.4 * high else low, high)
    scale_x = svg.linear_scale(x_ticks[0], x_ticks[-1], LEFT, WIDTH - RIGHT)
    scale_y = svg.linear_scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = []
    for value in y_ticks:
        y = scale_y(value)
        grid = svg.path_data([(scale_x(x_ticks[0]), y), (WIDTH - RIGHT, y)])
        parts.append(svg.make_element("path", class_="grid", d=grid))
        style = {"text_anchor": "end", "dominant_baseline": "central"}
        parts.append(svg.make_text(svg.format_number(value), x=LEFT - 6, y=y, **style))
    for value in x_ticks:
        place = {"x": scale_x(value), "y": HEIGHT - BOTTOM + 14}
        parts.append(svg.make_text(svg.format_number(value), **place, text_anchor="middle"))
    ends = {}
    for k, (name, line) in enumerate(lines.items()):
        smooth = smooth_line(line)
        for points, look in ((line, "raw"), (smooth, "")) if smooth else ((line, ""),):
            places = [(scale_x(x), scale_y(y)) for x, y in thin_points(points)]
            title = None if look else svg.make_element("title", escape(name))
            parts.append(draw_line(k, places, title, look))
        if len(line) == 1:
            x, y = scale_x(line[0][0]), scale_y(line[0][1])
            parts.append(svg.make_element("circle", class_=f"c{k % 4}", cx=x, cy=y, r=3))
        ends[name] = svg.format_number((smooth or line)[-1][1])
    rule = {"class_": "rule", "y1": TOP, "y2": HEIGHT - BOTTOM, "style": "visibility: hidden"}
    parts.append(svg.make_element("line", **rule))
    parts.append(svg.make_text(chart.x, x=WIDTH - RIGHT, y=HEIGHT - 4, text_anchor="end"))
    unit = ", %" if chart.percent else ""
    summary = "; ".join(f"{name} ends at {end}" for name, end in ends.items())
    label = {"role": "img", "aria_label": f"{chart.title}: {summary}"}
    image = svg.make_element("svg", "".join(parts), viewBox=f"0 0 {WIDTH} {HEIGHT}", **label)
    items = []
    for k, (name, end) in enumerate(ends.items()):
        sample = draw_line(k, [(0, 4), (32, 4)])
        key = svg.make_element("svg", sample, viewBox="0 0 32 8", aria_hidden="true")
        items.append(f"<li>{key}{escape(name)}, last {end}</li>")
    told = {
        "left": LEFT, "right": WIDTH - RIGHT, "low": x_ticks[0], "high": x_ticks[-1],
        "lines": [(name, round_points(thin_points(line))) for name, line in lines.items()],
    }  # fmt: skip
    body = f'{image}<p class="values" aria-hidden="true"></p><ul>{"".join(items)}</ul>'
    return f"<section><h2>{escape(chart.title)}{unit}</h2>{body}</section>", told


def collect_lines(chart: Chart, logs: dict[str, Log]) -> dict[str, list[svg.Point]]:
    """Return the lines of a chart that are not 0 all the way; of several runs with their names."""
    scale = 100 if chart.percent else 1
    lines = {}
    for name in chart.names:
        for run, records in logs.items():
            line = [(r[chart.x], scale * r[name]) for r in records if chart.x in r and name in r]
            if any(y for _, y in line):
                lines[f"{name} of {run}" if len(logs) > 1 else name] = line
    return lines


def smooth_line(line: Sequence[svg.Point]) -> list[svg.Point]:
    """Return running means of a long line, where later values count more; of a short one none."""
    if len(line) < SMOOTHED:
        return []
    sums = accumulate((y for _, y in line), lambda old, y: DECAY * old + y)
    weights = accumulate((1.0 for _ in line), lambda old, one: DECAY * old + one)
    return [(x, y / w) for (x, _), y, w in zip(line, sums, weights, strict=True)]


def round_points(line: Iterable[svg.Point]) -> list[tuple[float, float]]:
    """Return points with as many digits as are told."""
    return [(float(f"{x:.7g}"), float(f"{y:.5g}")) for x, y in line]


def draw_line(
    k: int, places: Iterable[svg.Point], content: str | None = None, look: str = ""
) -> str:
    """Return the k-th line of a chart, through these pixels."""
    dash = DASHES[k % len(DASHES)] or None
    style = {"class_": f"line c{k % 4} {look}".rstrip(), "stroke_dasharray": dash}
    return svg.make_element("path", content, **style, d=svg.path_data(places))


def thin_points(line: Sequence[svg.Point]) -> list[svg.Point]:
    """Return every n-th point, at most about MAX_POINTS of them, and always the last one."""
    step = -(-len(line) // MAX_POINTS)
    return list(line[::step]) + ([line[-1]] if (len(line) - 1) % step else [])

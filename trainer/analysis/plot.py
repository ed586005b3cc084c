"""Draws how a run went: one HTML page of line charts from its `log.jsonl`.

Does not need torch or any plotting library.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ...engine.errors import MxError
from ...engine.storage import replace_file
from ...engine.view import svg

WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 26, 12, 34
# Told apart by dashes too, not by colour alone.
DASHES = ("", "7 3", "2 3", "10 3 2 3")
MAX_POINTS = 1500  # of a line; longer ones are thinned, which nobody can see


@dataclass(frozen=True)
class Chart:
    """Names of the log that are drawn together, over `x`."""

    title: str
    names: tuple[str, ...]
    x: str = "step"
    percent: bool = False


CHARTS = (
    Chart("Loss", ("loss", "nll_fwd", "nll_bwd")),
    Chart("Other terms of the loss", ("agreement", "entropy", "guidance")),
    Chart("Prediction on the validation text", ("accuracy",), percent=True),
    Chart("Negative log likelihood on the validation text", ("nll",)),
    Chart("AER on the gold set", ("aer", "best_aer"), percent=True),
    Chart("Precision and recall on the gold set", ("precision", "recall"), percent=True),
    Chart("Learning rate", ("lr",)),
    Chart("Pieces per second, over minutes of training", ("pieces_per_second",), x="minutes"),
)

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
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); }
ul { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: 0; padding: 0;
  color: var(--soft); font-size: .85rem; }
li svg { width: 2rem; height: .6rem; margin-right: .3rem; }
table { border-collapse: collapse; margin-bottom: 1.2rem; } caption { text-align: left; }
td, th { padding: .15rem .8rem .15rem 0; text-align: right; }
""")


def plot_run(run: Path) -> Path:
    """Write RUN/plot.html and return its path."""
    records = read_log(run / "log.jsonl")
    path = run / "plot.html"
    replace_file(path, build_plot_page(run.resolve().name, records).encode())
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


def build_plot_page(title: str, records: list[dict[str, float]]) -> str:
    """Return the page: the best values, and a chart for each group of names in the log."""
    charts = [part for part in (draw_chart(chart, records) for chart in CHARTS) if part]
    last = max(record["step"] for record in records)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}: {last:,.0f} steps</h1>{best_table(records)}"
        f"<main>{''.join(charts)}</main></body></html>\n"
    )


def best_table(records: list[dict[str, float]]) -> str:
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
    return f"<table><caption>Best values</caption>{''.join(rows)}</table>" if rows else ""


# ---- one chart ----


def draw_chart(chart: Chart, records: list[dict[str, float]]) -> str:
    """Return the chart with its legend; nothing if the log has none of its values."""
    scale = 100 if chart.percent else 1
    lines = {}
    for name in chart.names:
        line = [(r[chart.x], scale * r[name]) for r in records if chart.x in r and name in r]
        if any(y for _, y in line):
            lines[name] = thin_points(line)
    if not lines:
        return ""
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
    for k, (name, line) in enumerate(lines.items()):
        places = [(scale_x(x), scale_y(y)) for x, y in line]
        parts.append(draw_line(k, places, svg.make_element("title", name)))
        if len(line) == 1:
            parts.append(
                svg.make_element(
                    "circle", class_=f"c{k % 4}", cx=places[0][0], cy=places[0][1], r=3
                )
            )
    parts.append(svg.make_text(chart.x, x=WIDTH - RIGHT, y=HEIGHT - 4, text_anchor="end"))
    unit = ", %" if chart.percent else ""
    ends = {name: svg.format_number(line[-1][1]) for name, line in lines.items()}
    summary = "; ".join(f"{name} ends at {end}" for name, end in ends.items())
    label = {"role": "img", "aria_label": f"{chart.title}: {summary}"}
    image = svg.make_element("svg", "".join(parts), viewBox=f"0 0 {WIDTH} {HEIGHT}", **label)
    items = []
    for k, (name, end) in enumerate(ends.items()):
        sample = draw_line(k, [(0, 4), (32, 4)])
        key = svg.make_element("svg", sample, viewBox="0 0 32 8", aria_hidden="true")
        items.append(f"<li>{key}{name}, last {end}</li>")
    return f"<section><h2>{chart.title}{unit}</h2>{image}<ul>{''.join(items)}</ul></section>"


def draw_line(k: int, places: Iterable[svg.Point], content: str | None = None) -> str:
    """Return the k-th line of a chart, through these pixels."""
    dash = DASHES[k % len(DASHES)] or None
    look = {"class_": f"line c{k % 4}", "stroke_dasharray": dash}
    return svg.make_element("path", content, **look, d=svg.path_data(places))


def thin_points(line: Sequence[svg.Point]) -> list[svg.Point]:
    """Return every n-th point, at most about MAX_POINTS of them, and always the last one."""
    step = -(-len(line) // MAX_POINTS)
    return list(line[::step]) + ([line[-1]] if (len(line) - 1) % step else [])

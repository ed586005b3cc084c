"""How a run went, as one HTML page of line charts from its `log.jsonl`.

Knows the names in the log; writes SVG itself and needs nothing but the standard library.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ...engine.errors import MxError
from ...engine.text.files import atomic_write

Point = tuple[float, float]
Place = Callable[[float, float], str]  # of a point in the chart, as SVG wants it

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
    Chart("Other terms of the loss", ("agreement", "entropy", "seeds")),
    Chart("Prediction on the validation text", ("accuracy",), percent=True),
    Chart("Negative log likelihood on the validation text", ("nll",)),
    Chart("AER on the gold set", ("aer", "best_aer"), percent=True),
    Chart("Precision and recall on the gold set", ("precision", "recall"), percent=True),
    Chart("Learning rate", ("lr",)),
    Chart("Pieces per second, over minutes of training", ("pieces_per_second",), x="minutes"),
)

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --edge: #d5dae0; --paper: #fff;
  --c0: #0b62b8; --c1: #b3540a; --c2: #1d7a46; --c3: #a0357f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #a0a9b4; --edge: #363d46;
  --paper: #14171b; --c0: #6cb2f5; --c1: #f0a35e; --c2: #62c98c; --c3: #e58ac7; } }
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
"""


def plot(run: Path) -> Path:
    """Write RUN/plot.html and give its path."""
    records = read(run / "log.jsonl")
    path = run / "plot.html"
    with atomic_write(path) as file:
        file.write(page(run.resolve().name, records).encode())
    return path


def read(path: Path) -> list[dict[str, float]]:
    """The lines of the log, without one that was not written to its end."""
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
        if isinstance(record, dict) and "step" in record:
            if "seconds" in record:
                record["minutes"] = record["seconds"] / 60
            records.append(record)
    if not records:
        raise MxError(f"{path} has no steps yet; wait for the first report of mx-train")
    return records


def page(title: str, records: list[dict[str, float]]) -> str:
    charts = [part for part in (drawn(chart, records) for chart in CHARTS) if part]
    last = max(record["step"] for record in records)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}: {last:,.0f} steps</h1>{best(records)}<main>{''.join(charts)}</main>"
        "</body></html>\n"
    )


def best(records: list[dict[str, float]]) -> str:
    """The best validation by each measure, as a table."""
    rows = []
    for name, better in (("accuracy", max), ("aer", min), ("best_aer", min)):
        found = [r for r in records if finite(r.get(name))]
        if found:
            one = better(found, key=lambda r: r[name])
            rows.append(
                f'<tr><th scope="row">{name}</th><td>{100 * one[name]:.2f} %</td>'
                f"<td>at step {one['step']:,.0f}</td></tr>"
            )
    return f"<table><caption>Best values</caption>{''.join(rows)}</table>" if rows else ""


def finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


# ---- one chart ----


def drawn(chart: Chart, records: list[dict[str, float]]) -> str:
    """The chart with its legend; nothing if the log has none of its values."""
    lines = {name: thinned(points(records, chart.x, name, chart.percent)) for name in chart.names}
    lines = {name: line for name, line in lines.items() if line and any(y for _, y in line)}
    if not lines:
        return ""
    every = [point for line in lines.values() for point in line]
    x_ticks = ticks(min(x for x, _ in every), max(x for x, _ in every))
    low, high = min(y for _, y in every), max(y for _, y in every)
    y_ticks = ticks(0 if low >= 0 and low < 0.4 * high else low, high)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> str:
        right = (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return f"{LEFT + width * right:.1f} {TOP + height * (1 - up):.1f}"

    parts = [axis(place, x_ticks, y_ticks)]
    for k, (name, line) in enumerate(lines.items()):
        path = "M" + "L".join(place(x, y) for x, y in line)
        parts.append(f'<path {stroke(k)} d="{path}"><title>{name}</title></path>')
        if len(line) == 1:
            x, y = place(*line[0]).split(" ")
            parts.append(f'<circle class="c{k % 4}" cx="{x}" cy="{y}" r="3"/>')
    unit = ", %" if chart.percent else ""
    summary = "; ".join(f"{name} ends at {shown(line[-1][1])}" for name, line in lines.items())
    items = "".join(
        f'<li><svg viewBox="0 0 32 8" aria-hidden="true"><path {stroke(k)} d="M0 4L32 4"/></svg>'
        f"{name}, last {shown(line[-1][1])}</li>"
        for k, (name, line) in enumerate(lines.items())
    )
    return (
        f'<section><h2>{chart.title}{unit}</h2><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{chart.title}: {summary}">{"".join(parts)}'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{chart.x}</text></svg>'
        f"<ul>{items}</ul></section>"
    )


def points(records: Iterable[dict[str, float]], x: str, name: str, percent: bool) -> list[Point]:
    scale = 100 if percent else 1
    return [(r[x], scale * r[name]) for r in records if finite(r.get(x)) and finite(r.get(name))]


def thinned(line: Sequence[Point]) -> list[Point]:
    step = -(-len(line) // MAX_POINTS) or 1
    return list(line[::step]) + ([line[-1]] if line and (len(line) - 1) % step else [])


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from at most `low` to at least `high`, about five of them."""
    span = high - low or abs(high) or 1.0
    raw = span / 5
    unit = 10 ** math.floor(math.log10(raw))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, max(last, first + 1) + 1)]


def axis(place: Place, x_ticks: list[float], y_ticks: list[float]) -> str:
    parts = []
    for y in y_ticks:
        left, up = place(x_ticks[0], y).split(" ")
        parts.append(f'<path class="grid" d="M{left} {up}L{WIDTH - RIGHT} {up}"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{up}" text-anchor="end" dominant-baseline="central">'
            f"{shown(y)}</text>"
        )
    for x in x_ticks:
        left, _ = place(x, y_ticks[0]).split(" ")
        parts.append(
            f'<text x="{left}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{shown(x)}</text>'
        )
    return "".join(parts)


def stroke(k: int) -> str:
    dash = DASHES[k % len(DASHES)]
    return f'class="line c{k % 4}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

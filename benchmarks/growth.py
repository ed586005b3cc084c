"""Measures how time and memory of mx-align grow with the corpus: a straight line and a flat one.

    python -m mx_align.benchmarks.growth de-en.mx corpus.de corpus.en --plot growth.svg
    python -m mx_align.benchmarks.growth de-en.mx corpus.de corpus.en --pairs 10000000 --add FILE
    python -m mx_align.benchmarks.growth --draw benchmarks/results/growth.json --plot growth.svg

Corpora larger than the files repeat them, so give files with as many different words as possible.
Writes the numbers, and a plot without any library.
"""

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ..engine.storage import file_sha256
from ..engine.text.files import count_lines, read_lines
from ..engine.view.svg import Point, linear_scale, make_element, make_text, path_data
from .systems import module_command
from .watch import run_command

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
Points = list[Point]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 420, 320, 64, 40, 52, 40


def repeat_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file again and again."""
    while True:
        yield from read_lines(path)


def measure_size(
    model: str, text: Sequence[str], pairs: int, scratch: str | None, flags: Sequence[str]
) -> dict[str, Any]:
    """Align so many pairs of two files; return peak memory in MB, seconds, lines and checksum."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        files = folder / "c.src", folder / "c.tgt"
        for file, path in zip(files, text, strict=True):
            with open(file, "w", encoding="utf-8", newline="\n") as stream:
                stream.writelines(f"{line}\n" for line in islice(repeat_lines(path), pairs))
        out = folder / "out"
        command = module_command(
            "mx_align.engine.commands.align", *files, "-m", model, "-o", out, "--quiet", *flags
        )
        cost = run_command(command, folder / "log")
        return {
            "peak_mb": round(cost.peak_mb, 1),
            "seconds": round(cost.wall, 1),
            "cpu_seconds": round(cost.cpu, 1),
            "lines": count_lines(out),
            "sha256": file_sha256(out)[:16],
        }


def measure_sizes(options: argparse.Namespace) -> dict[str, Any]:
    """Run all sizes, one after the other, the smallest first."""
    points: list[dict[str, Any]] = []
    for pairs in options.pairs:
        load = round(os.getloadavg()[0], 1)  # what else the machine does: wall time hangs on it
        text = options.src, options.tgt
        found = measure_size(options.model, text, pairs, options.scratch, options.extra)
        points.append({"pairs": pairs, **found, "load_before": load})
        assert points[-1]["lines"] == pairs
        print(json.dumps(points[-1]), flush=True)
    return {
        "benchmark": " ".join(["growth.py", *map(os.path.basename, sys.argv[1:])]),
        "note": options.note,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "points": points,
    }


def join_results(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Add the results of further sizes; a size that was measured again has its new values."""
    points = {point["pairs"]: point for found in (old, new) for point in found["points"]}
    note = new["note"] or old.get("note", "")
    return {**new, "note": note, "points": [points[pairs] for pairs in sorted(points)]}


# ---- the plot ----


def draw_panel(
    left: int, title: str, unit: str, series: Sequence[Points], rate: float | None = None
) -> str:
    """Draw one chart with logarithmic axes, and a straight line for a `rate` to compare with.

    Of two series the second one has its values below.
    """
    xs, ys = zip(*(point for points in series for point in points), strict=True)
    x_ticks, y_ticks = decade_ticks(min(xs), max(xs)), decade_ticks(min(ys), max(ys))
    right = left + WIDTH - GAP
    log_x = linear_scale(*(math.log10(x_ticks[k]) for k in (0, -1)), left + LEFT, right)
    log_y = linear_scale(*(math.log10(y_ticks[k]) for k in (0, -1)), HEIGHT - BOTTOM, TOP)

    def place(x: float, y: float) -> Point:
        return log_x(math.log10(x)), log_y(math.log10(y))

    parts = [make_text(title, x=left + LEFT, y=24, class_="title")]
    for value in y_ticks:
        x, y = place(x_ticks[0], value)
        parts.append(make_element("path", d=f"M{x:.1f} {y:.1f}H{right:.1f}"))
        parts.append(make_text(f"{value:,g}", x=x - 8, y=y + 4, text_anchor="end"))
    for value in x_ticks:
        x, y = place(value, y_ticks[0])
        parts.append(make_element("path", d=f"M{x:.1f} {y:.1f}V{TOP:.1f}"))
        name = f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k"
        parts.append(make_text(name, x=x, y=HEIGHT - BOTTOM + 18, text_anchor="middle"))
    middle = (left + LEFT + right) / 2
    parts.append(make_text("pairs", x=middle, y=HEIGHT - 12, text_anchor="middle"))
    if rate is not None:
        ends = [max(x_ticks[0], y_ticks[0] * rate), min(x_ticks[-1], y_ticks[-1] * rate)]
        line = path_data(place(n, n / rate) for n in ends)
        parts.append(make_element("path", d=line, class_="line"))
    for number, points in enumerate(series):
        line = path_data(place(*point) for point in points)
        parts.append(f'<g class="s{number}">' + make_element("path", d=line, class_="data"))
        for n, value in points:
            x, y = place(n, value)
            parts.append(make_element("circle", cx=x, cy=y, r=4))
            told = f"{value:,.{0 if value >= 10 else 1}f} {unit}"
            parts.append(make_text(told, x=x, y=y + (20 if number else -10), text_anchor="middle"))
        parts.append("</g>")
    return "\n".join(parts)


def decade_ticks(low: float, high: float) -> list[float]:
    """Return the powers of ten that hold all values between them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**n for n in range(first, max(last, first + 1) + 1)]


def draw_growth(points: Sequence[dict[str, Any]]) -> str:
    """Return an SVG file of two charts: seconds, and megabytes.

    The straight line goes through the largest run: its seconds of CPU, if known, since others may
    have used the machine at the same time.
    """

    def series(name: str) -> Points:
        return [(p["pairs"], p[name]) for p in points if name in p]

    times = [series("seconds"), *filter(None, [series("cpu_seconds")])]
    pairs, seconds = times[-1][-1]
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" \
font-family="sans-serif" font-size="12">
<style>path{{stroke:#ddd;fill:none}} .data{{stroke-width:2}}
.line{{stroke:#888;stroke-dasharray:5 4}} .title{{font-size:14px;font-weight:bold}}
.s0 *{{stroke:#1f6feb}} .s1 *{{stroke:#bc4c00}}
.s0 text,.s0 circle{{fill:#1f6feb;stroke:none}} .s1 text,.s1 circle{{fill:#bc4c00;stroke:none}}
</style>
<rect width="100%" height="100%" fill="#fff"/>
{draw_panel(0, "Seconds: wall above, CPU below (dashed: linear)", "s", times, pairs / seconds)}
{draw_panel(WIDTH, "Peak memory, MB", "MB", [series("peak_mb")])}
</svg>
"""


def main() -> None:
    """Measure or read the sizes, then write and plot them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("src", nargs="?")
    parser.add_argument("tgt", nargs="?")
    parser.add_argument("--pairs", type=int, nargs="+", default=SIZES)
    parser.add_argument("--scratch", help="folder for the corpora and links")
    parser.add_argument("--note", default="", help="what to know about model, text and machine")
    parser.add_argument("--add", type=Path, help="JSON for the sizes measured, beside its others")
    parser.add_argument("--draw", type=Path, help="plot this JSON instead of measuring")
    parser.add_argument("--plot", type=Path, help="SVG to write")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[], help="flags of mx-align")
    options = parser.parse_args()
    draw = options.draw
    found = json.loads(draw.read_text("utf-8")) if draw else measure_sizes(options)
    if options.add:
        if options.add.exists():
            found = join_results(json.loads(options.add.read_text("utf-8")), found)
        options.add.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    if options.plot:
        options.plot.write_text(draw_growth(found["points"]), "utf-8")


if __name__ == "__main__":
    main()

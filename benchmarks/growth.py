"""How wall time and memory of mx-align grow with the corpus: a straight line and a flat one.
Corpora larger than the files repeat them. Writes the numbers, and a plot without any library.

    python benchmarks/growth.py de-en.mx corpus.de corpus.en --plot docs/images/growth.svg
    python benchmarks/growth.py de-en.mx corpus.de corpus.en --pairs 10000000 --add growth.json
    python benchmarks/growth.py --draw benchmarks/results/growth.json --plot docs/images/growth.svg
"""

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from .memory import repeated, run

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
Points = list[tuple[float, float]]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 420, 320, 64, 40, 52, 40


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs of all sizes, one after the other, the smallest first."""
    points: list[dict[str, Any]] = []
    for pairs in options.pairs:
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            files = [Path(folder) / name for name in ("c.src", "c.tgt")]
            for file, path in zip(files, (options.src, options.tgt), strict=True):
                with open(file, "w", encoding="utf-8", newline="\n") as stream:
                    stream.writelines(f"{line}\n" for line in islice(repeated(path), pairs))
            load = round(os.getloadavg()[0], 1)  # what else the machine did: wall time hangs on it
            found = run(options.model, files, options.extra)
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


def joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Results with those of further sizes; a size that was measured again has its new values."""
    points = {point["pairs"]: point for found in (old, new) for point in found["points"]}
    note = new["note"] or old.get("note", "")
    return {**new, "note": note, "points": [points[pairs] for pairs in sorted(points)]}


# ---- the plot ----


def ticks(low: float, high: float) -> list[float]:
    """Powers of ten that hold all values between them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**n for n in range(first, max(last, first + 1) + 1)]


def panel(
    left: float, title: str, unit: str, series: Sequence[Points], line: float | None = None
) -> str:
    """One chart with logarithmic axes; `line` is the rate of a straight line to compare with. Of
    two series the second one has its values below."""
    xs, ys = zip(*(point for points in series for point in points), strict=True)
    across, up = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))

    def x(value: float) -> float:
        share = math.log10(value / across[0]) / math.log10(across[-1] / across[0])
        return left + LEFT + share * (WIDTH - LEFT - GAP)

    def y(value: float) -> float:
        share = math.log10(value / up[0]) / math.log10(up[-1] / up[0])
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{left + LEFT}" y="24" class="title">{title}</text>']
    for value in up:
        parts.append(f'<path d="M{x(across[0]):.1f} {y(value):.1f}H{x(across[-1]):.1f}"/>')
        parts.append(f'<text x="{x(across[0]) - 8:.1f}" y="{y(value) + 4:.1f}" '
                     f'text-anchor="end">{value:,g}</text>')  # fmt: skip
    for value in across:
        parts.append(f'<path d="M{x(value):.1f} {y(up[0]):.1f}V{y(up[-1]):.1f}"/>')
        parts.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" '
                     f'text-anchor="middle">{short(value)}</text>')  # fmt: skip
    parts.append(f'<text x="{(x(across[0]) + x(across[-1])) / 2:.1f}" y="{HEIGHT - 12}" '
                 f'text-anchor="middle">pairs</text>')  # fmt: skip
    if line is not None:
        ends = [max(across[0], up[0] * line), min(across[-1], up[-1] * line)]
        path = "L".join(f"{x(n):.1f} {y(n / line):.1f}" for n in ends)
        parts.append(f'<path d="M{path}" class="line"/>')
    for number, points in enumerate(series):
        path = "L".join(f"{x(n):.1f} {y(value):.1f}" for n, value in points)
        parts.append(f'<g class="s{number}"><path d="M{path}" class="data"/>')
        for n, value in points:
            parts.append(f'<circle cx="{x(n):.1f}" cy="{y(value):.1f}" r="4"/>')
            place = f'x="{x(n):.1f}" y="{y(value) + (20 if number else -10):.1f}"'
            text = f"{value:,.{0 if value >= 10 else 1}f} {unit}"
            parts.append(f'<text {place} text-anchor="middle">{text}</text>')
        parts.append("</g>")
    return "\n".join(parts)


def short(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k"


def draw(points: Sequence[dict[str, Any]]) -> str:
    """An SVG of two charts: seconds, and megabytes. The straight line goes through the largest
    run: its seconds of CPU, if known, since others may have used the machine at the same time."""

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
{panel(0, "Seconds: wall above, CPU below (dashed: linear)", "s", times, pairs / seconds)}
{panel(WIDTH, "Peak memory, MB", "MB", [series("peak_mb")])}
</svg>
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("src", nargs="?")
    parser.add_argument("tgt", nargs="?")
    parser.add_argument("--pairs", type=int, nargs="+", default=SIZES)
    parser.add_argument("--scratch", help="folder for the corpora and links")
    parser.add_argument("--note", default="", help="what to know about model, text and machine")
    parser.add_argument("--results", help="JSON to write")
    parser.add_argument("--add", help="JSON to put the measured sizes into, beside its others")
    parser.add_argument("--draw", help="plot this JSON instead of measuring")
    parser.add_argument("--plot", help="SVG to write")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, default=[], help="flags of mx-align")
    options = parser.parse_args()
    if options.draw:
        found = json.loads(Path(options.draw).read_text("utf-8"))
    else:
        found = measure(options)
    if options.add:
        options.results = options.results or options.add
        if Path(options.add).exists():
            found = joined(json.loads(Path(options.add).read_text("utf-8")), found)
    if options.results:
        Path(options.results).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    if options.plot:
        Path(options.plot).write_text(draw(found["points"]), "utf-8")


if __name__ == "__main__":
    main()

"""Points with names as an SVG file that can be read on light and dark pages alike.
Knows axes, linear or logarithmic, and labels; what the points mean is the matter of `tables`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from ..trainer.analysis.plot import shown, ticks

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 40, 48
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}  # how much of a name is before its place
# Shapes tell groups apart as well as colours do: those who see no colours lose nothing.
SHAPES = ("circle", "square", "triangle", "diamond")
STYLE = """
svg { color-scheme: light dark; background: #fff;
  font: 13px system-ui, "Noto Sans", sans-serif; }
text { fill: #1b1f24; stroke: #fff; stroke-width: 3px; paint-order: stroke; }
.soft { fill: #59636e; } .grid { stroke: #d5dae0; } .lead { stroke: #59636e; }
.front { fill: none; stroke: #59636e; stroke-dasharray: 5 4; }
.c0 { fill: #0b62b8; } .c1 { fill: #b3540a; } .c2 { fill: #1d7a46; } .c3 { fill: #a0357f; }
.range { stroke-width: 1.5; } .s0 { stroke: #0b62b8; } .s1 { stroke: #b3540a; }
.s2 { stroke: #1d7a46; } .s3 { stroke: #a0357f; }
@media (prefers-color-scheme: dark) {
  svg { background: #14171b; } text { fill: #e6e9ed; stroke: #14171b; } .soft { fill: #a0a9b4; }
  .grid { stroke: #363d46; } .front, .lead { stroke: #a0a9b4; }
  .c0 { fill: #6cb2f5; } .c1 { fill: #f0a35e; } .c2 { fill: #62c98c; } .c3 { fill: #e58ac7; }
  .s0 { stroke: #6cb2f5; } .s1 { stroke: #f0a35e; } .s2 { stroke: #62c98c; }
  .s3 { stroke: #e58ac7; }
}
"""


@dataclass(frozen=True)
class Point:
    """A system: its place, the ends of its interval on the y axis, its group, whether its name
    stands beside it or is only told to those who cannot see the chart, and whether all of it was
    measured: only such systems are part of the front."""

    name: str
    group: str
    x: float
    y: float
    low: float
    high: float
    labelled: bool = True
    measured: bool = True


@dataclass(frozen=True)
class Axes:
    """Titles; x is logarithmic. `front`: which end of x is better, for the line of those systems
    that no other one beats in both; y is better when it is lower. `marks`: systems of which only
    the place on the x axis is known."""

    title: str
    x: str
    y: str
    front: str = ""  # "low", "high", or none
    marks: tuple[tuple[str, float], ...] = ()


Scale = Callable[[float], float]


def chart(axes: Axes, points: Sequence[Point]) -> str:
    """The SVG file."""
    values = [p.x for p in points] + [value for _, value in axes.marks]
    x_marks = powers(min(values), max(values))
    y_marks = ticks(min(p.low for p in points), max(p.high for p in points))
    across = scale(math.log10(x_marks[0]), math.log10(x_marks[-1]), LEFT, WIDTH - RIGHT)
    down = scale(y_marks[0], y_marks[-1], HEIGHT - BOTTOM, TOP)
    groups = list(dict.fromkeys(point.group for point in points))

    def x(value: float) -> float:
        return across(math.log10(value))

    parts = [grid(x_marks, y_marks, x, down), titles(axes)]
    if axes.front:
        line = "L".join(f"{x(p.x):.1f} {down(p.y):.1f}" for p in front(points, axes.front))
        parts.append(f'<path class="front" d="M{line}"/>')
    parts += [upright(name, x(value)) for name, value in axes.marks]
    taken = [(x(p.x) - 7, x(p.x) + 7, down(p.y)) for p in points]
    for point in sorted(points, key=lambda p: (p.y, p.name)):
        k = groups.index(point.group)
        place = x(point.x), down(point.y)
        line = f"M{place[0]:.1f} {down(point.low):.1f}L{place[0]:.1f} {down(point.high):.1f}"
        parts.append(f'<path class="range s{k % 4}" d="{line}"/>{mark(k, *place)}')
        if point.labelled:
            parts.append(label(point, place, taken))
    parts.append(legend(groups))
    said = "; ".join(
        [f"{p.name} ({p.group}): {shown(p.x)}, {p.y:.2f}" for p in points]
        + [f"{name}: {shown(value)}" for name, value in axes.marks]
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(axes.title)}: {escape(said)}"><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (end - start) * (value - low) / (high - low)


def powers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20 ... from at most `low` to at least `high`; powers of ten if that is much."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9)
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    marks = [f * 10.0**k for k in range(first, last + 1) for f in factors]
    below = max(i for i, value in enumerate(marks) if value <= low * 1.0001)
    above = min((i for i, v in enumerate(marks) if v >= high * 0.9999), default=len(marks) - 1)
    return marks[below : max(above, below + 1) + 1]


def front(points: Sequence[Point], better: str) -> list[Point]:
    """The points that no other beats in both directions, from left to right."""
    sign = 1 if better == "low" else -1
    kept: list[Point] = []
    for point in sorted((p for p in points if p.measured), key=lambda p: (sign * p.x, p.y)):
        if not kept or point.y < kept[-1].y:
            kept.append(point)
    return kept


# ---- parts ----


def grid(x_marks: Sequence[float], y_marks: Sequence[float], x: Scale, y: Scale) -> str:
    parts = []
    for value in y_marks:
        parts.append(
            f'<path class="grid" d="M{LEFT} {y(value):.1f}L{WIDTH - RIGHT} {y(value):.1f}"/>'
            f'<text class="soft" x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">'
            f"{shown(value)}</text>"
        )
    for value in x_marks:
        parts.append(
            f'<path class="grid" d="M{x(value):.1f} {TOP}L{x(value):.1f} {HEIGHT - BOTTOM}"/>'
            f'<text class="soft" x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" '
            f'text-anchor="middle">{shown(value)}</text>'
        )
    return "".join(parts)


def titles(axes: Axes) -> str:
    return (
        f'<text x="{LEFT}" y="20" font-weight="600">{escape(axes.title)}</text>'
        f'<text class="soft" x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">'
        f'{escape(axes.x)}</text><text class="soft" x="8" y="{TOP - 14}">{escape(axes.y)}</text>'
    )


def upright(name: str, x: float) -> str:
    """A dotted line over the whole height, with a name along it."""
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return (
        f'<path class="front" d="M{x:.1f} {TOP}L{x:.1f} {HEIGHT - BOTTOM}"/>'
        f'<text class="soft" transform="translate({x - 6:.1f} {middle}) rotate(-90)" '
        f'text-anchor="middle">{escape(name)}</text>'
    )


def mark(group: int, x: float, y: float) -> str:
    """A shape of about ten pixels at a place."""
    shape, style = SHAPES[group % 4], f'class="c{group % 4}"'
    if shape == "circle":
        return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    corners = {
        "square": [(-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)],
        "triangle": [(0, -6), (5.5, 4.5), (-5.5, 4.5)],
        "diamond": [(0, -6.5), (6.5, 0), (0, 6.5), (-6.5, 0)],
    }[shape]
    line = "L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in corners)
    return f'<path {style} d="M{line}Z"/>'


def label(point: Point, place: tuple[float, float], taken: list[tuple[float, float, float]]) -> str:
    """The name beside the point, as near as what is there already allows: points and names, each
    from one place to another at some height. A line leads to one that is further away."""
    x, y = place
    room = 7.5 * len(point.name)

    def free(at: float, height: float, anchor: str) -> bool:
        start = at - room * ANCHORS[anchor]
        inside = start >= LEFT and start + room <= WIDTH - RIGHT
        return inside and TOP <= height <= HEIGHT - BOTTOM - 6 and not any(
            abs(height - other) < 14 and begin < start + room and start < end
            for begin, end, other in taken
        )  # fmt: skip

    places = [
        (at, y + 14 * k * sign, anchor)
        for k in range(12)
        for sign in (-1, 1)
        for at, anchor in ((x + 10, "start"), (x - 10, "end"), (x, "middle"))
    ]
    at, height, anchor = next((one for one in places if free(*one)), places[0])
    start = at - room * ANCHORS[anchor]
    taken.append((start - 5, start + room + 5, height))
    away = height - y
    nearer = height - math.copysign(7, away)
    lead = f'<path class="lead" d="M{x:.1f} {y:.1f}L{at:.1f} {nearer:.1f}"/>'
    return (lead if abs(away) > 20 else "") + (
        f'<text x="{at:.1f}" y="{height + 4:.1f}" text-anchor="{anchor}">'
        f"{escape(point.name)}</text>"
    )


def legend(groups: Sequence[str]) -> str:
    if len(groups) < 2:
        return ""
    parts, x = [], WIDTH - RIGHT - sum(34 + 7.5 * len(group) for group in groups)
    for k, group in enumerate(groups):
        parts.append(mark(k, x, 16) + f'<text x="{x + 10:.1f}" y="20">{escape(group)}</text>')
        x += 34 + 7.5 * len(group)
    return "".join(parts)

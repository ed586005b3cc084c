"""Points with names as an SVG file that can be read on light and dark pages alike.

Does not know what the points mean: `tables` does.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..engine.view.svg import (
    XMLNS,
    axis_ticks,
    format_number,
    insert_colours,
    linear_scale,
    make_element,
    make_text,
    path_data,
)

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 40, 48
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}  # how much of a name is before its place
# Shapes tell groups apart as well as colours do: those who see no colours lose nothing.
SHAPES = ("circle", "square", "triangle", "diamond")
STYLE = insert_colours("""
svg { color-scheme: light dark; background: $paper;
  font: 13px system-ui, "Noto Sans", sans-serif; }
text { fill: $ink; stroke: $paper; stroke-width: 3px; paint-order: stroke; }
.soft { fill: $soft; } .grid { stroke: $edge; } .lead { stroke: $soft; }
.front { fill: none; stroke: $soft; stroke-dasharray: 5 4; }
.c0 { fill: $c0; } .c1 { fill: $c1; } .c2 { fill: $c2; } .c3 { fill: $c3; }
.range { stroke-width: 1.5; } .s0 { stroke: $c0; } .s1 { stroke: $c1; }
.s2 { stroke: $c2; } .s3 { stroke: $c3; }
@media (prefers-color-scheme: dark) {
  svg { background: $dark_paper; } text { fill: $dark_ink; stroke: $dark_paper; } \
.soft { fill: $dark_soft; }
  .grid { stroke: $dark_edge; } .front, .lead { stroke: $dark_soft; }
  .c0 { fill: $dark_c0; } .c1 { fill: $dark_c1; } .c2 { fill: $dark_c2; } .c3 { fill: $dark_c3; }
  .s0 { stroke: $dark_c0; } .s1 { stroke: $dark_c1; } .s2 { stroke: $dark_c2; }
  .s3 { stroke: $dark_c3; }
}
""")


Scale = Callable[[float], float]


@dataclass(frozen=True)
class ChartPoint:
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


def draw_chart(axes: Axes, points: Sequence[ChartPoint]) -> str:
    """Return the chart as an SVG file."""
    values = [p.x for p in points] + [value for _, value in axes.marks]
    x_ticks = log_ticks(min(values), max(values))
    y_ticks = axis_ticks(min(p.low for p in points), max(p.high for p in points))
    log_scale = linear_scale(math.log10(x_ticks[0]), math.log10(x_ticks[-1]), LEFT, WIDTH - RIGHT)
    scale_y = linear_scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)

    def scale_x(value: float) -> float:
        return log_scale(math.log10(value))

    parts = [draw_grid(x_ticks, y_ticks, scale_x, scale_y), draw_titles(axes)]
    if axes.front:
        line = path_data((scale_x(p.x), scale_y(p.y)) for p in find_front(points, axes.front))
        parts.append(make_element("path", class_="front", d=line))
    parts += [draw_mark_line(name, scale_x(value)) for name, value in axes.marks]
    groups = list(dict.fromkeys(point.group for point in points))
    # What names must not cover: from one x to another, at some height.
    taken = [(scale_x(p.x) - 7, scale_x(p.x) + 7, scale_y(p.y)) for p in points]
    for point in sorted(points, key=lambda p: (p.y, p.name)):
        k = groups.index(point.group)
        x, y = scale_x(point.x), scale_y(point.y)
        interval = path_data([(x, scale_y(point.low)), (x, scale_y(point.high))])
        range_line = make_element("path", class_=f"range s{k % 4}", d=interval)
        parts.append(range_line + draw_shape(k, x, y))
        if point.labelled:
            parts.append(draw_label(point.name, x, y, taken))
    parts.append(draw_legend(groups))
    told = "; ".join(
        [f"{p.name} ({p.group}): {format_number(p.x)}, {p.y:.2f}" for p in points]
        + [f"{name}: {format_number(value)}" for name, value in axes.marks]
    )
    chart = make_element(
        "svg",
        "\n".join([f"<style>{STYLE}</style>", *parts, ""]),
        xmlns=XMLNS,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{axes.title}: {told}",
    )
    return f"{chart}\n"


def find_front(points: Sequence[ChartPoint], better: str) -> list[ChartPoint]:
    """Return the points that no other beats in both directions, the best of x first."""
    sign = 1 if better == "low" else -1
    kept: list[ChartPoint] = []
    for point in sorted((p for p in points if p.measured), key=lambda p: (sign * p.x, p.y)):
        if not kept or point.y < kept[-1].y:
            kept.append(point)
    return kept


# ---- parts ----


def draw_grid(
    x_ticks: Sequence[float], y_ticks: Sequence[float], scale_x: Scale, scale_y: Scale
) -> str:
    """Draw the lines of both axes with their numbers."""
    parts = []
    for value in y_ticks:
        y = scale_y(value)
        line = path_data([(LEFT, y), (WIDTH - RIGHT, y)])
        parts.append(make_element("path", class_="grid", d=line))
        place = {"x": LEFT - 8, "y": y + 4}
        parts.append(make_text(format_number(value), class_="soft", **place, text_anchor="end"))
    for value in x_ticks:
        x = scale_x(value)
        line = path_data([(x, TOP), (x, HEIGHT - BOTTOM)])
        parts.append(make_element("path", class_="grid", d=line))
        place = {"x": x, "y": HEIGHT - BOTTOM + 18}
        parts.append(make_text(format_number(value), class_="soft", **place, text_anchor="middle"))
    return "".join(parts)


def draw_titles(axes: Axes) -> str:
    """Draw the titles of the chart and of both axes."""
    corner = {"x": WIDTH - RIGHT, "y": HEIGHT - 10, "text_anchor": "end"}
    return (
        make_text(axes.title, x=LEFT, y=20, font_weight=600)
        + make_text(axes.x, class_="soft", **corner)
        + make_text(axes.y, class_="soft", x=8, y=TOP - 14)
    )


def draw_mark_line(name: str, x: float) -> str:
    """Draw a dotted line over the whole height, with a name along it."""
    line = path_data([(x, TOP), (x, HEIGHT - BOTTOM)])
    turned = f"translate({x - 6:.1f} {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"
    return make_element("path", class_="front", d=line) + make_text(
        name, class_="soft", transform=turned, text_anchor="middle"
    )


def draw_shape(group: int, x: float, y: float) -> str:
    """Draw the shape of a group, about ten pixels wide."""
    shape, colour = SHAPES[group % 4], f"c{group % 4}"
    if shape == "circle":
        return make_element("circle", class_=colour, cx=x, cy=y, r=5)
    corners = {
        "square": [(-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)],
        "triangle": [(0, -6), (5.5, 4.5), (-5.5, 4.5)],
        "diamond": [(0, -6.5), (6.5, 0), (0, 6.5), (-6.5, 0)],
    }[shape]
    line = path_data(((x + dx, y + dy) for dx, dy in corners), closed=True)
    return make_element("path", class_=colour, d=line)


def draw_label(name: str, x: float, y: float, taken: list[tuple[float, float, float]]) -> str:
    """Draw the name beside a point, as near as what is `taken` allows, and add it to that.

    A line leads to a name that is further away.
    """
    room = 7.5 * len(name)

    def is_free(at: float, height: float, anchor: str) -> bool:
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
    at, height, anchor = next((place for place in places if is_free(*place)), places[0])
    start = at - room * ANCHORS[anchor]
    taken.append((start - 5, start + room + 5, height))
    label = make_text(name, x=at, y=height + 4, text_anchor=anchor)
    if abs(height - y) <= 20:
        return label
    nearer = height - math.copysign(7, height - y)
    return make_element("path", class_="lead", d=path_data([(x, y), (at, nearer)])) + label


def draw_legend(groups: Sequence[str]) -> str:
    """Draw what the shapes stand for; nothing if there is one group."""
    if len(groups) < 2:
        return ""
    parts, x = [], WIDTH - RIGHT - sum(34 + 7.5 * len(group) for group in groups)
    for k, group in enumerate(groups):
        parts.append(draw_shape(k, x, 16.0) + make_text(group, x=x + 10, y=20))
        x += 34 + 7.5 * len(group)
    return "".join(parts)


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10, 20 ... from at most `low` to at least `high`; powers of ten alone if
    that would be more than three decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9)
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    marks = [f * 10.0**k for k in range(first, last + 1) for f in factors]
    below = max(i for i, value in enumerate(marks) if value <= low * 1.0001)
    above = min((i for i, v in enumerate(marks) if v >= high * 0.9999), default=len(marks) - 1)
    return marks[below : max(above, below + 1) + 1]

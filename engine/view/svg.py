"""Parts of SVG drawings: elements, lines, round numbers for axes, colours for light and dark pages.

Does not know what is drawn: figures of pairs and charts of runs and benchmarks are made of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from html import escape
from string import Template

XMLNS = "http://www.w3.org/2000/svg"
Point = tuple[float, float]

# The first four are ink, faint ink, lines of a grid and paper; c0 to c3 tell lines apart. Each
# stands at least 4.5 to 1 against its paper, as WCAG asks of text.
_COLOURS = {
    "ink": "#1b1f24", "soft": "#59636e", "edge": "#d5dae0", "paper": "#fff",
    "c0": "#0b62b8", "c1": "#b3540a", "c2": "#1d7a46", "c3": "#a0357f",
    "dark_ink": "#e6e9ed", "dark_soft": "#a0a9b4", "dark_edge": "#363d46", "dark_paper": "#14171b",
    "dark_c0": "#6cb2f5", "dark_c1": "#f0a35e", "dark_c2": "#62c98c", "dark_c3": "#e58ac7",
}  # fmt: skip


def insert_colours(style: str) -> str:
    """Return a style sheet with `$ink`, `$dark_c0` and so on replaced by the colours."""
    return Template(style).substitute(_COLOURS)


# ---- elements ----


def make_element(tag: str, content: str | None = None, /, **attributes: object) -> str:
    """Return an element around markup. Floats are written to a tenth of a pixel, None not at all.

    `class_` and `text_anchor` become `class` and `text-anchor`.
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_format_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{given}/>" if content is None else f"<{tag}{given}>{content}</{tag}>"


def make_text(words: str, /, **attributes: object) -> str:
    """Return a text element."""
    return make_element("text", escape_text(words), **attributes)


def path_data(points: Iterable[Point], *, closed: bool = False) -> str:
    """Return the `d` of a path through points: M1.0 2.0L3.0 4.0."""
    places = (f"{_format_value(x)} {_format_value(y)}" for x, y in points)
    return "M" + "L".join(places) + ("Z" if closed else "")


def escape_text(words: str) -> str:
    """Escape for XML, which has no place for control characters and halves of surrogate pairs."""
    return escape(re.sub("[\\x00-\\x1f\ufffe\uffff\ud800-\udfff]", "\ufffd", words))


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return escape(str(value), quote=False).replace('"', "&quot;")  # fonts have apostrophes


# ---- axes ----


def linear_scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return the function that maps low..high to the pixels start..end."""
    return lambda value: start + (end - start) * (value - low) / (high - low)


def axis_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers from at most `low` to at least `high`."""
    span = high - low or abs(high) or 1.0
    raw = span / 5
    unit = 10 ** math.floor(math.log10(raw))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, max(last, first + 1) + 1)]


def format_number(value: float) -> str:
    """Return a number as axes and legends show it: 12,345 or 0.1235."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

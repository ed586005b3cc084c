"""Draws a pair as SVG, for papers and notebooks: links between two columns of words, a heat map.

Does not measure text: widths are estimated from the letters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from ..types import Link, Words
from .svg import XMLNS, escape_text, make_element, make_text

NULL = "[NULL]"
# Pixels: a cell of the heat map, a line of words, the space between the two columns of words.
_CELL, _LINE, _GAP = 20, 22, 110
# Notebooks keep their outputs: a matrix beyond this many cells would make them heavy.
_MAX_CELLS = 4_000
_FONT = "13px 'Noto Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"


def draw_links(src: Words, tgt: Words, links: Sequence[Link], scores: Sequence[float]) -> str:
    """Return two columns of words with a line for each link, darker for a higher score."""
    left, right = _column_width(src), _column_width(tgt)
    parts = [
        make_element(
            "line",
            _make_title(src[i], tgt[j], score),
            x1=left + 4,
            y1=_line_middle(i),
            x2=left + _GAP - 4,
            y2=_line_middle(j),
            stroke="#2b7bd0",
            stroke_width=2,
            stroke_linecap="round",
            # The weakest link can still be seen on paper.
            opacity=f"{0.35 + 0.65 * min(max(score, 0.0), 1.0):.2f}",
        )
        for (i, j), score in zip(links, scores, strict=True)
    ]
    parts += [_draw_word(word, left, _line_middle(k), "end") for k, word in enumerate(src)]
    parts += [_draw_word(word, left + _GAP, _line_middle(k), "start") for k, word in enumerate(tgt)]
    height = _LINE * max(len(src), len(tgt), 1) + 6
    return _wrap_figure(left + _GAP + right, height, parts, f"{len(links)} links")


def draw_heat_map(
    src: Words,
    tgt: Words,
    cells: Sequence[Sequence[float]],
    src_null: Sequence[float] | None = None,
    tgt_null: Sequence[float] | None = None,
    links: Iterable[Link] = (),
) -> str:
    """Return a grid with source words as rows and target words as columns, and a frame for links.

    [NULL] comes first where its weights are given. A target written from right to left has its
    first word on the right.
    """
    left, top = _column_width([*src, NULL]) + 4, _column_width([*tgt, NULL]) + 4
    # Where a side has no NULL weights, its NULL row or column is left out. It has the index -1:
    # with a NULL row, word 0 is the second row.
    row0, column0 = int(tgt_null is not None), int(src_null is not None)
    columns = len(tgt) + column0
    mirrored = is_right_to_left(tgt)

    def column_x(j: int) -> int:
        place = j + column0
        return left + _CELL * (columns - 1 - place if mirrored else place)

    def row_y(i: int) -> int:
        return top + _CELL * (i + row0)

    def draw_cell(i: int, j: int, value: float) -> str:
        return make_element(
            "rect",
            _make_title(src[i] if i >= 0 else NULL, tgt[j] if j >= 0 else NULL, value),
            x=column_x(j),
            y=row_y(i),
            width=_CELL,
            height=_CELL,
            fill="#1664b0",
            fill_opacity=f"{min(max(value, 0.0), 1.0):.3f}",
            stroke="#9aa4ae",
            stroke_width=0.5,
        )

    parts = [draw_cell(i, j, value) for i, row in enumerate(cells) for j, value in enumerate(row)]
    parts += [draw_cell(i, -1, value) for i, value in enumerate(src_null or ())]
    parts += [draw_cell(-1, j, value) for j, value in enumerate(tgt_null or ())]
    inner = {"width": _CELL - 4, "height": _CELL - 4, "fill": "none", "stroke": "#d06a00"}
    parts += [
        make_element("rect", x=column_x(j) + 2, y=row_y(i) + 2, **inner, stroke_width=2)
        for i, j in links
    ]
    rows = [(NULL, -1)] * row0 + [(word, i) for i, word in enumerate(src)]
    parts += [_draw_word(word, left - 4, row_y(i) + _CELL / 2, "end") for word, i in rows]
    heads = [(NULL, -1)] * column0 + [(word, j) for j, word in enumerate(tgt)]
    parts += [
        _draw_word(word, column_x(j) + _CELL / 2, top - 4, "start", upright=True)
        for word, j in heads
    ]
    height = top + _CELL * (len(src) + row0)
    return _wrap_figure(left + _CELL * columns + 2, height + 2, parts, "heat map")


# ---- notebooks ----


def draw_pair(
    src: Words,
    tgt: Words,
    links: Sequence[Link],
    scores: Sequence[float],
    src_null: Sequence[float] | None = None,
    tgt_null: Sequence[float] | None = None,
) -> str:
    """Draw links beside the matrix of their scores."""
    values = dict(zip(links, scores, strict=True))
    parts = [draw_links(src, tgt, links, scores)]
    if len(src) * len(tgt) <= _MAX_CELLS:
        cells = [[values.get((i, j), 0.0) for j in range(len(tgt))] for i in range(len(src))]
        parts.append(draw_heat_map(src, tgt, cells, src_null, tgt_null, links))
    return _wrap_boxes(parts)


def draw_matrix(
    src: Words,
    tgt: Words,
    cells: Sequence[Sequence[float]],
    src_null: Sequence[float],
    tgt_null: Sequence[float],
) -> str:
    """Draw a whole matrix with its NULL row and column; of a large one only its size."""
    if len(src) * len(tgt) > _MAX_CELLS:
        return f"<div>{len(src)} × {len(tgt)} scores</div>"
    return _wrap_boxes([draw_heat_map(src, tgt, cells, src_null, tgt_null)])


def _wrap_boxes(parts: Sequence[str]) -> str:
    boxes = "".join(f"<div>{part}</div>" for part in parts)
    style = "display: flex; flex-wrap: wrap; gap: 2em; align-items: flex-start"
    return f'<div style="{style}">{boxes}</div>'


# ---- parts ----


def is_right_to_left(words: Iterable[str]) -> bool:
    """Whether most words begin with a letter of a script written from right to left."""
    balance = 0
    for word in words:
        kinds = (unicodedata.bidirectional(letter) for letter in word)
        strong = next((kind for kind in kinds if kind in ("L", "R", "AL")), None)
        balance += 0 if strong is None else -1 if strong == "L" else 1
    return balance > 0


def _line_middle(k: int) -> float:
    return _LINE * k + _LINE / 2 + 3


def _column_width(words: Iterable[str]) -> int:
    """Return the pixels that the widest word will take, about."""
    # A letter is taken to be 7.6 pixels wide at 13 pixels, an ideograph 13.6.
    widths = (
        round(7.6 * len(word) + 6 * sum(unicodedata.east_asian_width(c) in "WF" for c in word))
        for word in words
    )
    return 12 + max(widths, default=0)


def _draw_word(word: str, x: float, y: float, anchor: str, *, upright: bool = False) -> str:
    if is_right_to_left([word]):
        # Isolated, it is laid out rightly, and "start" is still the left end for every renderer.
        word = f"\u2067{word}\u2069"
    return make_text(
        word,
        x=x,
        y=y,
        text_anchor=anchor,
        dominant_baseline="central",
        transform=f"rotate(-90 {x} {y})" if upright else None,
    )


def _make_title(src: str, tgt: str, value: float) -> str:
    """Return what is shown when the pointer rests on a link or cell."""
    return make_element("title", f"{escape_text(src)} – {escape_text(tgt)}: {value:.2f}")


def _wrap_figure(width: int, height: int, parts: Iterable[str], label: str) -> str:
    return make_element(
        "svg",
        "".join(parts),
        xmlns=XMLNS,
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=label,
        style=f"font: {_FONT}; max-width: 100%",
        fill="currentColor",
    )

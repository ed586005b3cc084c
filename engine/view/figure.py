"""A pair as SVG, for papers and notebooks: links between two columns of words, a heat map.
Knows words and numbers only. Nothing is measured: widths are estimated from the letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

from ..types import Link

NULL = "[NULL]"
_CELL = 20
_LINE = 22
_FONT = "13px 'Noto Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"


def links_svg(
    src: Sequence[str], tgt: Sequence[str], links: Iterable[Link],
    scores: Sequence[float] | None = None,
) -> str:  # fmt: skip
    """Two columns of words with a line for each link, darker for a higher score."""
    left, right = _widest(src), _widest(tgt)
    gap = 110
    height = _LINE * max(len(src), len(tgt), 1) + 6
    links = list(links)
    parts = []
    for (i, j), score in zip(links, scores or [1.0] * len(links), strict=True):
        parts.append(
            f'<line x1="{left + 4}" y1="{_middle(i)}" x2="{left + gap - 4}" y2="{_middle(j)}" '
            f'stroke="#2b7bd0" stroke-width="2" stroke-linecap="round" '
            f'opacity="{0.35 + 0.65 * min(max(score, 0.0), 1.0):.2f}">'
            f"<title>{_text(src[i])} – {_text(tgt[j])}: {score:.2f}</title></line>"
        )
    for words, x, anchor in ((src, left, "end"), (tgt, left + gap, "start")):
        for k, word in enumerate(words):
            parts.append(_label(word, x, _middle(k), anchor))
    return _svg(left + gap + right, height, parts, f"{len(links)} links")


def heat_svg(
    src: Sequence[str], tgt: Sequence[str], cells: Sequence[Sequence[float]],
    src_null: Sequence[float] | None = None, tgt_null: Sequence[float] | None = None,
    links: Iterable[Link] = (),
) -> str:  # fmt: skip
    """Rows are source words, columns target words; [NULL] comes first where its weights are given.
    Links have a frame. A target written from right to left has its first word on the right."""
    left, top = _widest([*src, NULL]) + 4, _widest([*tgt, NULL]) + 4
    # Where a side has no NULL weights, its NULL row or column is left out.
    row0, column0 = int(tgt_null is not None), int(src_null is not None)
    columns = len(tgt) + column0
    mirrored = right_to_left(tgt)

    def x(j: int) -> float:
        place = j + column0
        return left + _CELL * (columns - 1 - place if mirrored else place)

    def y(i: int) -> float:
        return top + _CELL * (i + row0)

    def square(i: int, j: int, value: float) -> str:
        names = (src[i] if i >= 0 else NULL), (tgt[j] if j >= 0 else NULL)
        shade = f"{min(max(value, 0.0), 1.0):.3f}"
        return (
            f'<rect x="{x(j)}" y="{y(i)}" width="{_CELL}" height="{_CELL}" fill="#1664b0" '
            f'fill-opacity="{shade}" stroke="#9aa4ae" stroke-width="0.5">'
            f"<title>{_text(names[0])} – {_text(names[1])}: {value:.2f}</title></rect>"
        )

    parts = [square(i, j, value) for i, row in enumerate(cells) for j, value in enumerate(row)]
    parts += [square(i, -1, value) for i, value in enumerate(src_null or ())]
    parts += [square(-1, j, value) for j, value in enumerate(tgt_null or ())]
    parts += [
        f'<rect x="{x(j) + 2}" y="{y(i) + 2}" width="{_CELL - 4}" height="{_CELL - 4}" '
        'fill="none" stroke="#d06a00" stroke-width="2"/>'
        for i, j in links
    ]
    rows = [(NULL, -1)] * row0 + [(word, i) for i, word in enumerate(src)]
    parts += [_label(word, left - 4, y(i) + _CELL / 2, "end") for word, i in rows]
    heads = [(NULL, -1)] * column0 + [(word, j) for j, word in enumerate(tgt)]
    parts += [_label(word, x(j) + _CELL / 2, top - 4, "start", turned=True) for word, j in heads]
    height = top + _CELL * (len(src) + row0)
    return _svg(left + _CELL * columns + 2, height + 2, parts, "heat map")


def right_to_left(words: Iterable[str]) -> bool:
    """Whether most words begin with a letter of a script written from right to left."""
    balance = 0
    for word in words:
        kinds = (unicodedata.bidirectional(letter) for letter in word)
        strong = next((kind for kind in kinds if kind in ("L", "R", "AL")), None)
        balance += 0 if strong is None else -1 if strong == "L" else 1
    return balance > 0


def _middle(k: int) -> float:
    return _LINE * k + _LINE / 2 + 3


def _widest(words: Iterable[str]) -> int:
    return 12 + max((_width(word) for word in words), default=0)


def _width(word: str) -> int:
    """Estimated width in pixels."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in word)
    return round(7.6 * len(word) + 6 * wide)


def _label(word: str, x: float, y: float, anchor: str, *, turned: bool = False) -> str:
    turn = f' transform="rotate(-90 {x} {y})"' if turned else ""
    if right_to_left([word]):
        # Isolated, it is laid out rightly, and "start" is still the left end for every renderer.
        word = f"\u2067{word}\u2069"
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" dominant-baseline="central"{turn}>'
        f"{_text(word)}</text>"
    )


def _text(word: str) -> str:
    """Safe in XML, which has no place for control characters and halves of surrogate pairs."""
    return escape(re.sub("[\\x00-\\x1f\ufffe\uffff\ud800-\udfff]", "\ufffd", word))


def _svg(width: float, height: float, parts: Iterable[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}" '
        f'style="font: {_FONT}; max-width: 100%" fill="currentColor">{"".join(parts)}</svg>'
    )

"""Draws what a notebook shows of an alignment: links and matrix, as markup without scripts."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Link
from .figure import draw_heat_map, draw_links

# Notebooks keep their outputs: a matrix beyond this many cells would make them heavy.
_MAX_CELLS = 4_000


def draw_pair(
    src: Sequence[str],
    tgt: Sequence[str],
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
    src: Sequence[str],
    tgt: Sequence[str],
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

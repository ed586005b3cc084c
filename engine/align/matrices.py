"""Computes all scores of one pair as matrices over its words. Does not decide on links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import MxError
from ..runtime.model_graph import OUTPUTS
from ..runtime.reference import pool_words
from ..types import Floats, Pairs, Words
from .batching import pack_batch, plan_batches
from .pipeline import ChunkWork, Recipe, run_batches

# Cells of a matrix over pieces: three of them take 768 MB.
_MAX_CELLS = 1 << 26


def compute_matrices(recipe: Recipe, src: Words, tgt: Words) -> dict[str, Floats]:
    """Return scores, fwd, bwd (source words, target words), src_null and tgt_null of a pair.

    Sides are the model's. A cell is the highest of its pieces, 0 between two parts of a long pair;
    a word without pieces on the other side has no partner for sure.
    """
    work = ChunkWork(replace(recipe, swapped=False), Pairs(0, [src], [tgt]))
    planned = work.prepare()
    src_pieces, tgt_pieces = work.src, work.tgt
    n_src, n_tgt = len(src_pieces.ids), len(tgt_pieces.ids)
    if n_src * n_tgt > _MAX_CELLS:
        raise MxError(f"{n_src} x {n_tgt} pieces are too many for a full matrix; use align")
    run_batches(work, planned)
    units = work.units[-1]  # the parts, if the pair was split
    cells = {name: np.zeros((n_src, n_tgt), np.float32) for name in ("scores", "fwd", "bwd")}
    fwd_null, bwd_null = np.ones(n_tgt, np.float32), np.ones(n_src, np.float32)
    for planned_batch in plan_batches(units, recipe.batch_tokens):
        batch = pack_batch(planned_batch, src_pieces, tgt_pieces)
        outputs = recipe.backend.run(batch, OUTPUTS)
        for row, unit in enumerate(batch.units.tolist()):
            # A window of pieces 40..100 that owns 50..90 fills rows 50..90 of the whole matrix with
            # rows 10..50 of its own.
            s, t = int(units.src_start[unit]), int(units.tgt_start[unit])
            own_src = slice(*units.own_src[unit].tolist())
            own_tgt = slice(*units.own_tgt[unit].tolist())
            if units.by_src[unit]:
                rows, columns = own_src, slice(t, t + int(units.tgt_length[unit]))
            else:
                rows, columns = slice(s, s + int(units.src_length[unit])), own_tgt
            for name, matrix in cells.items():
                matrix[rows, columns] = outputs[name][row][
                    _shift_slice(rows, s), _shift_slice(columns, t)
                ]
            fwd_null[own_tgt] = outputs["fwd_null"][row][_shift_slice(own_tgt, t)]
            bwd_null[own_src] = outputs["bwd_null"][row][_shift_slice(own_src, s)]
    found = {
        name: pool_words(matrix, src_pieces.words, tgt_pieces.words)
        for name, matrix in cells.items()
    }
    # A word is unlinked only if all its pieces are: the lowest p, which is the highest of 1 - p.
    one = np.zeros(1, int)
    found["src_null"] = 1 - pool_words(1 - bwd_null[:, None], src_pieces.words, one)[:, 0]
    found["tgt_null"] = 1 - pool_words(1 - fwd_null[:, None], tgt_pieces.words, one)[:, 0]
    return found


def _shift_slice(part: slice, start: int) -> slice:
    """Count the places of a slice from `start` instead of 0."""
    return slice(part.start - start, part.stop - start)

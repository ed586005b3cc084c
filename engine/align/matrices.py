"""Computes all scores of one pair as matrices over its words. Does not decide on links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import MxError
from ..runtime.model_graph import OUTPUTS
from ..runtime.reference import pool_words
from ..types import Floats, Pairs, Words
from .batching import pack_batch, plan_batches
from .pipeline import ModelPass, ModelSettings

# Cells of a matrix over pieces: three of them take 768 MB.
_MAX_CELLS = 1 << 26


def compute_matrices(model: ModelSettings, src: Words, tgt: Words) -> dict[str, Floats]:
    """Return scores, fwd, bwd (source words, target words), src_null and tgt_null of a pair.

    Sides are the model's. A cell is the highest of its pieces, 0 between two parts of a long pair;
    a word without pieces on the other side has no partner for sure.
    """
    work = ModelPass(replace(model, swapped=False), Pairs(0, [src], [tgt]))
    batches = work.prepare()
    src_pieces, tgt_pieces = work.src, work.tgt
    n_src, n_tgt = len(src_pieces.ids), len(tgt_pieces.ids)
    if n_src * n_tgt > _MAX_CELLS:
        raise MxError(f"{n_src} x {n_tgt} pieces are too many for a full matrix; use align")
    for batch in batches:  # which grow on the way
        batches += work.run(batch)
    cells = {name: np.zeros((n_src, n_tgt), np.float32) for name in ("scores", "fwd", "bwd")}
    fwd_null, bwd_null = np.ones(n_tgt, np.float32), np.ones(n_src, np.float32)
    # The last units are the parts, if the pair was split.
    for planned in plan_batches(work.units[-1], model.batch_tokens):
        outputs = model.backend.run(pack_batch(planned, src_pieces, tgt_pieces), OUTPUTS)
        units = planned.units
        for row in range(len(units.pair)):
            # A window of pieces 40..100 that owns 50..90 fills rows 50..90 of the whole matrix with
            # rows 10..50 of its own.
            s, t = int(units.src_start[row]), int(units.tgt_start[row])
            s_from, s_to = units.own_src[row].tolist()
            t_from, t_to = units.own_tgt[row].tolist()
            bwd_null[s_from:s_to] = outputs["bwd_null"][row, s_from - s : s_to - s]
            fwd_null[t_from:t_to] = outputs["fwd_null"][row, t_from - t : t_to - t]
            # Of the side that windows do not run along, it fills all that it sees.
            if units.by_src[row]:
                t_from, t_to = t, t + int(units.tgt_length[row])
            else:
                s_from, s_to = s, s + int(units.src_length[row])
            for name, matrix in cells.items():
                own = outputs[name][row, s_from - s : s_to - s, t_from - t : t_to - t]
                matrix[s_from:s_to, t_from:t_to] = own
    found = {
        name: pool_words(matrix, src_pieces.words, tgt_pieces.words)
        for name, matrix in cells.items()
    }
    # A word is unlinked only if all its pieces are: the lowest p, which is the highest of 1 - p.
    one = np.zeros(1, int)
    found["src_null"] = 1 - pool_words(1 - bwd_null[:, None], src_pieces.words, one)[:, 0]
    found["tgt_null"] = 1 - pool_words(1 - fwd_null[:, None], tgt_pieces.words, one)[:, 0]
    return found

"""Triton source of the student: rows of pieces to weights of both directions, in four kernels.

Their twins have their names in `student_reference`.

Imported by export and tests only: the engine launches what was compiled from it (`launch`).

Sentences stand one after the other without padding, one empty row (piece -1) behind each, which is
what its neighbours see as nothing. Source sentences come first, then target sentences.
Products are of float16 with sums in float32; vectors between layers, and all that
follows the products of queries and keys, are float32.
"""

import triton
import triton.language as tl


@triton.jit
def student_embed(
    ids_ptr,  # (R,) int32, -1 for an empty row
    table_ptr,  # (V, D) float16, scaled
    side_ptr,  # (D,)
    starts_ptr,  # (V,) int32, 1 for pieces that begin a word
    n_rows,
    x_ptr,  # (R, D)
    words_ptr,  # (R,) int32, 1 where a word begins
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Look up vectors of pieces of one side: grid (tiles of rows,)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    width = tl.arange(0, WIDTH)
    piece = tl.load(ids_ptr + row, mask=row < n_rows, other=-1)
    real = piece >= 0
    starts = tl.load(starts_ptr + piece, mask=real, other=0)
    tl.store(words_ptr + row, starts, mask=row < n_rows)
    places = piece.to(tl.int64)[:, None] * WIDTH + width[None, :]
    x = tl.load(table_ptr + places, mask=real[:, None], other=0.0).to(tl.float32)
    x += tl.load(side_ptr + width)[None, :]
    out = row.to(tl.int64)[:, None] * WIDTH + width[None, :]
    tl.store(x_ptr + out, tl.where(real[:, None], x, 0.0), mask=(row < n_rows)[:, None])


@triton.jit
def _norm_rows(x_ptr, ids_ptr, row, n_rows, gain, bias, WIDTH: tl.constexpr):
    """Return normalised rows in float16; empty ones, and those outside, are zero."""
    width = tl.arange(0, WIDTH)
    inside = (row >= 0) & (row < n_rows)
    piece = tl.load(ids_ptr + row, mask=inside, other=-1)
    real = (piece >= 0)[:, None]
    places = row.to(tl.int64)[:, None] * WIDTH + width[None, :]
    x = tl.load(x_ptr + places, mask=real, other=0.0)
    away = x - (tl.sum(x, 1) / WIDTH)[:, None]
    spread = tl.sum(away * away, 1) / WIDTH
    normed = away * (1 / tl.sqrt(spread + 1e-5))[:, None] * gain[None, :] + bias[None, :]
    return tl.where(real, normed, 0.0).to(tl.float16)


@triton.jit
def student_layer(
    x_ptr,  # (R, D)
    ids_ptr,  # (R,) int32
    gain_ptr,  # (D,)
    bias_ptr,  # (D,)
    up_ptr,  # (3 D, F) float16: of the piece before, the piece, the piece after
    up_bias_ptr,  # (F,)
    down_ptr,  # (F, D) float16
    down_bias_ptr,  # (D,)
    n_rows,
    n_hidden,
    out_ptr,  # (R, D)
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    HIDDEN: tl.constexpr,  # columns of the hidden layer at a time; divides n_hidden
):
    """Add to each row what it and its neighbours say: grid (tiles of rows,)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    width = tl.arange(0, WIDTH)
    gain = tl.load(gain_ptr + width)
    bias = tl.load(bias_ptr + width)
    before = _norm_rows(x_ptr, ids_ptr, row - 1, n_rows, gain, bias, WIDTH)
    here = _norm_rows(x_ptr, ids_ptr, row, n_rows, gain, bias, WIDTH)
    after = _norm_rows(x_ptr, ids_ptr, row + 1, n_rows, gain, bias, WIDTH)
    places = row.to(tl.int64)[:, None] * WIDTH + width[None, :]
    inside = (row < n_rows)[:, None]
    out = tl.load(x_ptr + places, mask=inside, other=0.0)
    out += tl.load(down_bias_ptr + width)[None, :]
    for start in range(0, n_hidden, HIDDEN):
        column = start + tl.arange(0, HIDDEN)
        up = up_ptr + width[:, None] * n_hidden + column[None, :]
        hidden = tl.dot(before, tl.load(up))
        hidden = tl.dot(here, tl.load(up + WIDTH * n_hidden), hidden)
        hidden = tl.dot(after, tl.load(up + 2 * WIDTH * n_hidden), hidden)
        hidden = tl.maximum(hidden + tl.load(up_bias_ptr + column)[None, :], 0.0)
        down = tl.load(down_ptr + column[:, None] * WIDTH + width[None, :])
        out = tl.dot(hidden.to(tl.float16), down, out)
    tl.store(out_ptr + places, out, mask=inside)


@triton.jit
def student_project(
    x_ptr,  # (R, D)
    ids_ptr,  # (R,) int32
    gain_ptr,  # (D,)
    bias_ptr,  # (D,)
    weight_ptr,  # (D, D) float16
    weight_bias_ptr,  # (D,)
    null_weight_ptr,  # (D,)
    null_bias_ptr,  # (1,)
    n_rows,
    out_ptr,  # (R, D) float16: queries or keys
    null_ptr,  # (R,)
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Turn the vectors of one side into queries or keys, and NULL's scores: grid (tiles,)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    width = tl.arange(0, WIDTH)
    gain = tl.load(gain_ptr + width)
    bias = tl.load(bias_ptr + width)
    x = _norm_rows(x_ptr, ids_ptr, row, n_rows, gain, bias, WIDTH)
    null_weight = tl.load(null_weight_ptr + width)
    null = tl.sum(x.to(tl.float32) * null_weight[None, :], 1) + tl.load(null_bias_ptr)
    tl.store(null_ptr + row, null, mask=row < n_rows)
    weight = tl.load(weight_ptr + width[:, None] * WIDTH + width[None, :])
    out = tl.dot(x, weight) + tl.load(weight_bias_ptr + width)[None, :]
    places = row.to(tl.int64)[:, None] * WIDTH + width[None, :]
    tl.store(out_ptr + places, out.to(tl.float16), mask=(row < n_rows)[:, None])


@triton.jit
def _sum_logs(
    scores_ptr, null_ptr, sums_ptr, size, others, stride, other_stride,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Store log(exp(null) + sum of exp(scores)) for each place of a side, over the other side."""
    for first in range(0, size, ROWS):
        row = first + tl.arange(0, ROWS)
        top = tl.load(null_ptr + row, mask=row < size, other=0.0)
        total = tl.full([ROWS], 1.0, tl.float32)
        for start in range(0, others, KEYS):
            key = start + tl.arange(0, KEYS)
            real = (row < size)[:, None] & (key < others)[None, :]
            places = row[:, None] * stride + key[None, :] * other_stride
            scores = tl.load(scores_ptr + places, mask=real, other=float("-inf"))
            new_top = tl.maximum(top, tl.max(scores, 1))
            total = total * tl.exp(top - new_top) + tl.sum(tl.exp(scores - new_top[:, None]), 1)
            top = new_top
        tl.store(sums_ptr + row, top + tl.log(total), mask=row < size)


@triton.jit
def student_scores(
    query_ptr,  # (R, D) float16, scaled; of target rows
    key_ptr,  # (R, D) float16; of source rows
    tgt_null_ptr,  # (R,) of target rows
    src_null_ptr,  # (R,) of source rows
    tgt_words_ptr,  # (R,) int32
    src_words_ptr,  # (R,) int32
    places_ptr,  # (B, 4) int32: first row and pieces of the source, of the target
    look_ptr,  # (4 * 25, C): planes, rows and columns around a cell
    look_bias_ptr,  # (C,)
    judge_ptr,  # (25, C)
    judge_bias_ptr,  # (1,)
    diagonal_ptr,  # (2,): what a cell loses by its distance, and by its square
    n_src,
    n_tgt,
    n_channels,  # C, a multiple of CHANNELS; 0 for a student without corrections
    scratch_ptr,  # (B, (5 + C) * S * T + S + T)
    fwd_ptr,  # (B, S, T)
    bwd_ptr,  # (B, S, T)
    fwd_null_ptr,  # (B, T)
    bwd_null_ptr,  # (B, S)
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    CELLS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Compute both directions' weights of one pair from its queries and keys: grid (B,).

    Scores, their logarithms of sums both ways, four planes, hidden channels and corrected scores
    stand in the pair's scratch, which stays in the caches; barriers lie between what writes
    and what reads it. Cells are numbered t * s_length + s.
    """
    b = tl.program_id(0).to(tl.int64)
    src_row = tl.load(places_ptr + 4 * b)
    src_size = tl.load(places_ptr + 4 * b + 1)
    tgt_row = tl.load(places_ptr + 4 * b + 2)
    tgt_size = tl.load(places_ptr + 4 * b + 3)
    query_ptr += tgt_row.to(tl.int64) * WIDTH
    key_ptr += src_row.to(tl.int64) * WIDTH
    tgt_null_ptr += tgt_row
    src_null_ptr += src_row
    tgt_words_ptr += tgt_row
    src_words_ptr += src_row
    cells = src_size * tgt_size
    room = n_src * n_tgt
    scores_ptr = scratch_ptr + b * ((5 + n_channels) * room + n_src + n_tgt)
    planes_ptr = scores_ptr + room
    hidden_ptr = planes_ptr + 4 * room
    tgt_sums_ptr = hidden_ptr + n_channels * room
    src_sums_ptr = tgt_sums_ptr + n_tgt

    # Similarity, less what the distance from the diagonal costs; -1e9 where no word begins.
    slow = tl.load(diagonal_ptr)
    fast = tl.load(diagonal_ptr + 1)
    slope = src_size.to(tl.float32) / tl.maximum(tgt_size, 1).to(tl.float32)
    width = tl.arange(0, WIDTH)
    for first in range(0, tgt_size, ROWS):
        row = first + tl.arange(0, ROWS)
        real_row = row < tgt_size
        row_places = row[:, None] * WIDTH + width[None, :]
        query = tl.load(query_ptr + row_places, mask=real_row[:, None], other=0.0)
        row_word = tl.load(tgt_words_ptr + row, mask=real_row, other=0)
        middle = slope * (row.to(tl.float32) + 0.5)
        for start in range(0, src_size, KEYS):
            key = start + tl.arange(0, KEYS)
            real_key = key < src_size
            key_places = key[None, :] * WIDTH + width[:, None]
            keys = tl.load(key_ptr + key_places, mask=real_key[None, :], other=0.0)
            key_word = tl.load(src_words_ptr + key, mask=real_key, other=0)
            away = tl.abs(key.to(tl.float32)[None, :] + 0.5 - middle[:, None])
            away = tl.log(away + 1)
            scores = tl.dot(query, keys) - away * (slow + fast * away)
            linkable = (row_word[:, None] > 0) & (key_word[None, :] > 0)
            scores = tl.where(linkable, scores, -1e9)
            out = row[:, None] * src_size + key[None, :]
            tl.store(scores_ptr + out, scores, mask=real_row[:, None] & real_key[None, :])
    tl.debug_barrier()

    if n_channels > 0:
        _sum_logs(
            scores_ptr, tgt_null_ptr, tgt_sums_ptr, tgt_size, src_size, src_size, 1, ROWS, KEYS
        )
        _sum_logs(
            scores_ptr, src_null_ptr, src_sums_ptr, src_size, tgt_size, 1, src_size, ROWS, KEYS
        )
        tl.debug_barrier()
        for start in range(0, cells, CELLS):
            cell = start + tl.arange(0, CELLS)
            real = cell < cells
            scores = tl.load(scores_ptr + cell, mask=real, other=-1e9)
            fwd_sum = tl.load(tgt_sums_ptr + cell // src_size, mask=real, other=0.0)
            bwd_sum = tl.load(src_sums_ptr + cell % src_size, mask=real, other=0.0)
            linkable = scores > -5e8
            fwd = tl.where(linkable, tl.exp(scores - fwd_sum), 0.0)
            bwd = tl.where(linkable, tl.exp(scores - bwd_sum), 0.0)
            both = tl.where(linkable, tl.sqrt(fwd * bwd + 1e-9), 0.0)
            tl.store(planes_ptr + cell, tl.where(linkable, scores * 0.25, 0.0), mask=real)
            tl.store(planes_ptr + room + cell, fwd, mask=real)
            tl.store(planes_ptr + 2 * room + cell, bwd, mask=real)
            tl.store(planes_ptr + 3 * room + cell, both, mask=real)
        tl.debug_barrier()
        for start in range(0, cells, CELLS):
            cell = start + tl.arange(0, CELLS)
            real = cell < cells
            t = cell // src_size
            s = cell % src_size
            linkable = tl.load(scores_ptr + cell, mask=real, other=-1e9) > -5e8
            for group in range(0, n_channels, CHANNELS):
                channel = group + tl.arange(0, CHANNELS)
                seen = tl.zeros([CELLS, CHANNELS], tl.float32)
                seen += tl.load(look_bias_ptr + channel)[None, :]
                for tap in range(0, 100):
                    around = tap % 25
                    there_t = t + around // 5 - 2
                    there_s = s + around % 5 - 2
                    there = real & (there_t >= 0) & (there_t < tgt_size)
                    there &= (there_s >= 0) & (there_s < src_size)
                    place = planes_ptr + tap // 25 * room + there_t * src_size + there_s
                    value = tl.load(place, mask=there, other=0.0)
                    seen += value[:, None] * tl.load(look_ptr + tap * n_channels + channel)[None, :]
                seen = tl.where(linkable[:, None], tl.maximum(seen, 0.0), 0.0)
                places = cell[:, None] * n_channels + channel[None, :]
                tl.store(hidden_ptr + places, seen, mask=real[:, None])
        tl.debug_barrier()
        judge_bias = tl.load(judge_bias_ptr)
        for start in range(0, cells, CELLS):
            cell = start + tl.arange(0, CELLS)
            real = cell < cells
            t = cell // src_size
            s = cell % src_size
            scores = tl.load(scores_ptr + cell, mask=real, other=-1e9)
            judged = tl.zeros([CELLS, CHANNELS], tl.float32)
            for around in range(0, 25):
                there_t = t + around // 5 - 2
                there_s = s + around % 5 - 2
                there = real & (there_t >= 0) & (there_t < tgt_size)
                there &= (there_s >= 0) & (there_s < src_size)
                place = (there_t * src_size + there_s) * n_channels
                for group in range(0, n_channels, CHANNELS):
                    channel = group + tl.arange(0, CHANNELS)
                    places = place[:, None] + channel[None, :]
                    hidden = tl.load(hidden_ptr + places, mask=there[:, None], other=0.0)
                    judged += hidden * tl.load(judge_ptr + around * n_channels + channel)[None, :]
            corrected = scores + tl.sum(judged, 1) + judge_bias
            tl.store(scores_ptr + cell, tl.where(scores > -5e8, corrected, -1e9), mask=real)
        tl.debug_barrier()

    _sum_logs(scores_ptr, tgt_null_ptr, tgt_sums_ptr, tgt_size, src_size, src_size, 1, ROWS, KEYS)
    _sum_logs(scores_ptr, src_null_ptr, src_sums_ptr, src_size, tgt_size, 1, src_size, ROWS, KEYS)
    tl.debug_barrier()
    for start in range(0, room, CELLS):
        cell = start + tl.arange(0, CELLS)
        s = cell // n_tgt
        t = cell % n_tgt
        real = (s < src_size) & (t < tgt_size)
        scores = tl.load(scores_ptr + t * src_size + s, mask=real, other=-1e9)
        linkable = scores > -5e8
        fwd_sum = tl.load(tgt_sums_ptr + t, mask=real, other=0.0)
        bwd_sum = tl.load(src_sums_ptr + s, mask=real, other=0.0)
        fwd = tl.where(linkable, tl.exp(scores - fwd_sum), 0.0)
        bwd = tl.where(linkable, tl.exp(scores - bwd_sum), 0.0)
        tl.store(fwd_ptr + b * room + cell, fwd, mask=cell < room)
        tl.store(bwd_ptr + b * room + cell, bwd, mask=cell < room)
    # Inside a word NULL is certain; with an empty side there is nothing to be NULL of.
    for start in range(0, n_tgt, KEYS):
        t = start + tl.arange(0, KEYS)
        real = (t < tgt_size) & (src_size > 0)
        word = tl.load(tgt_words_ptr + t, mask=real, other=0) > 0
        share = tl.load(tgt_null_ptr + t, mask=real, other=0.0)
        share = tl.exp(share - tl.load(tgt_sums_ptr + t, mask=real, other=0.0))
        share = tl.where(real, tl.where(word, share, 1.0), 0.0)
        tl.store(fwd_null_ptr + b * n_tgt + t, share, mask=t < n_tgt)
    for start in range(0, n_src, KEYS):
        s = start + tl.arange(0, KEYS)
        real = (s < src_size) & (tgt_size > 0)
        word = tl.load(src_words_ptr + s, mask=real, other=0) > 0
        share = tl.load(src_null_ptr + s, mask=real, other=0.0)
        share = tl.exp(share - tl.load(src_sums_ptr + s, mask=real, other=0.0))
        share = tl.where(real, tl.where(word, share, 1.0), 0.0)
        tl.store(bwd_null_ptr + b * n_src + s, share, mask=s < n_src)

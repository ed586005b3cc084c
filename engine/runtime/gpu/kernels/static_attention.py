"""Triton source of attention whose row i never sees key i. Its twin has its name in `reference`.

Imported by export and tests only: the engine launches what was compiled from it (`launch`). The
arguments stand in the order that TensorRT's plugins demand: inputs, numbers, outputs.
"""

import triton
import triton.language as tl


@triton.jit
def static_attention(
    q_ptr,  # (n_q, L, D), scaled; one for all pairs if n_q is 1
    k_ptr,  # (B, L, D)
    v_ptr,
    lengths_ptr,  # (B,) int32
    mask_ptr,  # not read: `lengths` says the same; an input of the op in the graph
    n_q,
    n_rows,
    heads,
    stride_q_b,
    stride_q_row,
    stride_q_head,
    stride_k_b,
    stride_k_row,
    stride_k_head,
    stride_v_b,
    stride_v_row,
    stride_v_head,
    stride_out_b,
    stride_out_row,
    stride_out_head,
    out_ptr,  # (B, L, D)
    HEAD: tl.constexpr,  # width of a head
    HEAD_BLOCK: tl.constexpr,  # the next power of two
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDEN: tl.constexpr,  # products of float32: the interpreter's bfloat16 ones are wrong
):
    """Compute one tile of rows of one head of one pair: grid (B·H, tiles of rows).

    out_i = Σ_{j≠i} exp(q_i·k_j) v_j / Σ_{j≠i} exp(q_i·k_j), over keys j inside the sentence.
    """
    pair = tl.program_id(0) // heads
    head = tl.program_id(0) % heads
    length = tl.load(lengths_ptr + pair)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    width = tl.arange(0, HEAD_BLOCK)
    wide = width < HEAD
    b = pair.to(tl.int64)  # B·L·D may pass 2^31
    q_ptr += tl.minimum(b, n_q - 1) * stride_q_b + head * stride_q_head
    k_ptr += b * stride_k_b + head * stride_k_head
    v_ptr += b * stride_v_b + head * stride_v_head
    out_ptr += b * stride_out_b + head * stride_out_head

    q_places = row[:, None] * stride_q_row + width[None, :]
    q = tl.load(q_ptr + q_places, mask=(row < length)[:, None] & wide[None, :], other=0.0)
    if WIDEN:
        q = q.to(tl.float32)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, HEAD_BLOCK], tl.float32)
    # Tiles of rows behind the sentence have nothing to do but write zeros.
    end = tl.where(tl.program_id(1) * ROWS < length, length, 0)
    for start in range(0, end, KEYS):
        key = start + tl.arange(0, KEYS)
        real = key < length
        k_places = key[None, :] * stride_k_row + width[:, None]
        k = tl.load(k_ptr + k_places, mask=wide[:, None] & real[None, :], other=0.0)
        if WIDEN:
            k = k.to(tl.float32)
        scores = tl.dot(q, k, input_precision="ieee")  # (ROWS, KEYS)
        seen = real[None, :] & (row[:, None] != key[None, :])
        scores = tl.where(seen, scores, float("-inf"))
        # Softmax over tiles: sums so far were taken against an older, lower maximum, and shrink by
        # exp(old top - new top) before this tile is added.
        new_top = tl.maximum(top, tl.max(scores, 1))
        # A row that has seen no key yet has no top; 0 keeps -inf - -inf from being NaN.
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(top - base)
        total = total * shrink + tl.sum(weights, 1)
        v_places = key[:, None] * stride_v_row + width[None, :]
        v = tl.load(v_ptr + v_places, mask=real[:, None] & wide[None, :], other=0.0)
        mixed = mixed * shrink[:, None]
        weights = weights.to(v.dtype)
        if WIDEN:
            weights = weights.to(tl.float32)
            v = v.to(tl.float32)
        mixed = tl.dot(weights, v, mixed, input_precision="ieee")
        top = new_top
    some = (total > 0) & (row < length)
    out = tl.where(some[:, None], mixed / tl.where(some, total, 1.0)[:, None], 0.0)
    out_places = row[:, None] * stride_out_row + width[None, :]
    inside = (row < n_rows)[:, None] & wide[None, :]
    tl.store(out_ptr + out_places, out.to(out_ptr.dtype.element_ty), mask=inside)

"""Triton source that turns both directions' weights into word links: only links leave the GPU. Its
twin has its name in `reference`.

Imported by export and tests only: the engine launches what was compiled from it (`launch`).
"""

import triton
import triton.language as tl


@triton.jit
def _word_scores(
    fwd_ptr,
    bwd_ptr,
    src_words_ptr,
    tgt_words_ptr,
    first_src,
    first_tgt,
    n_src,
    n_tgt,
    stride_fwd_src,
    stride_fwd_tgt,
    stride_bwd_src,
    stride_bwd_tgt,
    src_span,
    tgt_span,
    SRC: tl.constexpr,
    TGT: tl.constexpr,
):
    """Return scores of the word pairs that begin in a tile of pieces, 0 elsewhere, and where words
    begin.

    The score of two words is the largest 2ab / (a + b) of their pieces' weights a, b. A word's
    pieces follow each other, `span` of them at most, so its maximum is a walk of that many steps
    from its first piece.
    """
    i = first_src + tl.arange(0, SRC)
    j = first_tgt + tl.arange(0, TGT)
    src = tl.load(src_words_ptr + i, mask=i < n_src, other=-1)
    tgt = tl.load(tgt_words_ptr + j, mask=j < n_tgt, other=-1)
    src_before = tl.load(src_words_ptr + i - 1, mask=(i > 0) & (i < n_src), other=-1)
    tgt_before = tl.load(tgt_words_ptr + j - 1, mask=(j > 0) & (j < n_tgt), other=-1)
    src_begins = (src >= 0) & (src != src_before)
    tgt_begins = (tgt >= 0) & (tgt != tgt_before)
    best = tl.zeros([SRC, TGT], tl.float32)
    for a in range(0, src_span):
        src_here = tl.load(src_words_ptr + i + a, mask=i + a < n_src, other=-1)
        rows = src_begins & (src_here == src)
        for c in range(0, tgt_span):
            tgt_here = tl.load(tgt_words_ptr + j + c, mask=j + c < n_tgt, other=-1)
            cell = rows[:, None] & (tgt_begins & (tgt_here == tgt))[None, :]
            fwd_places = (i + a)[:, None] * stride_fwd_src + (j + c)[None, :] * stride_fwd_tgt
            bwd_places = (i + a)[:, None] * stride_bwd_src + (j + c)[None, :] * stride_bwd_tgt
            fwd = tl.load(fwd_ptr + fwd_places, mask=cell, other=0.0).to(tl.float32)
            bwd = tl.load(bwd_ptr + bwd_places, mask=cell, other=0.0).to(tl.float32)
            # Up to 2 units in the last place from the CPU's: exact division is a call, for which
            # registers would have to be saved in memory.
            score = 2 * fwd * bwd / tl.maximum(fwd + bwd, 1e-30)
            best = tl.maximum(best, score)
    return best, src_begins, tgt_begins


@triton.jit
def symmetrize(
    fwd_ptr,  # (B, S, T), or any order of the axes: see the strides
    bwd_ptr,
    src_words_ptr,  # (B, S) int32, -1 for pieces that do not count
    tgt_words_ptr,  # (B, T) int32
    spans_ptr,  # (B, 2) int32: pieces of the longest word of each side
    n_src,
    n_tgt,
    stride_fwd_b,
    stride_fwd_src,
    stride_fwd_tgt,
    stride_bwd_b,
    stride_bwd_src,
    stride_bwd_tgt,
    threshold,
    total_ptr,  # (1,) int32, 0 before the launch: links of all pairs
    counts_ptr,  # (B,) int32
    starts_ptr,  # (B,) int32
    links_ptr,  # (B·S·T,) int32: source piece · 2^16 + target piece, the first ones of the words
    scores_ptr,  # (B·S·T,) float32
    sentence_ptr,  # (B,) float32
    SRC: tl.constexpr,
    TGT: tl.constexpr,
    WITH_SENTENCE: tl.constexpr,  # whether the pairs' own scores are wanted
):
    """Find all links of one pair, sorted: grid (B,).

    Pairs take their place in the list as they finish, so it has no gaps and only `total` links
    have to be copied. Scores are computed again in every pass: keeping them would take memory.
    """
    b = tl.program_id(0).to(tl.int64)
    fwd_ptr += b * stride_fwd_b
    bwd_ptr += b * stride_bwd_b
    src_words_ptr += b * n_src
    tgt_words_ptr += b * n_tgt
    src_span = tl.load(spans_ptr + 2 * b)
    tgt_span = tl.load(spans_ptr + 2 * b + 1)

    # First pass: how many links there are, to reserve their place in the list.
    n_links = 0
    best_sum = 0.0
    n_words = 0
    for i in range(0, n_src, SRC):
        row_best = tl.zeros([SRC], tl.float32)
        row_begins = tl.zeros([SRC], tl.int32)
        for j in range(0, n_tgt, TGT):
            words, src_begins, tgt_begins = _word_scores(
                fwd_ptr, bwd_ptr, src_words_ptr, tgt_words_ptr, i, j, n_src, n_tgt,
                stride_fwd_src, stride_fwd_tgt, stride_bwd_src, stride_bwd_tgt,
                src_span, tgt_span, SRC, TGT,
            )  # fmt: skip
            linked = words >= threshold
            n_links += tl.sum(tl.sum(linked.to(tl.int32), 1), 0)
            row_best = tl.maximum(row_best, tl.max(tl.where(linked, words, 0.0), 1))
            row_begins = src_begins.to(tl.int32)
        best_sum += tl.sum(row_best, 0)
        n_words += tl.sum(row_begins, 0)
    place = tl.atomic_add(total_ptr, n_links)
    tl.store(counts_ptr + b, n_links)
    tl.store(starts_ptr + b, place)

    # Second pass: write them, row by row.
    for i in range(0, n_src, SRC):
        # How many links each row has says where the next one begins.
        row_links = tl.zeros([SRC], tl.int32)
        for j in range(0, n_tgt, TGT):
            words, src_begins, tgt_begins = _word_scores(
                fwd_ptr, bwd_ptr, src_words_ptr, tgt_words_ptr, i, j, n_src, n_tgt,
                stride_fwd_src, stride_fwd_tgt, stride_bwd_src, stride_bwd_tgt,
                src_span, tgt_span, SRC, TGT,
            )  # fmt: skip
            row_links += tl.sum((words >= threshold).to(tl.int32), 1)
        row_place = place + tl.cumsum(row_links, 0) - row_links
        for j in range(0, n_tgt, TGT):
            words, src_begins, tgt_begins = _word_scores(
                fwd_ptr, bwd_ptr, src_words_ptr, tgt_words_ptr, i, j, n_src, n_tgt,
                stride_fwd_src, stride_fwd_tgt, stride_bwd_src, stride_bwd_tgt,
                src_span, tgt_span, SRC, TGT,
            )  # fmt: skip
            linked = words >= threshold
            one = linked.to(tl.int32)
            # A row that is linked at 0 1 1 0 1 writes to its places _ 0 1 _ 2.
            places = row_place[:, None] + tl.cumsum(one, 1) - one
            link = (i + tl.arange(0, SRC))[:, None] * 65536 + (j + tl.arange(0, TGT))[None, :]
            tl.store(links_ptr + places, link, mask=linked)
            tl.store(scores_ptr + places, words, mask=linked)
            row_place += tl.sum(one, 1)
        place += tl.sum(row_links, 0)

    if WITH_SENTENCE:
        # Rows were done in the first pass; a pair's score is the mean over the words of both sides.
        for j in range(0, n_tgt, TGT):
            column_best = tl.zeros([TGT], tl.float32)
            column_begins = tl.zeros([TGT], tl.int32)
            for i in range(0, n_src, SRC):
                words, src_begins, tgt_begins = _word_scores(
                    fwd_ptr, bwd_ptr, src_words_ptr, tgt_words_ptr, i, j, n_src, n_tgt,
                    stride_fwd_src, stride_fwd_tgt, stride_bwd_src, stride_bwd_tgt,
                    src_span, tgt_span, SRC, TGT,
                )  # fmt: skip
                linked = words >= threshold
                column_best = tl.maximum(column_best, tl.max(tl.where(linked, words, 0.0), 0))
                column_begins = tgt_begins.to(tl.int32)
            best_sum += tl.sum(column_best, 0)
            n_words += tl.sum(column_begins, 0)
        tl.store(sentence_ptr + b, best_sum / tl.maximum(n_words, 1).to(tl.float32))

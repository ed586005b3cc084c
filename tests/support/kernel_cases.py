"""Cases for kernels and their twins: inputs of every awkward shape, seeded; the twins as loops."""

import math
from itertools import product

import numpy as np

# Largest difference from the twin, which computes in float32 from the same rounded inputs. What a
# 16-bit type rounds is the weights before the values and the result.
TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}

# (lengths of the pairs, padded length): single pieces, empty ones, ragged, on and off a tile of 16.
LENGTHS = {
    "one piece": ([1], 1),
    "two pieces": ([2], 2),
    "empty": ([0], 3),
    "ragged": ([5, 1, 0, 7, 2], 7),
    "a tile": ([16, 15], 16),
    "off the tile": ([17, 3], 19),
}
SIDES = {
    "one piece": ([(1, 1)], 1, 1),
    "no source": ([(0, 3), (2, 3)], 2, 3),
    "no target": ([(3, 0), (3, 2)], 3, 2),
    "ragged": ([(5, 2), (1, 7), (0, 0), (4, 7)], 5, 7),
    "a tile": ([(16, 16)], 16, 16),
    "off the tile": ([(17, 33), (2, 1)], 18, 33),
}


def static_attention_inputs(lengths: list[int], size: int, width: int, one_query: bool = False):
    rng = np.random.default_rng(size + width)
    q, k, v = (rng.normal(size=(len(lengths), size, width)).astype(np.float32) for _ in range(3))
    q = (q[:1] if one_query else q) * np.float32(0.5)
    return q, k, v, np.array(lengths)


def leaky_attention_inputs(pairs: list[tuple[int, int]], n_src: int, n_tgt: int, width: int):
    rng = np.random.default_rng(n_src + n_tgt + width)
    q = rng.normal(size=(len(pairs), n_tgt, width)).astype(np.float32) * np.float32(0.5)
    k = rng.normal(size=(len(pairs), n_src, width)).astype(np.float32)
    null_key = rng.normal(size=width).astype(np.float32)
    there = np.arange(n_src) < np.array([s for s, _ in pairs])[:, None]
    return q, k, null_key, np.where(there, 0, -np.inf).astype(np.float32)


def symmetrize_inputs(pairs: list[tuple[int, int]], n_src: int, n_tgt: int, longest: int = 3):
    """Make weights, words of up to `longest` pieces, and the words' spans."""
    rng = np.random.default_rng(7 * n_src + n_tgt + longest)
    shape = (len(pairs), n_src, n_tgt)
    fwd, bwd = (rng.random(shape, np.float32) ** 6 for _ in range(2))
    fwd[rng.random(shape) < 0.1] = bwd[rng.random(shape) < 0.1] = 0
    sides, spans = [], []
    for lengths, size in zip(zip(*pairs, strict=True), (n_src, n_tgt), strict=True):
        words = np.full((len(pairs), size), -1)
        for row, length in zip(words, lengths, strict=True):
            new = rng.random(length) < 0.6
            row[:length] = np.cumsum(new)
            for place in range(longest, length):  # no word may be longer
                if (row[place - longest : place + 1] == row[place]).all():
                    row[place:length] += 1
        sides.append(words)
        runs = [np.bincount(row[row >= 0]).max(initial=0) for row in words]
        spans.append(runs)
    return fwd, bwd, *sides, np.array(spans).T


# ---- loops, written from the definition ----


def static_attention_loops(q, k, v, lengths, heads):
    batch, size, width = k.shape
    out, head = np.zeros(k.shape), width // heads
    for b, h, i in product(range(batch), range(heads), range(size)):
        part = slice(h * head, (h + 1) * head)
        keys = [j for j in range(lengths[b]) if j != i] if i < lengths[b] else []
        query = q[b if len(q) > 1 else 0, i, part]
        raw = [math.exp(float(query @ k[b, j, part])) for j in keys]
        for weight, j in zip(raw, keys, strict=True):
            out[b, i, part] += weight / sum(raw) * v[b, j, part]
    return out


def leaky_attention_loops(q, k, null_key, mask, heads):
    (batch, n_tgt, width), n_src = q.shape, k.shape[1]
    weights, null, head = np.zeros((batch, n_tgt, n_src)), np.zeros((batch, n_tgt)), width // heads
    for b, h, i in product(range(batch), range(heads), range(n_tgt)):
        part = slice(h * head, (h + 1) * head)
        raw = [math.exp(float(q[b, i, part] @ null_key[part]))]
        for j in range(n_src):
            there = mask[b, j] == 0
            raw.append(math.exp(float(q[b, i, part] @ k[b, j, part])) if there else 0.0)
        null[b, i] += raw[0] / sum(raw) / heads
        weights[b, i] += np.array(raw[1:]) / sum(raw) / heads
    return weights, null


def symmetrize_loops(fwd, bwd, src_words, tgt_words, threshold):
    """Return for each pair {(first source piece, first target piece): score}, and its score."""
    found = []
    for f, g, src, tgt in zip(fwd, bwd, src_words.tolist(), tgt_words.tolist(), strict=True):
        links = {}
        for i, j in product(range(len(src)), range(len(tgt))):
            if src[i] < 0 or tgt[j] < 0 or not f[i, j] + g[i, j]:
                continue
            score = np.float32(2) * f[i, j] * g[i, j] / (f[i, j] + g[i, j])
            if score >= np.float32(threshold):
                link = src.index(src[i]), tgt.index(tgt[j])
                links[link] = max(links.get(link, np.float32(0)), score)
        words = [{w for w in side if w >= 0} for side in (src, tgt)]
        best = sum(
            max((s for link, s in links.items() if link[axis] == side.index(word)), default=0)
            for axis, side in enumerate((src, tgt))
            for word in words[axis]
        )
        count = len(words[0]) + len(words[1])
        found.append((links, float(best / count) if all(words) else 0.0))
    return found

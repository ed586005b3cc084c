"""A small language made up for tests of learning, whose true links are known."""

from __future__ import annotations

import numpy as np

from ...engine.types import Link

N_WORDS = 60
Sentences = list[list[str]]


def make_corpus(n: int, random_seed: int) -> tuple[Sentences, Sentences, list[set[Link]]]:
    """Make n pairs and their true links.

    The target translates word by word (`7w` is `q7x`), with neighbours swapped now and then and a
    target word from nowhere in between.
    """
    rng = np.random.default_rng(random_seed)
    src, tgt, gold = [], [], []
    for _ in range(n):
        ids = rng.permutation(N_WORDS)[: rng.integers(3, 9)]
        order = list(range(len(ids)))
        if rng.random() < 0.4:
            k = int(rng.integers(len(ids) - 1))
            order[k], order[k + 1] = order[k + 1], order[k]
        words = [(f"q{ids[i]}x", i) for i in order]
        if rng.random() < 0.3:
            words.insert(int(rng.integers(len(words) + 1)), ("ne", -1))
        src.append([f"{i}w" for i in ids])
        tgt.append([word for word, _ in words])
        gold.append({(i, j) for j, (_, i) in enumerate(words) if i >= 0})
    return src, tgt, gold


def measure_f1(found: list[set[Link]], gold: list[set[Link]]) -> float:
    """Return the harmonic mean of precision and recall over all pairs."""
    both = sum(len(a & b) for a, b in zip(found, gold, strict=True))
    return 2 * both / (sum(map(len, found)) + sum(map(len, gold)))

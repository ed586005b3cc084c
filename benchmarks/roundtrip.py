"""Checks that a bundle links the words of real text exactly as the PyTorch model of its run does.

Compares word links at the bundle's threshold; exit status 1 if fp32 links differ.

    python -m mx_align.benchmarks.roundtrip run de-en.mx corpus.de.gz corpus.en.gz --pairs 1000
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

from ..engine.aligner import Aligner
from ..engine.links.scoring import link_f1
from ..engine.text.files import read_pairs
from ..engine.text.words import split_words
from .ablation import word_weights
from .long_lines import ENDS

Links = list[set[tuple[int, int]]]
Words = list[list[str]]


def bundle_links(bundle: str, dtype: str, threshold: float, src: Words, tgt: Words) -> Links:
    aligner = Aligner.load(bundle, backend="cpu", dtype=dtype, threads=1, threshold=threshold)
    return [{(i, j) for i, j, *_ in one.links} for one in aligner.align(src, tgt)]


def compare_links(wanted: Links, found: Links, scores: list[np.ndarray], threshold: float) -> dict:
    """Count links and differing ones, and how far from the threshold those that differ are."""
    odd = [
        (i, link)
        for i, (a, b) in enumerate(zip(wanted, found, strict=True))
        for link in sorted(a ^ b)
    ]
    return {
        "links": sum(map(len, wanted)),
        "different": len(odd),
        "pairs_with_a_difference": len({i for i, _ in odd}),
        "link_f1": link_f1(wanted, found),
        "farthest_from_threshold": max(
            (abs(float(scores[i][link]) - threshold) for i, link in odd), default=0.0
        ),
    }


def main() -> None:
    """Compare the links of every dtype with those of PyTorch."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("run", "bundle", "src", "tgt"):
        command.add_argument(name)
    command.add_argument("--pairs", type=int, default=1000)
    arguments = command.parse_args()
    torch.set_num_threads(1)
    aligner = Aligner.load(arguments.bundle, backend="cpu")
    bundle, _ = aligner.require_model()
    longest, threshold = bundle.max_length, bundle.threshold()
    src, tgt = [], []
    encoders = bundle.tokenizers
    for line in read_pairs(arguments.src, arguments.tgt):
        words = [split_words(side) for side in line]
        sizes = [len(e.encode(side)[0]) for e, side in zip(encoders, words, strict=True)]
        # The engine splits pairs of several sentences, and those too long for the model.
        several = any(word[-1:] in ENDS for side in words for word in side[:-1])
        if max(sizes) <= longest and not several:
            src.append(words[0])
            tgt.append(words[1])
        if len(src) == arguments.pairs:
            break
    scores = word_weights(Path(arguments.run), src, tgt)
    wanted = [{(int(i), int(j)) for i, j in np.argwhere(one >= threshold)} for one in scores]
    result = {"pairs": len(src), "threshold": threshold, "bundle": bundle.digest[:12]}
    for dtype in sorted(bundle.dtypes):
        found = bundle_links(arguments.bundle, dtype, threshold, src, tgt)
        result[dtype] = compare_links(wanted, found, scores, threshold)
    print(json.dumps(result, indent=2))
    sys.exit(1 if result.get("fp32", {}).get("different") else 0)


if __name__ == "__main__":
    main()

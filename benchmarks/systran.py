"""Runs fast_align in two phases, through the package systran-align.

A script without imports of ours: it runs in an interpreter that has that package, and need not have
this one.

    python systran.py train BOTH FWD BWD
    python systran.py align FWD BWD SRC TGT OUT
"""

import sys
from itertools import islice

CHUNK = 5000


def read_words(path):
    """Yield the words of each line."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield [word for word in line.rstrip("\n").replace("\t", " ").split(" ") if word]


def train_models(both, fwd, bwd):
    """Learn both directions from `source ||| target` lines."""
    import systran_align  # pyright: ignore[reportMissingImports]

    # What `fast_align -d -o -v` does, the setting its authors advise.
    systran_align.generate_alignment_probabilities(
        both, fwd, bwd, favor_diagonal=True, optimize_tension=True, variational_bayes=True
    )


def align_files(fwd, bwd, src, tgt, out):
    """Write a line of links for each pair."""
    import systran_align  # pyright: ignore[reportMissingImports]

    aligner = systran_align.Aligner(fwd, bwd)
    pairs = zip(read_words(src), read_words(tgt))  # noqa: B905 (counted by the caller)
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        while chunk := list(islice(pairs, CHUNK)):
            for found in aligner.align_batch(*map(list, zip(*chunk))):  # noqa: B905
                links = " ".join(f"{i}-{j}" for i, j in sorted(found["alignments"]))
                file.write(f"{links}\n")


if __name__ == "__main__":
    {"train": train_models, "align": align_files}[sys.argv[1]](*sys.argv[2:])

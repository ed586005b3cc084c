"""Compare with recorded output of atools and extract_lex: equal bytes, or how many lines differ.

`python -m mx_align.benchmarks.tools FOLDER`. The folder has src.en, tgt.fr, forward.links,
backward.links, atools.NAME, random.fwd, random.bwd, random.atools.NAME, lex.s2t and lex.t2s.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from ..engine.apply.lexicon.counts import LexicalCounts
from ..engine.apply.lexicon.tables import LexicalTable, write_lexicons
from ..engine.apply.linked_text import LinkedFiles
from ..engine.dropin.atools import COMMANDS, join_links
from ..engine.links.heuristics import join_directions
from ..engine.links.link_files import read_link_file


def count_differences(folder: Path, fwd: str, bwd: str, recorded: str) -> None:
    """Print for each way to join how many lines differ, in the order of atools and of Moses."""
    sides = [read_link_file(str(folder / name)).all_links() for name in (fwd, bwd)]
    for command in COMMANDS:
        lines = (folder / f"{recorded}.{command}").read_text("utf-8").splitlines()
        differing = []
        for join in (join_links, join_directions):
            made = [join(command, set(f), set(b)) for f, b in zip(*sides, strict=True)]
            texts = [" ".join(f"{i}-{j}" for i, j in links) for links in made]
            differing.append(sum(a != b for a, b in zip(texts, lines, strict=True)))
        print(
            f"{recorded}.{command}: of {len(lines):,} lines differ {differing[0]} (atools' order)"
        )
        print(f"{' ' * len(recorded)} {' ' * len(command)}  {differing[1]} (Moses' order)")


def compare_lexicons(folder: Path) -> None:
    """Print whether the lexical tables have the lines of extract_lex."""
    files = LinkedFiles(*(str(folder / name) for name in
                          ("src.en", "tgt.fr", "atools.grow-diag-final-and")))  # fmt: skip
    counts = LexicalCounts()
    for pairs, links in files.read_chunks():
        counts.add_chunk(pairs, links)
    with tempfile.TemporaryDirectory() as name:
        write_lexicons(f"{name}/lex", LexicalTable.from_counts(counts))
        for end in ("s2t", "t2s"):
            ours, theirs = (
                sorted((place / f"lex.{end}").read_text("utf-8").splitlines())
                for place in (Path(name), folder)
            )
            print(f"lex.{end}: {len(set(ours) ^ set(theirs))} of {len(theirs):,} lines differ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    count_differences(folder, "forward.links", "backward.links", "atools")
    count_differences(folder, "random.fwd", "random.bwd", "random.atools")
    compare_lexicons(folder)


if __name__ == "__main__":
    main()

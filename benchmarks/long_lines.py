"""Measures whether links stay as good when sentences are joined into long lines.

AER of a bundle on a gold set as it is, and with 2, 5 and 10 neighbouring pairs made one line each.

    python -m mx_align.benchmarks.long_lines en-fr.mx test.en test.fr test.talp --name en-fr
    python -m mx_align.benchmarks.long_lines en-fr.mx corpus.en corpus.fr --pairs 1500

`--ended` leaves out pairs that are no sentences, such as headings, which nothing tells apart once
they are joined; `--marks attached` puts all marks at the ends of the words before them, as in text
that is not tokenised, `--marks none` takes those at the ends of pairs away. Without gold links
those of the single pairs stand for them: "AER" is then how much joining changes.
"""

import argparse
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ..engine.aligner import Aligner
from ..engine.links.link_files import Gold, read_link_file
from ..engine.links.scoring import (
    bootstrap_intervals,
    compare_systems,
    count_sentences,
    score_counts,
)
from ..engine.text.files import read_pairs
from ..engine.text.words import split_words
from . import records

ATTACHED = frozenset(".!?…:;,。！？：；、")
ENDS = frozenset(".!?…:;。！？：；")
Links = frozenset[tuple[int, int]]
Words = tuple[list[str], list[str]]  # of both sides
Change = Callable[[list[str]], tuple[list[str], list[int]]]
Pair = tuple[list[str], list[str], Gold, Links]  # the links are those of the single pairs


def ends_sentence(*sides: list[str]) -> bool:
    return ENDS.issuperset(side[-1][-1:] for side in sides if side)


def attach_marks(words: list[str]) -> tuple[list[str], list[int]]:
    """Put marks at the ends of the words before them, as in text that is not tokenised.

    Returns the words, and the place of each of the old ones among them.
    """
    new: list[str] = []
    places = []
    for word in words:
        if new and word in ATTACHED:
            new[-1] += word
        else:
            new.append(word)
        places.append(len(new) - 1)
    return new, places


def drop_marks(words: list[str]) -> tuple[list[str], list[int]]:
    """Return the words without a mark at their end, and the place of each that is left."""
    kept = words[:-1] if words and words[-1] in ENDS else words
    return kept, list(range(len(kept)))


def change_words(pair: Words, gold: Gold, change: Change) -> tuple[Words, Gold]:
    """Change the words of a pair, and move its gold links along."""
    (src, i_places), (tgt, j_places) = map(change, pair)
    sure, possible = (
        frozenset(
            (i_places[i], j_places[j]) for i, j in part if i < len(i_places) and j < len(j_places)
        )
        for part in (gold.sure, gold.possible)
    )
    return (src, tgt), Gold(sure, possible)


def join_pairs(pairs: list[Pair]) -> Pair:
    """Make one pair of them all, with links and gold moved to where the words are now."""
    src: list[str] = []
    tgt: list[str] = []
    sure, possible, found = set(), set(), set()
    for s, t, gold, links in pairs:
        for moved, own in ((sure, gold.sure), (possible, gold.possible), (found, links)):
            moved |= {(i + len(src), j + len(tgt)) for i, j in own}
        src, tgt = src + s, tgt + t
    return src, tgt, Gold(frozenset(sure), frozenset(possible)), frozenset(found)


def align_text(aligner: Aligner, pairs: Sequence[Any]) -> list[Links]:
    found = aligner.align([p[0] for p in pairs], [p[1] for p in pairs])
    return [frozenset(one.links) for one in found]


def measure_aer(aligner: Aligner, pairs: list[Pair]) -> dict[str, float]:
    """Return AER of the pairs, and how much higher it is than that of their own links."""
    gold = [p[2] for p in pairs]
    counts = count_sentences(align_text(aligner, pairs), gold)
    found, ends = score_counts(counts), bootstrap_intervals(counts)["aer"]
    change = compare_systems(count_sentences([p[3] for p in pairs], gold), counts)
    words = sum(len(p[0]) + len(p[1]) for p in pairs) / (2 * len(pairs))
    numbers = {"aer": found.aer, "low": ends[0], "high": ends[1], "precision": found.precision,
               "recall": found.recall, "more": change.difference["aer"],
               "more_low": change.interval_95["aer"][0],
               "more_high": change.interval_95["aer"][1]}  # fmt: skip
    return {"lines": len(pairs), "words": round(words, 1),
            **{name: round(100 * value, 2) for name, value in numbers.items()}}  # fmt: skip


def main() -> None:
    """Align single and joined pairs, and print AER of each."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("bundle", "src", "tgt"):
        command.add_argument(name)
    command.add_argument("gold", nargs="?", help="[the links of the single pairs]")
    command.add_argument("--pairs", type=int, help="only the first N [all]")
    command.add_argument("--ended", action="store_true", help="only pairs that end with a mark")
    command.add_argument("--marks", choices=("own", "attached", "none"), default="own")
    command.add_argument("--joins", type=int, nargs="+", default=[1, 2, 5, 10])
    command.add_argument("--dtype")
    command.add_argument("--langs", help="the languages of SRC and TGT, if the bundle's are others")
    command.add_argument("--name", help="of its row in the JSON file [not kept]")
    command.add_argument("--json", type=Path, default=records.RESULTS / "long_lines.json")
    arguments = command.parse_args()
    if (arguments.gold and arguments.pairs) or (arguments.name and not arguments.gold):
        command.error("--pairs is for text without gold links, --name for text with them")
    lines = islice(read_pairs(arguments.src, arguments.tgt), arguments.pairs)
    text = [(split_words(s), split_words(t)) for s, t in lines]
    aligner = Aligner.load(
        arguments.bundle, langs=arguments.langs, backend="cpu", dtype=arguments.dtype
    )
    gold = [Gold(frozenset(), frozenset())] * len(text)
    if arguments.gold:
        gold = list(read_link_file(arguments.gold).fit_length(len(text), arguments.src).sentences)
    if arguments.ended:
        text, gold = zip(
            *(one for one in zip(text, gold, strict=True) if ends_sentence(*one[0])), strict=True
        )
    if change := {"attached": attach_marks, "none": drop_marks}.get(arguments.marks):
        both = [change_words(*one, change) for one in zip(text, gold, strict=True)]
        text, gold = [pair for pair, _ in both], [links for _, links in both]
    alone = align_text(aligner, text)
    if not arguments.gold:
        gold = [Gold(links, links) for links in alone]
    pairs = [(s, t, *found) for (s, t), *found in zip(text, gold, alone, strict=True)]
    joined: dict[str, dict[str, float]] = {}
    print("joined  lines  words   AER (95 %)            P      R       more than single (95 %)")
    for number in arguments.joins:
        rows = [join_pairs(pairs[k : k + number]) for k in range(0, len(pairs), number)]
        row = measure_aer(aligner, rows)
        joined[str(number)] = row
        print(
            f"x{number:<6} {row['lines']:>5}  {row['words']:>5}  "
            f"{row['aer']:5.2f} ({row['low']:.2f} to {row['high']:.2f})"
            f"  {row['precision']:6.2f} {row['recall']:6.2f}  "
            f"{row['more']:+.2f} ({row['more_low']:+.2f} to {row['more_high']:+.2f})"
        )
    if arguments.name:
        about = records.describe_circumstances(("onnxruntime",))
        run = {"signature": aligner.signature(), **about, "joined": joined}
        records.add_run(arguments.json, arguments.name, run)


if __name__ == "__main__":
    main()

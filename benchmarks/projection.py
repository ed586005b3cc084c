"""Measure how well labels and tags are carried over by a system's links, against gold links.

`python -m mx_align.benchmarks.projection SRC TGT GOLD LINKS` draws groups of one to four words of
each source sentence. A group's right place is where the gold links put it, under the same policy.
What is counted is exact places, and words inside them. Needs no text with labels.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter

from ..engine.apply.projection.labels import Label, project_labels
from ..engine.apply.projection.ranges import LinkedPair, Policy
from ..engine.links.link_files import read_link_file
from ..engine.text.files import read_pairs
from ..engine.text.words import split_words


def draw_labels(words: list[str], chance: random.Random) -> list[Label]:
    """Draw groups of words that do not overlap, with at least one word with letters in each."""
    labels, place = [], 0
    while place < len(words):
        size = chance.randint(1, 4)
        end = min(place + size, len(words))
        if chance.random() < 0.4 and any(map(str.isalpha, "".join(words[place:end]))):
            labels.append(Label(place, end, str(place)))
        place = end
    return labels


def compare_places(
    src: str, tgt: str, gold: str, links: str, policy: Policy, random_seed: int = 1
) -> dict[str, float]:
    """Return precision, recall and F1 of exact places and of words, in percent."""
    chance = random.Random(random_seed)
    counts: Counter[str] = Counter()
    files = read_link_file(gold).sentences, read_link_file(links).sentences
    for (src_line, tgt_line), sure, found in zip(read_pairs(src, tgt), *files, strict=True):
        words = split_words(src_line), split_words(tgt_line)
        labels = draw_labels(words[0], chance)
        sides = []
        for row in (sure.sure or sure.possible, found.possible):
            pair = LinkedPair(*words, [(i, j, 1.0) for i, j in sorted(row)])
            sides.append(project_labels(pair, labels, policy).labels)
        wanted, given = map(set, sides)
        counts += Counter(places=len(wanted), placed=len(given), right=len(wanted & given))
        wanted_words, given_words = (
            {(j, label.name) for label in side for j in range(label.start, label.end)}
            for side in sides
        )
        counts += Counter(
            words=len(wanted_words), worded=len(given_words), hit=len(wanted_words & given_words)
        )
    return {
        "places_f1": 200 * counts["right"] / (counts["places"] + counts["placed"]),
        "words_f1": 200 * counts["hit"] / (counts["words"] + counts["worded"]),
        "groups": counts["places"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("src", "tgt", "gold", "links"):
        parser.add_argument(name)
    given = parser.parse_args()
    for policy in ("best", "cover", "split"):
        found = compare_places(given.src, given.tgt, given.gold, given.links, policy)  # type: ignore[arg-type]
        print(json.dumps({"policy": policy, **{k: round(v, 1) for k, v in found.items()}}))


if __name__ == "__main__":
    main()

"""Reads sentence pairs with gold links."""

from dataclasses import dataclass

from ...engine.errors import InputError
from ...engine.links.link_files import Gold, read_link_file
from ...engine.text.files import read_pairs
from ...engine.text.words import split_words


@dataclass(frozen=True)
class GoldPairs:
    """Gold-aligned sentence pairs, as words and links."""

    src: list[list[str]]
    tgt: list[list[str]]
    gold: list[Gold]


def read_gold_pairs(src: str, tgt: str, links: str) -> GoldPairs:
    """Read two text files and the file of their links."""
    pairs = [(split_words(s), split_words(t)) for s, t in read_pairs(src, tgt)]
    gold = read_gold_links(links, [(len(s), len(t)) for s, t in pairs], src)
    return GoldPairs([s for s, _ in pairs], [t for _, t in pairs], gold)


def read_gold_links(path: str, sizes: list[tuple[int, int]], src: str) -> list[Gold]:
    """Read the gold links of pairs with so many words; `src` names their source file in errors."""
    sentences = read_link_file(path).fit_length(len(sizes), src).sentences
    for number, ((n_src, n_tgt), gold) in enumerate(zip(sizes, sentences, strict=True), 1):
        for i, j in gold.possible:
            if i >= n_src or j >= n_tgt:
                raise InputError(
                    f"{path} sentence {number}: link {i}-{j} is outside its sentences of "
                    f"{n_src} and {n_tgt} words; words count from 0, source first"
                )
    return sentences

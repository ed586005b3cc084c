"""What an aligner says about a pair: links with scores, or a matrix over all pairs of words.

Also turns sentences into the chunks that aligners work on, and their links into alignments. Does
not align.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, repeat, tee, zip_longest
from operator import itemgetter
from typing import Any

from .errors import InputError
from .links.formats import sentence_scores, split_nulls
from .text.words import split_words
from .types import Floats, Link, Links, Pairs, Words

# Links whose words `repr` shows.
_SHOWN_PAIRS = 8


@dataclass(frozen=True, repr=False)
class Alignment:
    """The links of a pair, sorted, with a score from 0 to 1 each; iterates over the links.

    `score` is the mean over all words of the score of their best link, 0 for words without one.
    The NULL probabilities of the words are there if the aligner was loaded with `nulls=True`.
    """

    src: tuple[str, ...]
    tgt: tuple[str, ...]
    links: list[Link]
    scores: list[float]
    score: float
    src_null: list[float] | None = None
    tgt_null: list[float] | None = None

    def __iter__(self) -> Iterator[Link]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)

    def __str__(self) -> str:
        return " ".join(f"{i}-{j}" for i, j in self.links)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{src}-{tgt}" for src, tgt in self.word_pairs()[:_SHOWN_PAIRS])
        more = ", ..." if len(self.links) > _SHOWN_PAIRS else ""
        return f"<Alignment {len(self.links)} links, score {self.score:.3f}: {pairs}{more}>"

    def word_pairs(self) -> list[tuple[str, str]]:
        """Return the words of each link."""
        return [(self.src[i], self.tgt[j]) for i, j in self.links]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain lists and numbers, ready for JSON."""
        found = {**vars(self), "src": list(self.src), "tgt": list(self.tgt)}
        found["links"] = [list(link) for link in self.links]
        return {name: value for name, value in found.items() if value is not None}

    def _repr_html_(self) -> str:
        """Draw links and their scores, as notebooks show them."""
        from .view.figure import draw_pair

        nulls = self.src_null, self.tgt_null
        return draw_pair(self.src, self.tgt, self.links, self.scores, *nulls)


@dataclass(frozen=True, repr=False)
class SoftAlignment:
    """What the model says about all word pairs: matrices (source words, target words), where a
    cell is the highest of its pieces; and each word's probability of having no partner."""

    src: tuple[str, ...]
    tgt: tuple[str, ...]
    scores: Floats
    fwd: Floats
    bwd: Floats
    src_null: Floats
    tgt_null: Floats

    def swap_sides(self) -> SoftAlignment:
        """Return it with source and target changed over."""
        return SoftAlignment(
            self.tgt, self.src, self.scores.T, self.bwd.T, self.fwd.T, self.tgt_null, self.src_null
        )

    def __repr__(self) -> str:
        return f"<SoftAlignment of {len(self.src)} and {len(self.tgt)} words>"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain lists and numbers, ready for JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value.tolist()
            for name, value in vars(self).items()
        }

    def _repr_html_(self) -> str:
        """Draw the matrix of scores, as notebooks show it."""
        from .view.figure import draw_matrix

        nulls = self.src_null.tolist(), self.tgt_null.tolist()
        return draw_matrix(self.src, self.tgt, self.scores.tolist(), *nulls)


# ---- sentences in, alignments out ----


def sentence_words(sentence: str | Words) -> Words:
    """Return the words of a line, with or without its newline, or the words as they were given."""
    return split_words(sentence.removesuffix("\n")) if isinstance(sentence, str) else sentence


def chunk_sentences(
    src: Iterable[str | Words], tgt: Iterable[str | Words], size: int
) -> Iterator[Pairs]:
    """Yield chunks of `size` pairs; fail, after the last complete pair, if one side ends first."""
    if isinstance(src, str) or isinstance(tgt, str):
        raise TypeError(
            "one string was given where many sentences belong; give a list of lines, or use "
            "align_pair for one pair and the methods ending in _files for paths"
        )
    both = zip_longest(src, tgt)
    first = 0
    while rows := list(islice(both, size)):
        whole = [(s, t) for s, t in rows if s is not None and t is not None]
        if whole:
            words = [(sentence_words(s), sentence_words(t)) for s, t in whole]
            yield Pairs(first, [s for s, _ in words], [t for _, t in words])
        first += len(whole)
        if len(whole) < len(rows):
            side = "source" if rows[len(whole)][0] is None else "target"
            raise InputError(
                f"the {side} ends after {first:,} sentences but the other side goes on"
            )


def unzip_pairs(
    pairs: Iterable[tuple[str | Words, str | Words]],
) -> tuple[Iterator[str | Words], Iterator[str | Words]]:
    """Split a stream of pairs into its two sides, to be read side by side; holds one pair."""
    left, right = tee(pairs)
    return map(itemgetter(0), left), map(itemgetter(1), right)


def build_alignments(pairs: Pairs, links: Links) -> list[Alignment]:
    """Return the alignment of each pair of a chunk, given the links of all of them."""
    scores, bounds = links.score.tolist(), pairwise(links.offsets.tolist())
    both = list(zip(links.src.tolist(), links.tgt.tolist(), strict=True))
    nulls: Iterable[Sequence[list[float]]] = repeat((), len(pairs.src))
    if links.src_null is not None:
        sides = split_nulls(links.src_null, pairs.src), split_nulls(links.tgt_null, pairs.tgt)
        nulls = zip(*sides, strict=True)
    rows = zip(pairs.src, pairs.tgt, bounds, sentence_scores(pairs, links), nulls, strict=True)
    return [
        Alignment(tuple(src), tuple(tgt), both[start:end], scores[start:end], score, *null)
        for src, tgt, (start, end), score, null in rows
    ]

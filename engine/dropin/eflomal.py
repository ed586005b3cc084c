"""A module in the shape of `eflomal`: `import mx_align.engine.dropin.eflomal as eflomal`.

OpusFilter and others call these names. Words are linked by our statistical aligner; scores are
costs, lower is better. Priors are read and written in eflomal's format.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, TextIO

from ..text.words import split_words
from ..types import Link, Words
from . import priors as prior_files
from .directions import align_directions, learn_text

logger = logging.getLogger(__name__)
Sentence = str | Words


class Aligner:
    """Aligns a text in both directions; iterations and samplers are not needed."""

    def __init__(self, model: int = 3, **ignored: Any) -> None:
        if ignored:
            logger.info("not needed here: %s", ", ".join(ignored))

    def align(
        self,
        src_input: Iterable[Sentence],
        trg_input: Iterable[Sentence],
        links_filename_fwd: str | None = None,
        links_filename_rev: str | None = None,
        scores_filename_fwd: str | None = None,
        scores_filename_rev: str | None = None,
        priors_input: Iterable[str] | None = None,
        quiet: bool = True,
        use_gdb: bool = False,
    ) -> None:
        """Learn from the sentences and write links and scores of both directions, as far as
        files are given. Sentences are lines or lists of words."""
        src, tgt = (list(map(_join_sentence, side)) for side in (src_input, trg_input))
        known = prior_files.read_priors(priors_input) if priors_input is not None else None
        links: tuple[list[str], list[str]] = [], []
        scores: tuple[list[str], list[str]] = [], []
        for pair in align_directions(learn_text(src, tgt, known), src, tgt):
            for n, (found, cost) in enumerate(
                ((pair.fwd, pair.fwd_cost), (pair.bwd, pair.bwd_cost))
            ):
                links[n].append(format_links(found))
                scores[n].append(f"{cost:.6f}")
        targets = (links_filename_fwd, links_filename_rev, scores_filename_fwd, scores_filename_rev)
        for name, lines in zip(targets, (*links, *scores), strict=True):
            if name is not None:
                with open(name, "w", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in lines)


def calculate_priors(
    src_sentences: Iterable[Sentence],
    trg_sentences: Iterable[Sentence],
    fwd_alignments: Iterable[str],
    rev_alignments: Iterable[str],
) -> prior_files.Priors:
    """Count priors of a text and its links in both directions."""
    return prior_files.count_priors(
        (split_words(_join_sentence(line)) for line in src_sentences),
        (split_words(_join_sentence(line)) for line in trg_sentences),
        prior_files.parse_directions(fwd_alignments),
        prior_files.parse_directions(rev_alignments),
    )


def write_priors(priorsf: TextIO, *priors_list: Any) -> None:
    """Write what `calculate_priors` returned."""
    prior_files.write_priors(priorsf, prior_files.Priors(*priors_list))


def format_links(links: Iterable[Link]) -> str:
    """Return a line of links."""
    return " ".join(f"{i}-{j}" for i, j in links)


def _join_sentence(sentence: Sentence) -> str:
    return sentence.rstrip("\r\n") if isinstance(sentence, str) else " ".join(sentence)

"""mx-lex: lexical tables, shortlists, dictionaries and terms. Has flags and messages only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from ...errors import InputError, MxError
from ..flags import CommonFlags, FlagCommand, argument, flag

if TYPE_CHECKING:
    from ...apply.lexicon.counts import LexicalCounts
    from ...apply.lexicon.tables import LexicalTable
    from ...apply.lexicon.terms import TermCollector

input_flag = partial(flag, group="Input")
output_flag = partial(flag, group="Output")

_HELP = """Make lexical tables, shortlists, dictionaries and lists of terms from two parallel files
SRC and TGT and the LINKS between their words; all may be .gz or .zst.

Counts of parts of a corpus can be kept and put together later. Without text, tables come straight
from a model of mx-seed.

\b
Examples:
  mx-lex corpus.en corpus.fr corpus.links --lex lex              # lex.s2t, lex.t2s
  mx-lex corpus.en corpus.fr corpus.links --shortlist lex.short.gz
  mx-lex corpus.en corpus.fr corpus.links --dictionary words.html --terms terms.tsv
  mx-lex part1.en part1.fr part1.links --save-counts part1.counts.zst
  mx-lex --counts part1.counts.zst --counts part2.counts.zst --lex lex
  mx-lex --load model.npz --shortlist lex.short                  # after mx-seed --save model.npz
"""


@dataclass(frozen=True)
class LexFlags(CommonFlags):
    """The flags of mx-lex."""

    src: str | None = argument()
    tgt: str | None = argument()
    links: str | None = argument()
    counts: tuple[str, ...] = input_flag(
        (), "Add the counts of a part, which --save-counts kept; may be repeated.", metavar="FILE"
    )
    load: str | None = input_flag(
        None, "Take the tables of a model that mx-seed --save kept.", metavar="MODEL"
    )
    raw: bool = input_flag(False, "SRC and TGT are raw text, LINKS of mx-align --tokens raw.")
    lowercase: bool = input_flag(False, "Count words in lower case.")
    lex: str | None = output_flag(
        None, "Write PREFIX.s2t and PREFIX.t2s, as extract_lex does.", metavar="PREFIX"
    )
    shortlist: str | None = output_flag(
        None, "Write a lexical shortlist for Marian and marian-conv.", metavar="FILE"
    )
    dictionary: str | None = output_flag(
        None, "Write a dictionary; its name ends in .tsv, .json or .html.", metavar="FILE"
    )
    terms: str | None = output_flag(
        None, "Write terms of several words, most important first; .tsv, .json or .html.",
        metavar="FILE",
    )  # fmt: skip
    save_counts: str | None = output_flag(
        None, "Keep the counts, to put parts together later.", metavar="FILE"
    )
    best: int | None = output_flag(
        None, "Translations of a word at most [default: shortlist 100, dictionary 10, terms 3].",
        metavar="N", minimum=1,
    )  # fmt: skip
    min_count: int = output_flag(
        2, "Least number of links in dictionary and terms.", metavar="N", minimum=1
    )
    min_probability: float = output_flag(
        0.05, "Least share of a word's links in the dictionary.",
        metavar="P", minimum=0, maximum=1,
    )  # fmt: skip


def run_lex(flags: LexFlags) -> None:
    """Count or load, then write what was asked for."""
    _check_flags(flags)
    from ...apply.lexicon import tables
    from ...apply.lexicon.counts import write_counts

    counts, terms = None, None
    if flags.load:
        from ...statistical.model_file import load_model

        table = tables.LexicalTable.from_model(load_model(flags.load))
    else:
        counts, terms = _count_words(flags)
        table = tables.LexicalTable.from_counts(counts)
    if counts and flags.save_counts:
        write_counts(flags.save_counts, counts)
    if flags.lex:
        tables.write_lexicons(flags.lex, table)
    if flags.shortlist:
        tables.write_shortlist(flags.shortlist, table, flags.best or 100)
    if flags.dictionary:
        _write_dictionary(flags, table)
    if terms and flags.terms:
        _write_terms(flags, terms)
    if not flags.quiet:
        words = f"{len(table.src_words) - 1:,} and {len(table.tgt_words) - 1:,} words"
        click.echo(f"mx-lex: {words}, {len(table.drop_null().src):,} pairs of them", err=True)


def _check_flags(flags: LexFlags) -> None:
    """Fail unless there is one kind of input, something to write, and all that it needs."""
    text = (flags.src, flags.tgt, flags.links)
    if any(text) and not all(text):
        raise InputError("give three files: SRC TGT LINKS; mx-align or mx-seed writes the links")
    if not (all(text) or flags.counts or flags.load):
        raise InputError("give SRC TGT LINKS, or --counts, or --load; see mx-lex --help")
    if flags.load and (all(text) or flags.counts or flags.lowercase or flags.save_counts):
        raise InputError(
            "--load takes tables as they were learned; leave SRC TGT LINKS, --counts, --lowercase "
            "and --save-counts out"
        )
    outputs = (flags.lex, flags.shortlist, flags.dictionary, flags.terms, flags.save_counts)
    if not any(outputs):
        raise MxError(
            "nothing to write: give --lex, --shortlist, --dictionary, --terms or --save-counts"
        )
    if flags.terms and not all(text):
        raise InputError("--terms needs the text: give SRC TGT LINKS")


def _count_words(flags: LexFlags) -> tuple[LexicalCounts, TermCollector | None]:
    """Count the links of the text, and add the counts of other parts."""
    from ...apply.lexicon.counts import LexicalCounts, read_counts
    from ...apply.lexicon.terms import TermCollector
    from ...apply.linked_text import LinkedFiles

    counts = LexicalCounts(lowercase=flags.lowercase)
    terms = TermCollector(lowercase=flags.lowercase) if flags.terms else None
    if flags.src and flags.tgt and flags.links:
        tokens = "raw" if flags.raw else "words"
        for pairs, links in LinkedFiles(flags.src, flags.tgt, flags.links, tokens).read_chunks():
            counts.add_chunk(pairs, links)
            if terms:
                terms.add_chunk(pairs, links)
    for name in flags.counts:
        read_counts(name, counts)
    return counts, terms


def _write_dictionary(flags: LexFlags, table: LexicalTable) -> None:
    from ...apply.lexicon.dictionary import list_entries, read_examples, write_entries

    table = table.drop_null().prune(
        best=flags.best or 10, min_count=flags.min_count, min_probability=flags.min_probability
    )
    examples = {}
    if flags.src and flags.tgt and "-" not in (flags.src, flags.tgt):
        places = table.example[table.example >= 0].tolist()
        examples = read_examples(flags.src, flags.tgt, places)
    write_entries(str(flags.dictionary), list_entries(table, examples), "Dictionary")


def _write_terms(flags: LexFlags, terms: TermCollector) -> None:
    from dataclasses import replace

    from ...apply.lexicon.dictionary import read_examples, write_entries

    rows = terms.list_terms(min_count=flags.min_count, best=flags.best or 3)
    examples = {}
    if "-" not in (flags.src, flags.tgt):
        examples = read_examples(str(flags.src), str(flags.tgt), (place for _, place in rows))
    entries = [replace(entry, example=examples.get(place)) for entry, place in rows]
    write_entries(str(flags.terms), entries, "Terms")


main = FlagCommand("mx-lex", LexFlags, run_lex, help=_HELP, titles=("Input", "Output"))

if __name__ == "__main__":
    main(prog_name="mx-lex")

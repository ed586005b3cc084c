"""mx-extractlex: the arguments of extract_lex, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ..flags import CommonFlags, FlagCommand, argument

_HELP = """Write lexical tables LEX_S2T (lines `target source p`) and LEX_T2S. Takes the arguments
of Moses' and Marian's extract_lex, the target first. mx-lex does more.

\b
Example:
  mx-extractlex corpus.fr corpus.en corpus.links lex.s2t lex.t2s
"""


@dataclass(frozen=True)
class ExtractlexFlags(CommonFlags):
    """The arguments of mx-extractlex."""

    tgt: str = argument(required=True)
    src: str = argument(required=True)
    links: str = argument(required=True)
    lex_s2t: str = argument(required=True)
    lex_t2s: str = argument(required=True)


def run_extractlex(flags: ExtractlexFlags) -> None:
    """Count the links and write both tables."""
    from ...apply.lexicon.counts import LexicalCounts
    from ...apply.lexicon.tables import LexicalTable, write_table
    from ...apply.linked_text import LinkedFiles

    counts = LexicalCounts()
    for pairs, links in LinkedFiles(flags.src, flags.tgt, flags.links).read_chunks():
        counts.add_chunk(pairs, links)
    table = LexicalTable.from_counts(counts)
    write_table(flags.lex_s2t, table.sort_rows())
    write_table(flags.lex_t2s, table.swap_sides().sort_rows())


main = FlagCommand("mx-extractlex", ExtractlexFlags, run_extractlex, help=_HELP)

if __name__ == "__main__":
    main(prog_name="mx-extractlex")

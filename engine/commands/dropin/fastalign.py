"""mx-fastalign: the flags of fast_align, our statistical aligner behind them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import click

from ...errors import InputError, MxError
from ..flags import CommonFlags, FlagCommand, flag

_HELP = """Align a file of pairs `source ||| target` by statistics learned from it, and write a line
of links for each. Takes the flags of fast_align; those that tune its model are accepted and not
needed. Its -q (a number) is --p_null here.

With -p the model is kept, with -f it aligns other text, one line after the other: empty lines do
not end it.

\b
Examples:
  mx-fastalign -i corpus.en-fr -d -o -v > forward.links
  mx-fastalign -i corpus.en-fr -d -o -v -r > backward.links
  mx-fastalign -i corpus.en-fr -p model.npz > forward.links
  mx-fastalign -i new.en-fr -f model.npz > new.links
"""
_ignored = partial(flag, help="Accepted and not needed.", group="Accepted and not needed")


@dataclass(frozen=True)
class FastalignFlags(CommonFlags):
    """The flags of mx-fastalign."""

    input: str | None = flag(None, "Pairs, ` ||| ` between the sides.", short="-i", metavar="FILE")
    reverse: bool = flag(
        False, "Link each source word to a target word, not each target word to a source word.",
        short="-r",
    )  # fmt: skip
    conditional_probabilities: str | None = flag(
        None, "Keep the model here (.npz).", short="-p",
        name="--conditional_probabilities", metavar="MODEL",
    )  # fmt: skip
    force_align: str | None = flag(
        None, "Learn nothing, use a model that -p kept.", short="-f", name="--force_align",
        metavar="MODEL",
    )  # fmt: skip
    print_scores: bool = flag(
        False, "Add ` ||| ` and the cost of the pair, lower is better.",
        short="-s", name="--print_scores",
    )  # fmt: skip
    favor_diagonal: bool = _ignored(False, short="-d", name="--favor_diagonal")
    optimize_tension: bool = _ignored(False, short="-o", name="--optimize_tension")
    variational_bayes: bool = _ignored(False, short="-v", name="--variational_bayes")
    no_null_word: bool = _ignored(False, short="-N", name="--no_null_word")
    iterations: int | None = _ignored(None, short="-I", metavar="N")
    p_null: float | None = _ignored(None, name="--p_null", metavar="P")
    alpha: float | None = _ignored(None, short="-a", metavar="X")
    diagonal_tension: float | None = _ignored(
        None, short="-T", name="--diagonal_tension", metavar="X"
    )
    mean_srclen_multiplier: float | None = _ignored(
        None, short="-m", name="--mean_srclen_multiplier", metavar="X"
    )
    thread_buffer_size: int | None = _ignored(
        None, short="-b", name="--thread_buffer_size", metavar="N"
    )


def run_fastalign(flags: FastalignFlags) -> None:
    """Learn or load, then write a line for each pair."""
    from ...dropin.directions import align_directions, learn_text
    from ...dropin.eflomal import format_links
    from ...statistical.aligner import StatisticalAligner
    from ...text.corpus import ParallelFiles

    if flags.input is None:
        raise InputError("give a file of pairs with -i")
    if flags.force_align and flags.conditional_probabilities:
        raise MxError("-f learns nothing, so that -p has nothing to keep; leave one out")
    source = ParallelFiles(flags.input, separator="bars")
    if flags.force_align:
        aligner, pairs = StatisticalAligner.load(flags.force_align), source.read_from()
    else:
        held = list(source.read_from())
        aligner = learn_text([pair[0] for pair in held], [pair[1] for pair in held])
        pairs = iter(held)
    if flags.conditional_probabilities:
        aligner.save(flags.conditional_probabilities)
    from ...alignment import unzip_pairs

    for pair in align_directions(aligner, *unzip_pairs(pairs)):
        links, cost = (pair.bwd, pair.bwd_cost) if flags.reverse else (pair.fwd, pair.fwd_cost)
        click.echo(format_links(links) + (f" ||| {cost:.6f}" if flags.print_scores else ""))


main = FlagCommand(
    "mx-fastalign", FastalignFlags, run_fastalign, help=_HELP,
    titles=("General", "Accepted and not needed"),
)  # fmt: skip

if __name__ == "__main__":
    main(prog_name="mx-fastalign")

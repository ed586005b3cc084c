"""mx-eflomal: the flags of eflomal-align, our statistical aligner behind them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

from ...errors import InputError, MxError
from ..flags import CommonFlags, FlagCommand, flag

input_flag = partial(flag, group="Input")
output_flag = partial(flag, group="Output")

_HELP = """Align two files by statistics learned from them, and write links of both directions.
Takes the flags of eflomal-align. Words are compared without case, as there.

Links are always source-target. Scores are costs, one number a line, lower is better.

\b
Examples:
  mx-eflomal -s corpus.en -t corpus.fr -f forward.links -r backward.links
  mx-eflomal -i corpus.en-fr -f forward.links -r backward.links -p old.priors --overwrite
  mx-eflomal -s corpus.en -t corpus.fr --write-priors new.priors
"""


@dataclass(frozen=True)
class EflomalFlags(CommonFlags):
    """The flags of mx-eflomal."""

    input: str | None = input_flag(
        None, "Both sides in one file, ` ||| ` between them.", short="-i", metavar="FILE"
    )
    source: str | None = input_flag(None, "Source text.", short="-s", metavar="FILE")
    target: str | None = input_flag(None, "Target text.", short="-t", metavar="FILE")
    priors: str | None = input_flag(
        None, "Counts of earlier texts, as eflomal-makepriors writes them.",
        short="-p", metavar="FILE",
    )  # fmt: skip
    model: int = input_flag(3, "Accepted and not needed.", short="-m", minimum=1, maximum=3)
    forward_links: str | None = output_flag(
        None, "Each target word with its source word.", short="-f", metavar="FILE"
    )
    reverse_links: str | None = output_flag(
        None, "Each source word with its target word.", short="-r", metavar="FILE"
    )
    forward_scores: str | None = output_flag(
        None, "The cost of each target given its source.", short="-F", metavar="FILE"
    )
    reverse_scores: str | None = output_flag(
        None, "The cost of each source given its target.", short="-R", metavar="FILE"
    )
    write_priors: str | None = output_flag(
        None, "Counts of this text, for the next one.", metavar="FILE"
    )
    overwrite: bool = output_flag(False, "Replace files that exist.")


def run_eflomal(flags: EflomalFlags) -> None:
    """Learn from the text, align it, write what was asked for."""
    from ...dropin import priors as prior_files
    from ...dropin.directions import align_directions, learn_text
    from ...dropin.eflomal import format_links
    from ...text.corpus import ParallelFiles
    from ...text.files import open_output, read_lines
    from ...text.words import split_words

    if (flags.input is None) == (flags.source is None) or bool(flags.source) != bool(flags.target):
        raise InputError("give -s SOURCE and -t TARGET, or both sides in one file with -i")
    outputs = (flags.forward_links, flags.reverse_links, flags.forward_scores,
               flags.reverse_scores, flags.write_priors)  # fmt: skip
    if not any(outputs):
        raise MxError("nothing to write: give -f, -r, -F, -R or --write-priors")
    for name in filter(None, outputs):
        if os.path.isfile(name) and not flags.overwrite:
            raise MxError(f"{name} exists; give --overwrite to replace it")
    pairs = list(ParallelFiles(flags.source or str(flags.input), flags.target).read_from())
    src, tgt = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    known = None
    if flags.priors:
        known = prior_files.read_priors(read_lines(flags.priors), flags.priors)
    found = list(align_directions(learn_text(src, tgt, known), src, tgt))
    columns = (
        [format_links(pair.fwd) for pair in found],
        [format_links(pair.bwd) for pair in found],
        [f"{pair.fwd_cost:.6f}" for pair in found],
        [f"{pair.bwd_cost:.6f}" for pair in found],
    )
    for output, lines in zip(outputs, columns, strict=False):
        if output:
            with open_output(output, whole=True) as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
    if flags.write_priors:
        import io

        counted = prior_files.count_priors(
            map(split_words, src), map(split_words, tgt),
            (set(pair.fwd) for pair in found), (set(pair.bwd) for pair in found),
        )  # fmt: skip
        text = io.StringIO()
        prior_files.write_priors(text, counted)
        with open_output(flags.write_priors, whole=True) as file:
            file.write(text.getvalue().encode())


main = FlagCommand("mx-eflomal", EflomalFlags, run_eflomal, help=_HELP, titles=("Input", "Output"))

if __name__ == "__main__":
    main(prog_name="mx-eflomal")

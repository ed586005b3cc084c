"""mx-eval: score link files against gold links, as a table, TSV or JSON.

Has flags and messages; files are read and scored in `links/`. NumPy is loaded only after the flags
are read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Literal

import click

from ..errors import InputError
from ..version import __version__
from .flags import CommonFlags, FlagCommand, argument, flag

input_flag = partial(flag, group="Input")
statistics_flag = partial(flag, group="Statistics")
output_flag = partial(flag, group="Output")

HELP = """Score link files against GOLD: AER, precision, recall and F1 in percent, with 95%
confidence intervals, and the significance of each further file's difference from the first.

Both may be plain or .gz or .zst, in any of these formats: `i-j` for a sure and `ipj` or `i?j`
for a possible link, one line per sentence pair, or NAACL lines (`0001 1 2 S`). `-` is stdin.

\b
Examples:
  mx-eval test.talp mine.links theirs.links
  printf '0-0 1-2\\n' | mx-eval <(printf '0-0 1p2\\n') -
"""


@dataclass(frozen=True)
class EvalFlags(CommonFlags):
    """The flags of mx-eval."""

    gold: str = argument(required=True)
    links: tuple[str, ...] = argument((), required=True)
    format: Literal["auto", "talp", "naacl"] = input_flag("auto", "Format of GOLD.")
    gold_one_based: bool = input_flag(False, "GOLD counts words from 1 (NAACL always does).")
    one_based: bool = input_flag(False, "LINKS count words from 1 (NAACL always does).")
    reverse: bool = input_flag(False, "LINKS have the target side first.")
    src: str | None = input_flag(
        None, "Source text: check that all links are inside it.", metavar="FILE"
    )
    tgt: str | None = input_flag(
        None, "Target text: check that all links are inside it.", metavar="FILE"
    )
    bootstrap: int = statistics_flag(
        10_000, "Resamplings for intervals and p values, 0 for none.", minimum=0
    )
    random_seed: int = statistics_flag(1, "Of the resampling.", name="--seed", minimum=0)
    per_sentence: bool = output_flag(False, "Write a row per sentence (TSV) instead.")
    as_json: bool = output_flag(False, "Write JSON; measures are fractions of 1.", name="--json")
    signature: bool = output_flag(False, "End the table with how its numbers were made.")


def run_eval(flags: EvalFlags) -> None:
    """Score the files and print what was asked for."""
    if [flags.gold, *flags.links, flags.src, flags.tgt].count("-") > 1:
        raise InputError("`-` (stdin) was given more than once; name a file for the others")
    from ..links import evaluation
    from ..links.link_files import read_link_file
    from ..links.scoring import score_systems

    gold = read_link_file(flags.gold, flags.format, flags.gold_one_based)
    files = [
        read_link_file(path, one_based=flags.one_based, reverse=flags.reverse)
        for path in flags.links
    ]
    gold, *files = evaluation.match_files([gold, *files], flags.src, flags.tgt)
    for file in [gold, *files]:
        if evaluation.seems_one_based(file) and not flags.quiet:
            remedy = "--gold-one-based" if file is gold else "--one-based"
            note = f"no link of {file.name} has index 0: if it counts from 1, give {remedy}"
            click.echo(f"mx-eval: {note}", err=True)
    systems = score_systems(gold, files, flags.bootstrap, flags.random_seed)
    signature = (
        f"mx-eval|v:{__version__}|level:set|bootstrap:{flags.bootstrap}|seed:{flags.random_seed}"
    )
    if flags.as_json:
        found = {
            "signature": signature,
            **evaluation.describe_scores(gold, systems, flags.per_sentence),
        }
        lines = [json.dumps(found, indent=2, ensure_ascii=False)]
    elif flags.per_sentence:
        lines = evaluation.format_sentence_rows(systems)
    else:
        lines = evaluation.format_score_table(flags.gold, systems) + [signature] * flags.signature
    click.echo("\n".join(lines))


main = FlagCommand("mx-eval", EvalFlags, run_eval, help=HELP)

if __name__ == "__main__":
    main(prog_name="mx-eval")

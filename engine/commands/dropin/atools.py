"""mx-atools: joins, converts and scores files of links with the flags of fast_align's atools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import click

from ...errors import InputError, MxError
from ..flags import CommonFlags, FlagCommand, flag

_HELP = """Join two files of links, or turn one round. Takes the flags of atools (fast_align) and
writes what it writes, byte for byte.

Its grow-diag visits candidates in another order than Moses does; on about one pair in a hundred
the two differ. --order moses is the definition of Moses, which mx-align has.

\b
Examples:
  mx-atools -i forward.links -j backward.links -c grow-diag-final-and
  mx-atools -i forward.links -c invert
"""


@dataclass(frozen=True)
class AtoolsFlags(CommonFlags):
    """The flags of mx-atools."""

    input_1: str | None = flag(
        None, "Links, forward ones; - is stdin.", short="-i", name="--input_1", metavar="FILE"
    )
    input_2: str | None = flag(
        None, "Links, backward ones or gold.", short="-j", name="--input_2", metavar="FILE"
    )
    command: Literal[
        "convert", "invert", "intersect", "union", "grow-diag", "grow-diag-final",
        "grow-diag-final-and", "fmeasure",
    ] = flag("convert", "What to do.", short="-c")  # fmt: skip
    order: Literal["atools", "moses"] = flag("atools", "In which order grow-diag visits links.")


def run_atools(flags: AtoolsFlags) -> None:
    """Read one or two files and write or score their links."""
    from ...dropin import atools
    from ...links.heuristics import join_directions
    from ...links.link_files import parse_links
    from ...text.files import open_output, read_lines

    def read_links(path: str) -> Iterator[set[tuple[int, int]]]:
        for n, line in enumerate(read_lines(path), 1):
            yield {(i, j) for i, j, _ in parse_links(line, where=f"{path} line {n:,}").links}

    if flags.input_1 is None:
        raise MxError("give a file of links with -i")
    alone = flags.command in ("convert", "invert")
    if alone != (flags.input_2 is None):
        raise MxError(
            f"{flags.command} takes {'one file, -i' if alone else 'two files, -i and -j'}"
        )
    counts = [0, 0, 0]
    second = read_links(flags.input_2) if flags.input_2 else None
    with open_output("-") as out:
        for fwd, bwd in zip_longest(read_links(flags.input_1), second or (), fillvalue=None):
            if second is not None and (fwd is None or bwd is None):
                short = flags.input_1 if fwd is None else flags.input_2
                raise InputError(f"{short} has fewer lines than the other file")
            fwd, bwd = fwd or set(), bwd or set()
            if flags.command == "fmeasure":
                counts = [counts[0] + len(fwd & bwd), counts[1] + len(fwd), counts[2] + len(bwd)]
                continue
            if alone:
                links = sorted((j, i) if flags.command == "invert" else (i, j) for i, j in fwd)
            elif flags.order == "moses":
                links = join_directions(flags.command, fwd, bwd)
            else:
                links = atools.join_links(flags.command, fwd, bwd)
            out.write((" ".join(f"{i}-{j}" for i, j in links) + "\n").encode())
    if flags.command == "fmeasure":
        _print_fmeasure(*counts)


def _print_fmeasure(matches: int, found: int, wanted: int) -> None:
    if not found or not wanted:
        raise InputError("one of the files has no links: there is nothing to measure")
    precision, recall = matches / found, matches / wanted
    f = 2 * precision * recall / (precision + recall) if matches else 0.0
    click.echo(f"P: {precision:.6g}\nR: {recall:.6g}\nF: {f:.6g}")


main = FlagCommand("mx-atools", AtoolsFlags, run_atools, help=_HELP)

if __name__ == "__main__":
    main(prog_name="mx-atools")

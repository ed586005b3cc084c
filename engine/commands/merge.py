"""mx-merge: join the finished shards of a corpus into one file. Has flags and messages only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ..errors import MxError
from .flags import CommonFlags, FlagCommand, argument, flag

_HELP = """Join SHARDS, the outputs of `mx-align --shard i/n` in any order, or the folder that
`mx-align --ray` wrote, into OUT. Every shard must be there, complete, made by the same model with
the same options, and have the bytes that were written. OUT appears only if all is well.

\b
Examples:
  mx-merge links.* -o links
  mx-merge links.shards -o links
"""


@dataclass(frozen=True)
class MergeFlags(CommonFlags):
    """The flags of mx-merge."""

    shards: tuple[str, ...] = argument((), required=True)
    output: str | None = flag(None, "The file to write.", group="Output", short="-o", metavar="OUT")


def run_merge(flags: MergeFlags) -> None:
    """Merge the shards, then say how many they were."""
    from ..jobs.merge import merge_shards

    if flags.output is None:
        raise MxError("give the file to write with -o OUT")
    shards, pairs, lines = merge_shards([Path(name) for name in flags.shards], Path(flags.output))
    if not flags.quiet:
        said = f"{shards:,} shards, {pairs:,} pairs, {lines:,} lines in {flags.output}"
        click.echo(f"mx-merge: {said}", err=True)


main = FlagCommand("mx-merge", MergeFlags, run_merge, help=_HELP)

if __name__ == "__main__":
    main(prog_name="mx-merge")

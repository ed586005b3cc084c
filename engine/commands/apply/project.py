"""mx-project: carry labels or markup from a text to its translation. Has flags and messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import click

from ...errors import InputError
from ..flags import CommonFlags, FlagCommand, argument, flag

input_flag = partial(flag, group="Input")
link_flag = partial(flag, group="Links")
output_flag = partial(flag, group="Output")

_HELP = """Carry annotation from SRC to its translation TGT, which has a plain line for each
sentence of SRC. SRC is one of these; its name says which, or --kind:

\b
  conll   a word and its label a line (BIO, IOB or BIOES), an empty line after each sentence
  spans   JSON lines {"text": ..., "spans": [[start, end, label], ...]}, characters from 0
  markup  lines with tags of HTML, XML or XLIFF and placeholders such as {0} and %s

Links come from --links, a model, or statistics of this very text. Nothing is lost: what the links
give no place is counted, and named with --report.

\b
Examples:
  mx-project train.conll train.fr --langs en-fr -o train.fr.conll
  mx-project spans.jsonl text.fr --langs en-fr -o spans.fr.jsonl
  mx-project page.html.en page.fr --langs en-fr -o page.html.fr --report unplaced.jsonl
"""


@dataclass(frozen=True)
class ProjectFlags(CommonFlags):
    """The flags of mx-project."""

    src: str = argument(required=True)
    tgt: str = argument(required=True)
    kind: Literal["auto", "conll", "spans", "markup"] = input_flag(
        "auto", "What SRC is; auto: .conll or .bio, .jsonl, else markup."
    )
    links: str | None = link_flag(
        None,
        "Links between the words of SRC without annotation and of TGT, as --plain writes them.",
        metavar="FILE",
    )
    model: str | None = link_flag(None, "The model of mx-align to use.", short="-m", metavar="M")
    langs: str | None = link_flag(None, "Use an installed model, like en-fr.", metavar="SRC-TGT")
    load: str | None = link_flag(
        None, "Use a model that mx-seed --save kept [default: learn from this text].", metavar="M"
    )
    policy: Literal["best", "cover", "split"] = link_flag(
        "best",
        "Labels: the run of words that the links favour, all from first to last, or every run.",
    )
    output: str = output_flag(
        "-", "The annotated target [default: stdout].", short="-o", metavar="FILE"
    )
    report: str | None = output_flag(None, "What has no place, as JSON lines.", metavar="FILE")
    escape: bool = output_flag(
        True, "Write < and & of TGT as entities where SRC has tags.", off="--no-escape"
    )
    plain: str | None = output_flag(
        None, "Only write the words of both sides, PREFIX.src and PREFIX.tgt, to align elsewhere.",
        metavar="PREFIX",
    )  # fmt: skip
    restart: bool = output_flag(False, "Begin anew what was killed.")


def run_project(flags: ProjectFlags) -> None:
    """Load what finds links, carry everything over, say what became of it."""
    from ...apply.linkers import load_finder
    from ...apply.projection.annotations import detect_kind
    from ...apply.projection.files import open_annotations, project_files

    kind = detect_kind(flags.src) if flags.kind == "auto" else flags.kind
    if flags.plain:
        _write_plain(flags, kind)
        return
    ways = {"--links": flags.links, "-m or --langs": flags.model or flags.langs,
            "--load": flags.load}  # fmt: skip
    given = [name for name, value in ways.items() if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} were given; links come from one of them")
    if not given and "-" in (flags.src, flags.tgt):
        raise InputError("'-' cannot be read twice, to learn and to align; give files, or --langs")
    finder, signature = None, "links"
    if not flags.links:
        finder, signature = load_finder(
            flags.model, flags.langs, flags.load,
            lambda: (
                (item.src_words, item.tgt_words)
                for item in open_annotations(kind, flags.src, flags.tgt)
            ),
        )  # fmt: skip
    summary = project_files(
        kind, flags.src, flags.tgt, flags.output, finder=finder, links=flags.links,
        policy=flags.policy, escape=flags.escape, report=flags.report, restart=flags.restart,
        signature=signature,
    )  # fmt: skip
    if not flags.quiet:
        what = "tags" if kind == "markup" else "labels"
        rest = f"; {summary.unplaced:,} have no place by the links" if summary.unplaced else ""
        click.echo(
            f"mx-project: {summary.annotations:,} {what} in {summary.sentences:,} sentences{rest}",
            err=True,
        )


def _write_plain(flags: ProjectFlags, kind: str) -> None:
    """Write the words of both sides as lines, which any aligner takes."""
    from ...apply.projection.files import open_annotations
    from ...text.files import open_output

    with (
        open_output(f"{flags.plain}.src", whole=True) as src,
        open_output(f"{flags.plain}.tgt", whole=True) as tgt,
    ):
        for item in open_annotations(kind, flags.src, flags.tgt):
            src.write(f"{' '.join(item.src_words)}\n".encode())
            tgt.write(f"{' '.join(item.tgt_words)}\n".encode())


main = FlagCommand(
    "mx-project", ProjectFlags, run_project, help=_HELP, titles=("Input", "Links", "Output")
)

if __name__ == "__main__":
    main(prog_name="mx-project")

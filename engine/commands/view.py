"""mx-view: text and links, or text and a model, to a page for the browser.

Has flags and messages; pages are made in `view/`. NumPy is loaded only after the flags are read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import click

from ..errors import MxError
from ..storage import atomic_write, check_target
from .flags import CommonFlags, FlagCommand, argument, flag

if TYPE_CHECKING:
    from ..view.page import Page, PairView

input_flag = partial(flag, group="Input")
model_flag = partial(flag, group="Model")
page_flag = partial(flag, group="Page")

HELP = """Make a page that shows the alignment of SRC and TGT, files with one sentence per line: the
LINKS of a Pharaoh, talp or NAACL file by any tool, or what a model says with -m. The page is
one file and works offline. `-` is stdin; .gz and .zst are unpacked.

\b
Examples:
  mx-view test.en test.fr mine.links --gold test.talp --compare theirs.links -o test.html
  mx-view test.en test.fr mine.links --scores mine.scores -o test.html
  mx-view test.en test.fr -m en-fr.mx --gold test.talp -o test.html
"""


@dataclass(frozen=True)
class ViewFlags(CommonFlags):
    """The flags of mx-view."""

    src: str = argument(required=True)
    tgt: str = argument(required=True)
    links: str | None = argument()
    scores: str | None = input_flag(
        None, "Scores of LINKS, as mx-align --scores writes them.", metavar="FILE"
    )
    ignore_scores: bool = input_flag(False, "Do not read the scores of `0-0:0.93`.")
    one_based: bool = input_flag(False, "LINKS and --compare count words from 1.")
    gold_one_based: bool = input_flag(False, "--gold counts words from 1 (NAACL does).")
    reverse: bool = input_flag(False, "LINKS and --compare have the target side first.")
    model: str | None = model_flag(
        None, "Align with this model; no LINKS are read.", short="-m", metavar="BUNDLE"
    )
    langs: str | None = model_flag(
        None, "Or with the installed one for these languages, like de-en.", metavar="SRC-TGT"
    )
    read: Literal["prior", "posterior"] | None = model_flag(
        None, "What of a Mask-Align is shown: its attention before it knows the word, or after "
        "[default: the bundle's choice].",
    )  # fmt: skip
    gold: str | None = page_flag(
        None, "Gold links (talp or NAACL): shows what is wrong.", metavar="FILE"
    )
    compare: str | None = page_flag(None, "Links of another system, shown beside.", metavar="FILE")
    output: str = page_flag("view.html", "The page.", short="-o", metavar="FILE")
    sample: int = page_flag(
        1000, "Pairs shown, drawn at random; the 20 worst come on top; 0 for all.", minimum=0
    )
    title: str | None = page_flag(None, "Of the page [default: the names of the files].")


def run_view(flags: ViewFlags) -> None:
    """Make the page and say what it shows."""
    _check_flags(flags)
    from ..links.link_files import LinkSource
    from ..view.page import build_page
    from ..view.page_content import add_layers, make_link_page

    if flags.links:
        source = LinkSource(flags.links, flags.one_based, flags.reverse, flags.scores)
        sample, ignore_scores = flags.sample or None, flags.ignore_scores
        page = make_link_page(
            flags.src, flags.tgt, source, sample=sample, ignore_scores=ignore_scores
        )
    else:
        page = _align_page(flags)
    gold = LinkSource(flags.gold, one_based=flags.gold_one_based) if flags.gold else None
    given = flags.compare
    compare = LinkSource(given, flags.one_based, flags.reverse) if given else None
    names = [flags.src, flags.tgt, flags.links or flags.model or flags.langs]
    title = " · ".join(os.path.basename(str(name).rstrip("/")) for name in names)
    page = replace(page, title=flags.title or title)
    page = add_layers(page, flags.src, gold, compare)
    text = build_page(page).encode()
    with atomic_write(flags.output) as file:
        file.write(text)
    if not flags.quiet:
        shown = f"{len(list(page.pairs)):,} of {page.report['pairs']:,} pairs"
        click.echo(f"mx-view: {flags.output} shows {shown}, {len(text) / 1e6:.1f} MB", err=True)


def _check_flags(flags: ViewFlags) -> None:
    """Refuse flags that contradict each other, and a page in the place of an input."""
    by_model = bool(flags.model or flags.langs)
    if bool(flags.links) == by_model:
        raise MxError("give either LINKS or a model with -m or --langs")
    if flags.scores and (by_model or flags.ignore_scores):
        other = "a model, which has its own" if by_model else "--ignore-scores"
        raise MxError(f"--scores cannot go with {other}; leave one of them out")
    check_target(flags.output)
    names = [flags.src, flags.tgt, flags.links, flags.gold, flags.compare, flags.scores]
    if names.count("-") > 1:
        raise MxError("`-` (stdin) was given more than once; name a file for the others")
    real = [os.path.realpath(name) for name in names if name not in (None, "-")]
    if os.path.realpath(flags.output) in real:
        raise MxError(f"{flags.output} is an input and would be overwritten; give another name")


def _align_page(flags: ViewFlags) -> Page:
    """Return a page of what a model says."""
    from ..aligner import Aligner
    from ..bundle.installed import find_bundle
    from ..jobs.corpus_options import CorpusOptions
    from ..text.corpus import ParallelFiles
    from ..view.corpus_report import ReportCollector
    from ..view.page_content import make_model_page

    bundle = find_bundle(flags.model, flags.langs, flag="--langs", ways="give one with -m")
    aligner = Aligner.load(bundle.path, langs=flags.langs, read=flags.read)
    collector = ReportCollector(flags.sample or None)
    reader = aligner.open_reader(ParallelFiles(flags.src, flags.tgt), CorpusOptions())
    for done in aligner.align_chunks(reader.read_chunks(), [collector]):
        collector.add(done.items[0][0])
    page = make_model_page(aligner, collector, "")
    if flags.quiet or not sys.stderr.isatty():
        return page
    return replace(page, pairs=_show_progress(page.pairs, len(collector.total.picked)))


def _show_progress(views: Iterable[PairView], total: int) -> Iterator[PairView]:
    """Pass on the pairs that are shown, whose matrices take a while; say how many are done."""
    for number, view in enumerate(views, 1):
        yield view
        if number % 100 == 0 or number == total:
            end = number == total
            click.echo(f"\rmx-view: {number:,} of {total:,} pairs", err=True, nl=end)


main = FlagCommand("mx-view", ViewFlags, run_view, help=HELP)

if __name__ == "__main__":
    main(prog_name="mx-view")

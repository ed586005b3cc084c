"""mx-view: text and links, or text and a model, to a page for the browser.
Knows flags, files and messages; the page is made by `page`, the numbers by `digest`."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, MxError
from ..version import __version__

if TYPE_CHECKING:
    from ..links.link_files import Gold
    from ..types import ScoredLink
    from ..view.digest import Collector
    from ..view.page import Page

_CHUNK = 8192
SAMPLE = 1000


@dataclass(frozen=True)
class Options:
    """The flags, as parsed."""

    src: str
    tgt: str
    links: str | None
    model: str | None
    langs: str | None
    gold: str | None
    compare: str | None
    output: str
    sample: int
    title: str | None
    one_based: bool
    gold_one_based: bool
    reverse: bool
    scores: str | None
    ignore_scores: bool
    quiet: bool


@dataclass(frozen=True)
class Row:
    """One line of a link file. `scored` if it says how good the links are."""

    gold: Gold
    links: list[ScoredLink]
    scored: bool


@click.command(context_settings={"max_content_width": 96})
@click.argument("src")
@click.argument("tgt")
@click.argument("links", required=False)
@click.option("-m", "--model", metavar="BUNDLE", help="Align with this model; no LINKS are read.")
@click.option(
    "--langs", metavar="SRC-TGT", help="Or with the installed one for these languages, like de-en."
)
@click.option("--gold", metavar="FILE", help="Gold links (talp or NAACL): shows what is wrong.")
@click.option("--compare", metavar="FILE", help="Links of another system, shown beside.")
@click.option(
    "-o", "--output", metavar="FILE", default="view.html", help="The page [default: view.html]."
)
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    metavar="N",
    default=SAMPLE,
    help=f"Pairs shown, drawn at random; the 20 worst come on top; 0 for all [default: {SAMPLE}].",
)
@click.option("--title", help="Of the page [default: the names of the files].")
@click.option("--one-based", is_flag=True, help="LINKS and --compare count words from 1.")
@click.option("--gold-one-based", is_flag=True, help="--gold counts words from 1 (NAACL does).")
@click.option("--reverse", is_flag=True, help="LINKS and --compare have the target side first.")
@click.option("--scores", metavar="FILE", help="Scores of LINKS, as mx-align --scores writes them.")
@click.option("--ignore-scores", is_flag=True, help="Do not read the scores of `0-0:0.93`.")
@click.option("--quiet", is_flag=True, help="No note on stderr.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mx-view")
def main(debug: bool, **flags: Any) -> None:
    """Make a page that shows the alignment of SRC and TGT, files with one sentence per line: the
    LINKS of a Pharaoh, talp or NAACL file by any tool, or what a model says with -m. The page is
    one file and works offline. `-` is stdin; .gz and .zst are unpacked.

    \b
    Examples:
      mx-view test.en test.fr mine.links --gold test.talp --compare theirs.links -o test.html
      mx-view test.en test.fr mine.links --scores mine.scores -o test.html
      mx-view test.en test.fr -m en-fr.mx --gold test.talp -o test.html
    """
    try:
        _view(Options(**flags))
    except MxError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"mx-view: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        click.echo("mx-view: interrupted", err=True)
        sys.exit(130)


def _view(options: Options) -> None:
    from ..text.files import atomic_write
    from ..view.page import build

    _check(options)
    page, total = _from_links(options) if options.links else _from_model(options)
    pairs = _with_gold(page, total, options)
    if options.compare:
        name = os.path.basename(options.compare)
        page = replace(page, names={**page.names, "cmp": name})
    page = replace(page, pairs=pairs, title=options.title or _title(options))
    text = build(page).encode()
    with atomic_write(options.output) as file:
        file.write(text)
    if not options.quiet:
        size = f"{len(text) / 1e6:.1f} MB"
        shown = f"{len(pairs):,} of {total:,} pairs"
        click.echo(f"mx-view: {options.output} shows {shown}, {size}", err=True)


def _check(options: Options) -> None:
    by_model = bool(options.model or options.langs)
    if bool(options.links) == by_model:
        raise MxError("give either LINKS or a model with -m or --langs")
    if options.scores and (by_model or options.ignore_scores):
        other = "a model, which has its own" if by_model else "--ignore-scores"
        raise MxError(f"--scores cannot go with {other}; leave one of them out")
    names = [options.src, options.tgt, options.links, options.gold, options.compare, options.scores]
    if names.count("-") > 1:
        raise MxError("`-` (stdin) was given more than once; name a file for the others")
    real = [os.path.realpath(name) for name in names if name not in (None, "-")]
    if os.path.realpath(options.output) in real:
        raise MxError(f"{options.output} is an input and would be overwritten; give another name")


def _title(options: Options) -> str:
    names = [options.src, options.tgt, options.links or options.model or options.langs]
    return " · ".join(os.path.basename(str(name).rstrip("/")) for name in names)


# ---- link files ----


def rows(
    path: str, *, one_based: bool = False, reverse: bool = False, scores: str | None = None
) -> Iterator[Row]:
    """The lines of a link file in any format, read while they are needed; `scores` is a file that
    has a number for each link, in the order of the line."""
    from ..links.link_files import Gold, detect, parse_file, parse_scored, parse_talp
    from ..text.files import read_lines

    lines = read_lines(path)
    head = list(islice(lines, 100))
    name = "standard input" if path == "-" else path
    if detect(head) == "naacl":
        if scores:
            raise MxError(f"{name} is a NAACL file, whose lines --scores does not know")
        for gold in parse_file([*head, *lines], name, "naacl", reverse=reverse).sentences:
            yield Row(gold, [(i, j, 1.0) for i, j in sorted(gold.possible)], False)
        return
    lines = chain(head, lines)
    for number, line in enumerate(_joined(lines, name, scores) if scores else lines, 1):
        where = f"{name} line {number}"
        gold, links = parse_talp(line, one_based, where), parse_scored(line, one_based, where)
        if reverse:
            gold, links = gold.swapped(), sorted((j, i, score) for i, j, score in links)
        yield Row(Gold(gold.sure, gold.possible), links, ":" in line)


def _joined(lines: Iterable[str], name: str, scores: str) -> Iterator[str]:
    """Lines of links with their scores after colons."""
    from ..text.files import read_lines
    from ..text.words import split

    for number, (line, values) in enumerate(zip_longest(lines, read_lines(scores)), 1):
        if line is None or values is None:
            raise _uneven(scores, number if line is None else number - 1, number - 1, name)
        links, numbers = split(line.rstrip("\r")), split(values.rstrip("\r"))
        if len(links) != len(numbers):
            raise InputError(
                f"{scores} line {number} has {len(numbers)} scores, but {name} has {len(links)} "
                "links there; are they of the same run?"
            )
        if wrong := [value for value in numbers if not re.fullmatch(r"[0-9.eE+-]+", value)]:
            raise InputError(f"{scores} line {number}: {wrong[0][:40]!r} is not a score")
        # A score that the link already has gives way.
        both = zip(links, numbers, strict=True)
        yield " ".join(f"{link.partition(':')[0]}:{value}" for link, value in both)


def _inside(row: Row, n_src: int, n_tgt: int, path: str, number: int) -> None:
    for i, j, _ in row.links:
        if i >= n_src or j >= n_tgt:
            raise InputError(
                f"{path} line {number}: link {i}-{j} (counted from 0) lies outside the pair, which "
                f"has {n_src} and {n_tgt} words; is it of other text, one-based, or reversed?"
            )


def _uneven(path: str, found: int, wanted: int, text: str) -> InputError:
    return InputError(
        f"{path} has {found:,} lines or more, but {text} has {wanted:,}; "
        "both must hold the same sentence pairs in the same order"
        if found > wanted
        else f"{path} ends after {found:,} lines, but {text} goes on; "
        "both must hold the same sentence pairs in the same order"
    )


def _from_links(options: Options) -> tuple[Page, int]:
    from ..view.digest import Collector
    from ..view.page import LOWEST, TOP, Page, PairView

    assert options.links
    collector = Collector(options.sample or None)
    scored = False
    for chunk in _chunks(options):
        scored = scored or any(row.scored for _, _, row in chunk)
        _add(collector, chunk)
    scored = scored and not options.ignore_scores
    views = [
        PairView(one.number, one.src, one.tgt, one.links, one.score, one.scores if scored else None)
        for one in collector.picked()
    ]
    page = Page(
        "", views, how=f"mx-view|v:{__version__}|links:{os.path.basename(options.links)}",
        threshold=LOWEST / TOP if scored else None,
        names={"sys": os.path.basename(options.links)}, report=collector.report(scored),
    )  # fmt: skip
    return page, collector.total.pairs


def _chunks(options: Options) -> Iterator[list[tuple[list[str], list[str], Row]]]:
    """Words and links of the corpus, some thousand pairs at a time."""
    from ..text.files import read_pairs
    from ..text.words import split

    path = str(options.links)
    chunk: list[tuple[list[str], list[str], Row]] = []
    based = {"one_based": options.one_based, "reverse": options.reverse}
    found = rows(path, scores=options.scores, **based)
    both = zip_longest(read_pairs(options.src, options.tgt), found)
    for number, (lines, row) in enumerate(both, 1):
        if lines is None or row is None:
            found_lines = number if lines is None else number - 1
            raise _uneven(path, found_lines, number - 1, options.src)
        src, tgt = map(split, lines)
        _inside(row, len(src), len(tgt), path, number)
        if not options.ignore_scores and not all(0 <= score <= 1 for *_, score in row.links):
            where = f"{options.scores or path} line {number}"
            raise InputError(f"{where}: a score is not between 0 and 1; give --ignore-scores")
        chunk.append((src, tgt, row))
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _add(collector: Collector, chunk: list[tuple[list[str], list[str], Row]]) -> None:
    import numpy as np

    from ..types import Links, Pairs

    flat = [link for _, _, row in chunk for link in row.links]
    table = np.array(flat, np.float64).reshape(len(flat), 3)
    counts = [len(row.links) for _, _, row in chunk]
    links = Links(
        np.cumsum([0, *counts]), table[:, 0].astype(np.int64), table[:, 1].astype(np.int64),
        table[:, 2].astype(np.float32), np.ones(len(flat), bool),
    )  # fmt: skip
    pairs = Pairs(collector.total.pairs, [src for src, *_ in chunk], [tgt for _, tgt, _ in chunk])
    collector.add(collector.digest(pairs, links))


# ---- a model ----


def _from_model(options: Options) -> tuple[Page, int]:
    from ..align.pipeline import stream
    from ..aligner import CHUNK, Aligner, find_bundle
    from ..text.corpus import Reader, Source
    from ..view.digest import Collector
    from ..view.model import model_page

    bundle = find_bundle(options.model, options.langs, flag="--langs", ways="give one with -m")
    aligner = Aligner.load(bundle.path, langs=options.langs)
    collector = Collector(options.sample or None)
    chunks = Reader(Source(options.src, options.tgt), CHUNK).chunks()
    for done in stream(aligner.engine([collector]), chunks, aligner.backend.workers):
        collector.add(done.items[0][0])
    return model_page(aligner, collector, ""), collector.total.pairs


# ---- what is laid over ----


def _with_gold(page: Page, total: int, options: Options) -> list[Any]:
    """The pairs with gold links and those of the other system, as far as there are any."""
    views = list(page.pairs)
    wanted = {view.number: (len(view.src), len(view.tgt)) for view in views}
    if options.gold:
        found = rows(options.gold, one_based=options.gold_one_based)
        gold = _numbered(found, wanted, total, options.gold, options)
        views = [replace(view, gold=gold[view.number].gold) for view in views]
    if options.compare:
        found = rows(options.compare, one_based=options.one_based, reverse=options.reverse)
        other = _numbered(found, wanted, total, options.compare, options)
        views = [
            replace(view, compare=[(i, j) for i, j, _ in other[view.number].links])
            for view in views
        ]
    return views


def _numbered(
    found: Iterable[Row], wanted: dict[int, tuple[int, int]], total: int, path: str,
    options: Options,
) -> dict[int, Row]:  # fmt: skip
    """The lines that are wanted. A NAACL file may end early: it names only pairs with links."""
    from ..links.link_files import EMPTY, detect
    from ..text.files import read_lines

    kept = {number: Row(EMPTY, [], False) for number in wanted}
    count = 0
    for count, row in enumerate(found, 1):
        if count in wanted:
            _inside(row, *wanted[count], path, count)
            kept[count] = row
    if count > total or (
        count < total and (path == "-" or detect(islice(read_lines(path), 100)) != "naacl")
    ):
        raise _uneven(path, count, total, options.src)
    return kept


if __name__ == "__main__":
    main(prog_name="mx-view")

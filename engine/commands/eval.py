"""mx-eval: link files against gold links, as a table, TSV or JSON.
The formats are links.py's, the numbers score.py's; NumPy loads only after the flags are read."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, MxError
from ..links.link_files import FORMATS, LinkFile, read_links
from ..version import __version__
from .help import SectionedCommand

if TYPE_CHECKING:
    from ..links.scoring import Comparison, Interval, Ints, Score

_SECTIONS = {
    "Input": ("format", "gold_one_based", "one_based", "reverse", "src", "tgt"),
    "Statistics": ("bootstrap", "seed"),
    "Output": ("per_sentence", "as_json", "signature"),
}


@dataclass(frozen=True)
class Options:
    """The flags, as parsed."""

    gold: str
    links: tuple[str, ...]
    format: str
    gold_one_based: bool
    one_based: bool
    reverse: bool
    src: str | None
    tgt: str | None
    bootstrap: int
    seed: int
    per_sentence: bool
    as_json: bool
    signature: bool
    quiet: bool


@dataclass(frozen=True)
class System:
    """One link file and what was found out about it; `compared` is against the first system."""

    name: str
    table: Ints
    score: Score
    intervals: dict[str, Interval] | None
    compared: Comparison | None


@click.command(cls=SectionedCommand, sections=_SECTIONS, context_settings={"max_content_width": 96})
@click.argument("gold")
@click.argument("links", nargs=-1, required=True)
@click.option(
    "--format", type=click.Choice(FORMATS), default="auto", help="Format of GOLD [default: auto]."
)
@click.option(
    "--gold-one-based", is_flag=True, help="GOLD counts words from 1 (NAACL always does)."
)
@click.option("--one-based", is_flag=True, help="LINKS count words from 1 (NAACL always does).")
@click.option("--reverse", is_flag=True, help="LINKS have the target side first.")
@click.option("--src", metavar="FILE", help="Source text: check that all links are inside it.")
@click.option("--tgt", metavar="FILE", help="Target text: check that all links are inside it.")
@click.option(
    "--bootstrap",
    type=click.IntRange(min=0),
    metavar="N",
    default=10_000,
    help="Resamplings for intervals and p values, 0 for none [default: 10000].",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    default=1,
    help="Of the resampling [default: 1].",
)
@click.option("--per-sentence", is_flag=True, help="Write a row per sentence (TSV) instead.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON; measures are fractions of 1.")
@click.option("--signature", is_flag=True, help="End the table with how its numbers were made.")
@click.option("--quiet", is_flag=True, help="No notes on stderr.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mx-eval")
def main(debug: bool, **flags: Any) -> None:
    """Score link files against GOLD: AER, precision, recall and F1 in percent, with 95%
    confidence intervals, and the significance of each further file's difference from the first.

    Both may be plain or .gz or .zst, in any of these formats: `i-j` for a sure and `ipj` or `i?j`
    for a possible link, one line per sentence pair, or NAACL lines (`0001 1 2 S`). `-` is stdin.

    \b
    Examples:
      mx-eval test.talp mine.links theirs.links
      printf '0-0 1-2\\n' | mx-eval <(printf '0-0 1p2\\n') -
    """
    try:
        _evaluate(Options(**flags))
    except MxError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"mx-eval: {error}", err=True)
        sys.exit(2)


def _evaluate(options: Options) -> None:
    gold, files = _read(options)
    systems = _score(options, gold, files)
    if options.as_json:
        result = _as_json(options, gold, systems)
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    elif options.per_sentence:
        click.echo("\n".join(_tsv(systems)))
    else:
        click.echo("\n".join(_table(options, systems)))


def _note(options: Options, message: str) -> None:
    if not options.quiet:
        click.echo(f"mx-eval: {message}", err=True)


# ---- input ----


def _read(options: Options) -> tuple[LinkFile, list[LinkFile]]:
    """Gold and systems, all with one entry per sentence pair."""
    paths = [options.gold, *options.links, options.src, options.tgt]
    if paths.count("-") > 1:
        raise InputError("`-` (stdin) was given more than once; name a file for the others")
    gold = read_links(options.gold, options.format, options.gold_one_based)
    files = [
        read_links(path, one_based=options.one_based, reverse=options.reverse)
        for path in options.links
    ]
    texts = [_word_counts(path) for path in (options.src, options.tgt)]
    length, longest = _length([gold, *files], texts, options)
    gold, *files = [file.fit(length, longest) for file in [gold, *files]]
    for file in [gold, *files]:
        _check_bounds(file, texts, options)
    _note_if_one_based(gold, "--gold-one-based", options)
    for file in files:
        _note_if_one_based(file, "--one-based", options)
    return gold, files


def _note_if_one_based(file: LinkFile, flag: str, options: Options) -> None:
    """In ten sentences some first word has a link, unless counting starts at 1."""
    linked = [sentence.possible for sentence in file.sentences if sentence.possible]
    if len(linked) >= 10 and not any(0 in link for links in linked for link in links):
        _note(options, f"no link of {file.name} has index 0: if it counts from 1, give {flag}")


def _word_counts(path: str | None) -> list[int] | None:
    from ..text.files import read_lines
    from ..text.words import split

    return None if path is None else [len(split(line)) for line in read_lines(path)]


def _length(
    files: Sequence[LinkFile], texts: Sequence[list[int] | None], options: Options
) -> tuple[int, str]:
    """How many sentence pairs there are and which file says so: the first that has a line for
    each, else the NAACL file that goes furthest."""
    known = [(len(file.sentences), file.name) for file in files if file.format != "naacl"]
    sides = zip(texts, (options.src, options.tgt), strict=True)
    known += [(len(text), path) for text, path in sides if text is not None and path is not None]
    for length, name in known:
        if length != known[0][0]:
            raise InputError(
                f"{name} has {length} lines, but {known[0][1]} has {known[0][0]}; "
                "all files must hold the same sentence pairs in the same order"
            )
    return known[0] if known else max((len(file.sentences), file.name) for file in files)


def _check_bounds(file: LinkFile, texts: Sequence[list[int] | None], options: Options) -> None:
    for side, counts, path in zip((0, 1), texts, (options.src, options.tgt), strict=True):
        if counts is None:
            continue
        for number, (sentence, n_words) in enumerate(zip(file.sentences, counts, strict=True), 1):
            link = max(sentence.possible, key=lambda link: link[side], default=None)
            if link is not None and link[side] >= n_words:
                raise InputError(
                    f"{file.name} sentence {number}: link {link[0]}-{link[1]} (from 0, source "
                    f"first) is outside {path}, which has {n_words} words there; check the "
                    "order of the sides (--reverse) and where counting starts (--one-based)"
                )


# ---- scores ----


def _score(options: Options, gold: LinkFile, files: Sequence[LinkFile]) -> list[System]:
    from ..links.scoring import bootstrap, compare, count_all, score_counts

    systems: list[System] = []
    for file in files:
        table = count_all([made.possible for made in file.sentences], gold.sentences)
        intervals = compared = None
        if options.bootstrap:
            intervals = bootstrap(table, options.bootstrap, options.seed)
        if options.bootstrap and systems:
            compared = compare(systems[0].table, table, options.bootstrap, options.seed)
        systems.append(System(file.name, table, score_counts(table), intervals, compared))
    return systems


# ---- output ----


def _signature(options: Options) -> str:
    return f"mx-eval|v:{__version__}|level:set|bootstrap:{options.bootstrap}|seed:{options.seed}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as text: the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _percent(value: float, interval: Interval | None, sign: str = "") -> str:
    text = f"{100 * value:{sign}.2f}"
    if interval is None:
        return text
    return f"{text} [{100 * interval.low:{sign}.2f}, {100 * interval.high:{sign}.2f}]"


def _table(options: Options, systems: Sequence[System]) -> list[str]:
    from ..links.scoring import MEASURES

    first = systems[0].score.counts
    rows = [["system", "AER", "precision", "recall", "F1", "links"]]
    for system in systems:
        intervals = system.intervals or dict.fromkeys(MEASURES)
        cells = [_percent(getattr(system.score, name), intervals[name]) for name in MEASURES]
        rows.append([system.name, *cells, str(system.score.counts.links)])
    lines = [
        f"{options.gold}: {len(systems[0].table)} sentences, {first.sure} sure "
        f"and {first.possible - first.sure} possible links",
        *_columns(rows),
    ]
    if any(system.compared for system in systems):
        lines += ["", *_columns(_comparison_rows(systems))]
    return [*lines, _signature(options)] if options.signature else lines


def _comparison_rows(systems: Sequence[System]) -> list[list[str]]:
    rows = [[f"against {systems[0].name}", "AER", "p", "F1", "p"]]
    for system in systems:
        if (found := system.compared) is None:
            continue
        row = [system.name]
        for name in ("aer", "f1"):
            row.append(_percent(found.difference[name], found.interval[name], "+"))
            row.append(f"{found.p_value[name]:.4f}")
        rows.append(row)
    return rows


def _tsv(systems: Sequence[System]) -> list[str]:
    from ..links.scoring import MEASURES, Counts, measures

    lines = ["\t".join(("system", "sentence", *Counts._fields, *MEASURES))]
    for system in systems:
        pairs = zip(system.table.tolist(), measures(system.table).tolist(), strict=True)
        for number, (counts, values) in enumerate(pairs, 1):
            cells = [str(cell) for cell in (number, *counts)]
            lines.append("\t".join([system.name, *cells, *(f"{value:.6f}" for value in values)]))
    return lines


def _as_json(options: Options, gold: LinkFile, systems: Sequence[System]) -> dict[str, Any]:
    counts = systems[0].score.counts
    return {
        "signature": _signature(options),
        "gold": {
            "file": gold.name,
            "format": gold.format,
            "sentences": len(gold.sentences),
            "sure": counts.sure,
            "possible": counts.possible,
        },
        "systems": [_system_json(system, options) for system in systems],
    }


def _system_json(system: System, options: Options) -> dict[str, Any]:
    from ..links.scoring import MEASURES, Counts, measures

    found: dict[str, Any] = {"file": system.name}
    found |= {name: getattr(system.score, name) for name in MEASURES}
    found["counts"] = system.score.counts._asdict()
    if system.intervals is not None:
        found["interval_95"] = {name: list(ends) for name, ends in system.intervals.items()}
    if system.compared is not None:
        found["against_first"] = {
            "difference": system.compared.difference,
            "interval_95": {name: list(ends) for name, ends in system.compared.interval.items()},
            "p_value": system.compared.p_value,
        }
    if options.per_sentence:
        rows = zip(system.table.tolist(), measures(system.table).tolist(), strict=True)
        found["per_sentence"] = [
            dict(zip((*Counts._fields, *MEASURES), (*counts, *values), strict=True))
            for counts, values in rows
        ]
    return found


if __name__ == "__main__":
    main()

"""Matches link files of several systems with gold, and writes their scores as a table, as TSV with
a row per sentence, or for JSON.

Does not score them: `scoring` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import InputError
from ..text.files import read_lines
from ..text.words import split_words
from .link_files import LinkFile
from .scoring import MEASURES, Interval, LinkCounts, ScoredSystem, compute_measures


def match_files(
    files: Sequence[LinkFile], src: str | None = None, tgt: str | None = None
) -> list[LinkFile]:
    """Return the files with one entry for each sentence pair.

    All of them, and the text files `src` and `tgt` if given, must have the same length; NAACL
    files may be shorter. No link may be outside the text.
    """
    texts = [
        (path, [len(split_words(line)) for line in read_lines(path)])
        for path in (src, tgt)
        if path is not None
    ]
    # A line for each pair makes a file's length known; else the NAACL file that goes furthest does.
    known = [(len(file.sentences), file.name) for file in files if file.format != "naacl"]
    known += [(len(n_words), path) for path, n_words in texts]
    known = known or [max((len(file.sentences), file.name) for file in files)]
    length, longest = known[0]
    for other, name in known:
        if other != length:
            raise InputError(
                f"{name} has {other} lines, but {longest} has {length}; "
                "all files must hold the same sentence pairs in the same order"
            )
    files = [file.fit_length(length, longest) for file in files]
    for file in files:
        for path, n_words in texts:
            _check_inside(file, int(path is tgt), path, n_words)
    return files


def _check_inside(file: LinkFile, side: int, path: str, n_words: Sequence[int]) -> None:
    """Check that no link goes beyond the words of a side, 0 for the source and 1 for the target."""
    for number, (sentence, n) in enumerate(zip(file.sentences, n_words, strict=True), 1):
        link = max(sentence.possible, key=lambda link: link[side], default=None)
        if link is not None and link[side] >= n:
            raise InputError(
                f"{file.name} sentence {number}: link {link[0]}-{link[1]} (from 0, source "
                f"first) is outside {path}, which has {n} words there; check the "
                "order of the sides (--reverse) and where counting starts (--one-based)"
            )


def seems_one_based(file: LinkFile) -> bool:
    """Whether no link of ten or more sentences has index 0.

    In ten sentences some first word has a link, unless counting starts at 1.
    """
    linked = [sentence.possible for sentence in file.sentences if sentence.possible]
    return len(linked) >= 10 and not any(0 in link for links in linked for link in links)


# ---- as text and JSON ----


def format_score_table(gold_name: str, systems: Sequence[ScoredSystem]) -> list[str]:
    """Return the lines of a table in percent, and of the comparisons with the first system."""
    first = systems[0].score.counts
    rows = [["system", "AER", "precision", "recall", "F1", "links"]]
    for system in systems:
        intervals = system.intervals or dict.fromkeys(MEASURES)
        cells = [_format_percent(getattr(system.score, name), intervals[name]) for name in MEASURES]
        rows.append([system.name, *cells, str(system.score.counts.links)])
    lines = [
        f"{gold_name}: {len(systems[0].table)} sentences, {first.sure} sure "
        f"and {first.possible - first.sure} possible links",
        *align_columns(rows),
    ]
    rows = [[f"against {systems[0].name}", "AER", "p", "F1", "p"]]
    for system in systems:
        if (found := system.compared) is None:
            continue
        row = [system.name]
        for name in ("aer", "f1"):
            row.append(_format_percent(found.difference[name], found.interval_95[name], "+"))
            row.append(f"{found.p_value[name]:.4f}")
        rows.append(row)
    return [*lines, "", *align_columns(rows)] if len(rows) > 1 else lines


def format_sentence_rows(systems: Sequence[ScoredSystem]) -> list[str]:
    """Return tab-separated lines: a head, then counts and measures of each sentence."""
    lines = ["\t".join(("system", "sentence", *LinkCounts._fields, *MEASURES))]
    for system in systems:
        for number, (counts, measures) in enumerate(_measure_sentences(system), 1):
            values = [*map(str, counts), *(f"{value:.6f}" for value in measures)]
            lines.append("\t".join([system.name, str(number), *values]))
    return lines


def describe_scores(
    gold: LinkFile, systems: Sequence[ScoredSystem], per_sentence: bool = False
) -> dict[str, Any]:
    """Return what JSON says about gold and systems; measures are fractions of 1."""
    counts = systems[0].score.counts
    return {
        "gold": {
            "file": gold.name,
            "format": gold.format,
            "sentences": len(gold.sentences),
            "sure": counts.sure,
            "possible": counts.possible,
        },
        "systems": [_describe_system(system, per_sentence) for system in systems],
    }


def _describe_system(system: ScoredSystem, per_sentence: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"file": system.name, **vars(system.score)}
    found["counts"] = system.score.counts._asdict()
    if system.intervals is not None:
        found["interval_95"] = system.intervals
    if system.compared is not None:
        found["against_first"] = vars(system.compared)
    if per_sentence:
        names = (*LinkCounts._fields, *MEASURES)
        found["per_sentence"] = [
            dict(zip(names, (*counts, *measures), strict=True))
            for counts, measures in _measure_sentences(system)
        ]
    return found


def _measure_sentences(system: ScoredSystem) -> Iterator[tuple[list[int], list[float]]]:
    """Return the counts and the measures of each sentence."""
    return zip(system.table.tolist(), compute_measures(system.table).tolist(), strict=True)


def _format_percent(value: float, interval: Interval | None, sign: str = "") -> str:
    text = f"{100 * value:{sign}.2f}"
    if interval is None:
        return text
    return f"{text} [{100 * interval[0]:{sign}.2f}, {100 * interval[1]:{sign}.2f}]"


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with columns of equal width: the first to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]

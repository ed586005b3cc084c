"""Writes the scores of systems as a table, as TSV with a row per sentence, or for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .evaluation import ScoredSystem
from .link_files import LinkFile
from .scoring import MEASURES, Interval, LinkCounts, compute_measures


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
        *_align_columns(rows),
    ]
    rows = [[f"against {systems[0].name}", "AER", "p", "F1", "p"]]
    for system in systems:
        if (found := system.compared) is None:
            continue
        row = [system.name]
        for name in ("aer", "f1"):
            row.append(_format_percent(found.difference[name], found.interval[name], "+"))
            row.append(f"{found.p_value[name]:.4f}")
        rows.append(row)
    return [*lines, "", *_align_columns(rows)] if len(rows) > 1 else lines


def format_sentence_rows(systems: Sequence[ScoredSystem]) -> list[str]:
    """Return tab-separated lines: a head, then counts and measures of each sentence."""
    lines = ["\t".join(("system", "sentence", *LinkCounts._fields, *MEASURES))]
    for system in systems:
        for number, row in enumerate(_measure_sentences(system), 1):
            counts = [str(row[name]) for name in LinkCounts._fields]
            values = [f"{row[name]:.6f}" for name in MEASURES]
            lines.append("\t".join([system.name, str(number), *counts, *values]))
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
    found: dict[str, Any] = {"file": system.name}
    found |= {name: getattr(system.score, name) for name in MEASURES}
    found["counts"] = system.score.counts._asdict()
    if system.intervals is not None:
        found["interval_95"] = _list_ends(system.intervals)
    if system.compared is not None:
        found["against_first"] = {
            "difference": system.compared.difference,
            "interval_95": _list_ends(system.compared.interval),
            "p_value": system.compared.p_value,
        }
    if per_sentence:
        found["per_sentence"] = list(_measure_sentences(system))
    return found


def _list_ends(intervals: dict[str, Interval]) -> dict[str, list[float]]:
    return {name: list(ends) for name, ends in intervals.items()}


def _measure_sentences(system: ScoredSystem) -> Iterator[dict[str, float]]:
    """Yield counts and measures of each sentence, by name."""
    both = zip(system.table.tolist(), compute_measures(system.table).tolist(), strict=True)
    for counts, values in both:
        yield dict(zip((*LinkCounts._fields, *MEASURES), (*counts, *values), strict=True))


def _format_percent(value: float, interval: Interval | None, sign: str = "") -> str:
    text = f"{100 * value:{sign}.2f}"
    if interval is None:
        return text
    return f"{text} [{100 * interval.low:{sign}.2f}, {100 * interval.high:{sign}.2f}]"


def _align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as text: the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if n else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]

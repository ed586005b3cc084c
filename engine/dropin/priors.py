"""Read, write and make files of priors as eflomal has them: how often words were linked before.

Lines are TAB-separated: LEX source target count; HMMF and HMMR jump count; FERF and FERR word
fertility count. Ours uses the LEX lines; the others are written for eflomal itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TextIO

import numpy as np

from ..errors import InputError
from ..links.link_files import parse_links
from ..statistical.model import StatisticalModel
from ..types import Link, Words


class Priors(NamedTuple):
    """Counts of links, of jumps between links, and of links a word has."""

    priors: list[tuple[str, str, float]]
    hmmf: dict[int, float]
    hmmr: dict[int, float]
    ferf: list[tuple[str, int, float]]
    ferr: list[tuple[str, int, float]]


def count_priors(
    src: Iterable[Words], tgt: Iterable[Words], fwd: Iterable[set[Link]], bwd: Iterable[set[Link]]
) -> Priors:
    """Count the links of a text that was aligned in both directions."""
    lex: Counter[tuple[str, str]] = Counter()
    jumps: tuple[Counter[int], Counter[int]] = Counter(), Counter()
    fertile: tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]] = Counter(), Counter()
    for src_words, tgt_words, forward, backward in zip(src, tgt, fwd, bwd, strict=True):
        lex.update((src_words[i], tgt_words[j]) for i, j in forward & backward)
        turned = {(j, i) for i, j in backward}
        for n, (links, words) in enumerate(((forward, src_words), (turned, tgt_words))):
            before = -1
            for _, state in sorted((step, state) for state, step in links):
                jumps[n][state - before] += 1
                before = state
            owned = Counter(state for state, _ in links)
            fertile[n].update((word, owned[place]) for place, word in enumerate(words))
    return Priors(
        [(s, t, float(n)) for (s, t), n in sorted(lex.items())],
        {jump: float(n) for jump, n in sorted(jumps[0].items())},
        {jump: float(n) for jump, n in sorted(jumps[1].items())},
        [(word, k, float(n)) for (word, k), n in sorted(fertile[0].items())],
        [(word, k, float(n)) for (word, k), n in sorted(fertile[1].items())],
    )


def parse_directions(lines: Iterable[str]) -> Iterator[set[Link]]:
    """Yield the links of each line."""
    for line in lines:
        yield {(i, j) for i, j, _ in parse_links(line.rstrip("\n")).links}


def write_priors(file: TextIO, priors: Priors) -> None:
    """Write all priors."""
    file.writelines(f"LEX\t{s}\t{t}\t{n:g}\n" for s, t, n in priors.priors)
    for name, jumps in (("HMMF", priors.hmmf), ("HMMR", priors.hmmr)):
        file.writelines(f"{name}\t{jump}\t{n:g}\n" for jump, n in jumps.items())
    for name, rows in (("FERF", priors.ferf), ("FERR", priors.ferr)):
        file.writelines(f"{name}\t{word}\t{k}\t{n:g}\n" for word, k, n in rows)


def read_priors(lines: Iterable[str], name: str = "priors") -> Priors:
    """Read what `write_priors` or eflomal wrote."""
    found = Priors([], {}, {}, [], [])
    for number, line in enumerate(lines, 1):
        fields = line.rstrip("\r\n").split("\t")
        try:
            kind, *values = fields
            if kind == "LEX":
                src, tgt, count = values
                found.priors.append((src, tgt, float(count)))
            elif kind in ("HMMF", "HMMR"):
                jump, count = values
                (found.hmmf if kind == "HMMF" else found.hmmr)[int(jump)] = float(count)
            elif kind in ("FERF", "FERR"):
                word, fertility, count = values
                rows = found.ferf if kind == "FERF" else found.ferr
                rows.append((word, int(fertility), float(count)))
            else:
                raise ValueError
        except ValueError:
            raise InputError(
                f"{name} line {number:,}: {line[:40]!r} is not a prior of eflomal; wanted "
                "LEX TAB source TAB target TAB count, or HMMF, HMMR, FERF, FERR"
            ) from None
    return found


def add_priors(model: StatisticalModel, priors: Priors) -> StatisticalModel:
    """Return the model with the counts of earlier links added to those of its own text.

    Only words that the text has matter. Each count weighs as much as a link that was learned.
    """
    fold = str.lower if model.settings.lowercase else str
    numbers = [{w: n for n, w in enumerate(words)} for words in (model.src_words, model.tgt_words)]
    counts: Counter[int] = Counter()
    for source, target, count in priors.priors:
        s, t = numbers[0].get(fold(source)), numbers[1].get(fold(target))
        if s is not None and t is not None:
            counts[s << 32 | t] += count  # type: ignore[assignment]
    if not counts:
        return model
    new = np.fromiter(counts, np.int64, len(counts))
    more = np.fromiter(counts.values(), np.float64, len(counts))
    keys, place = np.unique(np.concatenate([model.keys, new]), return_inverse=True)
    tables = []
    for values, totals, shift in (
        (model.fwd, model.src_totals, 32),
        (model.bwd, model.tgt_totals, 0),
    ):
        own = values * totals[model.keys >> shift & 0xFFFFFFFF]
        summed = np.bincount(place, np.concatenate([own, more]), len(keys))
        grown = totals + np.bincount(new >> shift & 0xFFFFFFFF, more, len(totals))
        share = summed / np.maximum(grown[keys >> shift & 0xFFFFFFFF], 1e-3)
        tables.append((np.clip(share, 0, 1).astype(np.float32), grown))
    (fwd, src_totals), (bwd, tgt_totals) = tables
    return replace(model, keys=keys, fwd=fwd, bwd=bwd, src_totals=src_totals, tgt_totals=tgt_totals)

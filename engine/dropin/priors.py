"""Read, write and make files of priors as eflomal has them: how often words were linked before.

Lines are TAB-separated: LEX source target count; HMMF and HMMR jump count; FERF and FERR word
fertility count. Ours uses the LEX lines; the others are written for eflomal itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO

from ..errors import InputError
from ..links.link_files import parse_links
from ..text.words import split_words
from ..types import Link, Words

# A pair of words is shown to the learner so many times at most: more adds nothing.
MAX_COPIES = 5


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


def show_priors(
    priors: Priors, src: Sequence[str], tgt: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of one word each that teach a learner the priors of the words of a text."""
    known = [{word.lower() for line in lines for word in split_words(line)} for lines in (src, tgt)]
    for source, target, count in priors.priors:
        if source.lower() in known[0] and target.lower() in known[1]:
            for _ in range(max(1, min(round(count), MAX_COPIES))):
                yield source, target

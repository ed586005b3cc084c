"""Decides what aligns a text: a model, statistics learned from the text itself, or both.

Both are looked at on a sample of the text, and count by how well they explain it. Does not know how
links are found, only who finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal

import numpy as np

from ..bundle.manifest import OptimizeFor
from ..errors import InputError, MxError
from ..links.combination import LOWEST_SCORE, Combination, measure_fit, weigh_by_fit
from ..statistical.model import StatisticalModel
from ..types import LinkFinder, Links, Pairs
from .mistakes import find_text_mistakes, looks_parallel
from .text_statistics import EvenSample, learn_statistics

Method = Literal["auto", "model", "statistics", "both"]
# Pairs below which statistics are not learned beside a model. Set by judgement, not measured: the
# weights of the combination were fitted on texts from 500 pairs on.
FEW_PAIRS = 200
# Pairs below which statistics alone are told to be a guess. Set by judgement, not measured.
VERY_FEW_PAIRS = 100
# A model must find so much more with the sides changed over before they are taken for swapped. On
# the right way round a pilot model found 0.89 to 0.96 times as much in 16 languages.
_TURNED = 1.0
# Pairs from which on that is sure enough for a warning.
_SURE_OF_SIDES = 20


@dataclass(frozen=True)
class ModelCandidate:
    """A model, as it would be used: soft links, and its name."""

    name: str
    find_links: LinkFinder
    find_turned: LinkFinder  # with the sides changed over
    sides_known: bool  # the user said which side is which language, or there is nothing to say
    has_languages: bool


@dataclass(frozen=True)
class Choice:
    """What aligns a text, and what the user is told about it."""

    model: bool
    turned: bool = False  # the model is to be turned round
    statistics: StatisticalModel | None = None
    combination: Combination | None = None  # None: the model alone, as its bundle says
    messages: tuple[str, ...] = ()


def choose_method(
    wanted: Method,
    chunks: Iterable[Pairs],
    model: ModelCandidate | None,
    *,
    why_none: str = "",
    known: StatisticalModel | None = None,
    whole: bool = True,
    optimize_for: OptimizeFor = "aer",
    threshold: float | None = None,
    on_progress: Callable[[str], None] = lambda message: None,
) -> Choice:
    """Choose, and learn statistics if they are to count.

    Args:
        chunks: the whole text, or the beginning of a pipe if not `whole`.
        model: the one that knows the languages, or might; None: there is none, `why_none` says why.
        known: statistics learned before; None: they are learned from the chunks.
        optimize_for, threshold: which links are kept, as for `Aligner.load`.
    """
    if wanted in ("model", "both") and model is None:
        raise MxError(f"--method {wanted} needs a model, and {why_none}")
    model = None if wanted == "statistics" else model
    sample = EvenSample()
    read, error = _read_some(sample.watch(chunks), FEW_PAIRS)
    if model and wanted == "auto" and known is None and sample.n_read < FEW_PAIRS:
        if error is not None and not sample.n_read:
            raise error
        pairs = sample.as_chunk()
        turned, warnings = _look_at_sides(model, pairs)
        note = _describe(model, turned, sample.n_read, None, whole) if error is None else ""
        return Choice(True, turned, messages=(note, *find_text_mistakes(pairs), *warnings))
    if error is not None:
        raise error
    few = sample.n_read < FEW_PAIRS
    statistics = known or learn_statistics(read, few, on_progress)
    if statistics is None:
        return Choice(model is not None)
    pairs = sample.as_chunk()
    warnings = find_text_mistakes(pairs)
    find_statistically = partial(statistics.find_links, threshold=LOWEST_SCORE)
    if not looks_parallel(pairs, find_statistically):
        warnings.append("warning: few words have a partner; do the lines belong together?")
    turned, model_links = False, None
    if model:
        turned, more = _look_at_sides(model, pairs)
        warnings += more
        model_links = (model.find_turned if turned else model.find_links)(pairs)
    fit = measure_fit(pairs, model_links, find_statistically(pairs))
    combination = weigh_by_fit(fit, statistics.n_learned, optimize_for, threshold)
    if model and not combination.model and wanted == "auto":
        why_none = f"the model {model.name} seems not to know this text"
        model, fit = None, replace(fit, agreement=None)
        combination = weigh_by_fit(fit, statistics.n_learned, optimize_for, threshold)
    note = _describe(model, turned, statistics.n_learned, combination, whole, why_none)
    return Choice(model is not None, turned, statistics, combination, (note, *warnings))


def find_no_links(pairs: Pairs) -> Links:
    """Return no links, of a text that has no words to link."""
    none = np.zeros(0, np.int64)
    offsets = np.zeros(len(pairs.src) + 1, np.int64)
    return Links(offsets, none, none, none.astype(np.float32), none > 0)


def _look_at_sides(model: ModelCandidate, pairs: Pairs) -> tuple[bool, list[str]]:
    """Tell whether the model is to be turned round, and warn if the user's sides seem swapped."""
    right, turned = (
        float(find(pairs).score.sum()) for find in (model.find_links, model.find_turned)
    )
    if turned <= _TURNED * right:
        return False, []
    if not model.sides_known:
        return True, []
    if not model.has_languages or len(pairs.src) < _SURE_OF_SIDES:
        return False, []
    return False, ["warning: the sides seem swapped; check SRC, TGT and the order of --langs"]


def _read_some(chunks: Iterable[Pairs], n: int) -> tuple[Iterator[Pairs], InputError | None]:
    """Read chunks until they have n pairs; return all of them, and the error that ended them."""
    read: list[Pairs] = []
    chunks = iter(chunks)
    error = None
    try:
        while sum(len(chunk.src) for chunk in read) < n and (chunk := next(chunks, None)):
            read.append(chunk)
    except InputError as found:
        error = found
    return chain(read, chunks), error


def _describe(
    model: ModelCandidate | None, turned: bool, n_pairs: int, combination: Combination | None,
    whole: bool, why_none: str = "",
) -> str:  # fmt: skip
    """Say in one line what is used and why."""
    which = "the first" if not whole else "this" if n_pairs == 1 else "these"
    text = f"{which} {n_pairs:,} pair{'s' * (n_pairs != 1)}"
    name = f"the model {model.name}{' turned round' if turned else ''}" if model else ""
    if combination is None:
        return f"using {name}; too few to learn statistics from: {text}"
    if model is None:
        hint = ""
        if n_pairs < VERY_FEW_PAIRS:
            hint = "; warning: that is very little to learn from, expect wrong links"
        because = f", as {why_none}" if why_none else ""
        return f"using statistics learned from {text}{because}{hint}"
    return (
        f"using {name} and statistics learned from {text}, weighed "
        f"{combination.model:.2f} to {combination.statistics:.2f} by how well they explain the text"
    )

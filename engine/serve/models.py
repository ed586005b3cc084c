"""The models that are served: which languages they align, loaded when somebody first asks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..align.decoding import SOFT, make_rule
from ..aligner import Aligner
from ..bundle.bundle import Bundle
from ..bundle.installed import installed_models
from ..bundle.languages import parse_language_pair
from ..errors import InputError
from ..links.combination import LOWEST_SCORE, Fit, weigh_by_fit
from ..statistical.model import StatisticalModel
from ..statistical.model_file import load_model

METHODS = ("auto", "model", "statistics", "both")

# Pairs of languages that people are shown: of the model that ships, those with English.
_SHOWN = 72


@dataclass(frozen=True)
class ServedModel:
    """A bundle, and the pairs of languages that it is asked for, both ways round."""

    bundle: Bundle
    pairs: tuple[str, ...]


@dataclass(frozen=True)
class FoundAligner:
    """What aligns a pair of languages, by which method, and how it is called."""

    aligner: Aligner
    langs: str
    method: str
    name: str


class ServedModels:
    """Finds the aligner for languages. May be called from several threads at once."""

    def __init__(
        self, paths: Sequence[str], langs: Sequence[str], threads: int, backend: str,
        statistics: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Open the bundles at these paths, or all installed ones; `langs` leave some pairs only.

        `statistics` are files of mx-seed --save, each after the languages it was learned from.
        """
        self._statistics = dict(_load_statistics(text) for text in statistics)
        bundles = [Bundle.load(path) for path in paths or map(str, installed_models().values())]
        both = [
            ServedModel(bundle, tuple(_turn_pairs(bundle.language_pairs))) for bundle in bundles
        ]
        wanted = ["-".join(parse_language_pair(text)) for text in langs]
        known = {*(pair for model in both for pair in model.pairs), *self._statistics}
        for pair in wanted:
            if pair not in known:
                told = (text for bundle in bundles for text in bundle.told_pairs)
                there = ", ".join([*told, *self._statistics])
                raise InputError(f"no model is for {pair}; there are models for {there}")
        self.models = [
            ServedModel(model.bundle, tuple(p for p in model.pairs if not wanted or p in wanted))
            for model in both
        ]
        self._threads, self._backend = threads, backend
        self._loaded: dict[tuple[int, str], Aligner] = {}
        self._lock = threading.Lock()

    @property
    def pairs(self) -> list[str]:
        """The pairs of languages, each once."""
        both = [pair for model in self.models for pair in model.pairs]
        return list(dict.fromkeys([*both, *self._statistics]))

    @property
    def shown_pairs(self) -> list[str]:
        """The pairs that a page offers; others can be asked for, too."""
        return list(dict.fromkeys([*self.pairs[:_SHOWN], *self._statistics]))

    def tell_pairs(self) -> str:
        """Name the pairs for a message."""
        more = len(self.pairs) - len(self.shown_pairs)
        return ", ".join(self.shown_pairs) + (f" and {more:,} more" if more else "")

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that can be asked for."""
        return METHODS if self._statistics else METHODS[:2]

    def get_aligner(self, langs: str | None, method: str = "auto") -> FoundAligner:
        """Return the aligner for languages by any name; None takes the first languages there are.

        The method `auto` takes all that is there: a model, statistics, or both.
        """
        pair = self.pairs[0] if langs is None else "-".join(parse_language_pair(langs))
        served = [(n, model) for n, model in enumerate(self.models) if pair in model.pairs]
        learned = self._statistics.get(pair)
        if not served and learned is None:
            raise InputError(f"no model is for {pair}; this server has {self.tell_pairs()}")
        there = ["model"] * bool(served) + ["statistics"] * (learned is not None)
        there += ["both"] * (len(there) == 2)
        method = there[-1] if method == "auto" else method
        if method not in there:
            raise InputError(f"for {pair} there is {' and '.join(there)} only, not {method}")
        if not served:
            reason = f"there is no model for {pair}"
            aligner = Aligner(None, None, reason, make_rule(None, SOFT, None, "aer", True))
        else:
            with self._lock:  # two askers must not load it twice
                aligner = self._load(*served[0], pair)
        if learned is not None and method != "model":
            aligner = _count_statistics(aligner, learned, method)
        return FoundAligner(aligner, pair, method, aligner.name)

    def _load(self, number: int, model: ServedModel, pair: str) -> Aligner:
        order = model.bundle.language_order(pair)
        key = number, "turned" if order < 0 else "as it is"
        if key not in self._loaded:
            self._loaded[key] = Aligner.load(
                model.bundle.path, langs=pair, threads=self._threads, backend=self._backend,
                nulls=True,
            )  # fmt: skip
        return self._loaded[key]

    def describe(self) -> list[dict[str, Any]]:
        """Return what there is to know of each model."""
        bundles = [
            {"name": model.bundle.name, "langs": list(model.pairs), "digest": model.bundle.digest}
            for model in self.models
            if model.pairs
        ]
        learned = [
            {"name": "statistics", "langs": [pair], "learned_pairs": model.n_learned}
            for pair, model in self._statistics.items()
        ]
        return bundles + learned


def set_threshold(aligner: Aligner, threshold: float) -> Aligner:
    """Return the aligner with another lowest score of a link."""
    if aligner.combination is not None:
        return replace(aligner, combination=replace(aligner.combination, threshold=threshold))
    return replace(aligner, rule=replace(aligner.rule, threshold=threshold), threshold=threshold)


def _count_statistics(aligner: Aligner, learned: StatisticalModel, method: str) -> Aligner:
    """Return the aligner with statistics that were learned before, alone or beside its model.

    They weigh what mx-align gives them: a text of the server's cannot say how well they fit it.
    """
    both = 1.0 if method == "both" else None
    fit = Fit(both, 1.0, both)
    found = replace(
        aligner,
        rule=replace(aligner.rule, threshold=LOWEST_SCORE),
        statistics=learned,
        combination=weigh_by_fit(fit, learned.n_learned),
    )
    return found if method == "both" else replace(found, bundle=None, backend=None)


def _load_statistics(text: str) -> tuple[str, StatisticalModel]:
    """Return the languages and the model of `de-en=FILE`."""
    langs, mark, path = text.partition("=")
    if not mark:
        raise InputError(f"--statistics must be languages and a file, de-en=FILE, not {text!r}")
    return "-".join(parse_language_pair(langs)), load_model(path)


def _turn_pairs(pairs: Sequence[str]) -> list[str]:
    """Return pairs like "de-en", each of them followed by itself the other way round."""
    turned = {pair: "-".join(reversed(pair.split("-"))) for pair in pairs}
    both = (
        way for pair in pairs for way in (pair, turned[pair]) if way == pair or "und" not in way
    )
    return list(dict.fromkeys(both))

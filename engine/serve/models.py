"""The models that are served: which languages they align, loaded when somebody first asks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..aligner import Aligner
from ..bundle.bundle import Bundle
from ..bundle.installed import installed_models
from ..bundle.languages import parse_language_pair
from ..errors import InputError


@dataclass(frozen=True)
class ServedModel:
    """A bundle, and the pairs of languages that it is asked for, both ways round."""

    bundle: Bundle
    pairs: tuple[str, ...]


class ServedModels:
    """Finds the aligner for languages. May be called from several threads at once."""

    def __init__(
        self, paths: Sequence[str], langs: Sequence[str], threads: int, backend: str
    ) -> None:
        """Open the bundles at these paths, or all installed ones; `langs` leave some pairs only."""
        bundles = [Bundle.load(path) for path in paths or map(str, installed_models().values())]
        both = [
            ServedModel(bundle, tuple(_turn_pairs(bundle.language_pairs))) for bundle in bundles
        ]
        wanted = ["-".join(parse_language_pair(text)) for text in langs]
        known = [pair for model in both for pair in model.pairs]
        for pair in wanted:
            if pair not in known:
                raise InputError(f"no model is for {pair}; there are models for {', '.join(known)}")
        self.models = [
            ServedModel(model.bundle, tuple(p for p in model.pairs if p in (wanted or known)))
            for model in both
        ]
        self._threads, self._backend = threads, backend
        self._loaded: dict[tuple[int, str], Aligner] = {}
        self._lock = threading.Lock()

    @property
    def pairs(self) -> list[str]:
        """The pairs of languages, each once."""
        return list(dict.fromkeys(pair for model in self.models for pair in model.pairs))

    def get_aligner(self, langs: str | None) -> tuple[Aligner, str, str]:
        """Return the aligner for languages by any name, their codes, and the name of the model.

        None takes the first languages there are.
        """
        pair = self.pairs[0] if langs is None else "-".join(parse_language_pair(langs))
        for number, model in enumerate(self.models):
            if pair in model.pairs:
                with self._lock:  # two askers must not load it twice
                    return self._load(number, model, pair), pair, model.bundle.name
        raise InputError(f"no model is for {pair}; this server has {', '.join(self.pairs)}")

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
        return [
            {"name": model.bundle.name, "langs": list(model.pairs), "digest": model.bundle.digest}
            for model in self.models
            if model.pairs
        ]


def _turn_pairs(pairs: Sequence[str]) -> list[str]:
    """Return pairs like "de-en", and each of them the other way round."""
    turned = ["-".join(reversed(pair.split("-"))) for pair in pairs if "und" not in pair]
    return list(dict.fromkeys([*pairs, *turned]))

"""One self-contained HTML page from aligned pairs: data as JSON beside our own script and style.
Knows the page's data format; which pairs are shown, and what made them, is decided elsewhere.

Scores travel as whole numbers from 0 to 255. The cut that the links were made with falls between
two of them, so that the page shows exactly those links before its slider is moved."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..links.link_files import Gold
from ..types import Link
from ..version import __version__

Floats = npt.NDArray[np.float32]

TOP = 255
LOWEST = 2  # the slider's lower end: below it nearly all cells are links
MAX_CELLS = 10_000  # larger matrices are left out of the page, their links are not

NAMES = {
    "sys": "symmetrised", "fwd": "forward", "bwd": "backward", "cmp": "compared", "gold": "gold",
}  # fmt: skip


class Weights(Protocol):
    """What a model says about all words of a pair; `aligner.Soft` is one."""

    @property
    def scores(self) -> Floats: ...
    @property
    def fwd(self) -> Floats: ...
    @property
    def bwd(self) -> Floats: ...
    @property
    def src_null(self) -> Floats: ...
    @property
    def tgt_null(self) -> Floats: ...


@dataclass(frozen=True)
class PairView:
    """An aligned pair as it is shown; `number` is its line, from 1. What is None is not drawn."""

    number: int
    src: Sequence[str]
    tgt: Sequence[str]
    links: Sequence[Link]
    score: float
    scores: Sequence[float] | None = None  # of the links
    weights: Weights | None = None
    fwd: Sequence[Link] | None = None
    bwd: Sequence[Link] | None = None
    gold: Gold | None = None
    compare: Sequence[Link] | None = None


@dataclass(frozen=True)
class Page:
    """Pairs and what is said about all of them.

    `threshold` is the score that made the links; `matrix` says that every cell which reaches it is
    a link, so that the slider can also add some. Without a threshold there is no slider.
    """

    title: str
    pairs: Iterable[PairView]
    how: str = ""
    threshold: float | None = None
    matrix: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    report: Mapping[str, Any] | None = None


def build(page: Page) -> str:
    """The page as text."""
    cut = None if page.threshold is None else whole_cut(page.threshold)
    data = {
        "how": page.how,
        "threshold": cut,
        "cut": page.threshold,
        "matrix": page.matrix,
        "names": {**NAMES, **page.names},
        "report": page.report,
        "pairs": [_pair(pair, cut, page.matrix) for pair in page.pairs],
    }
    script, style = _part("page.js"), _part("page.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "CSP": policy, "VERSION": __version__, "TITLE": html.escape(page.title), "STYLE": style,
        "DATA": _json(data), "SCRIPT": script,
    }  # fmt: skip
    pieces = _part("page.html").split("@")
    # Names of parts stand between two signs; what is put in is never looked at again.
    return "".join(parts.get(piece, piece) if k % 2 else piece for k, piece in enumerate(pieces))


@cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(data: Any) -> str:
    """JSON that cannot end the script element it stands in, nor begin a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half of a surrogate pair, which no file can hold, is shown as a question mark.
    text = text.encode("utf-8", "replace").decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# ---- numbers ----


def whole_cut(threshold: float) -> int:
    """The whole number at which links begin."""
    return min(max(math.ceil(threshold * TOP), LOWEST), TOP)


def quantized(values: Any) -> npt.NDArray[np.uint8]:
    """Scores 0..1 as whole numbers."""
    clean = np.nan_to_num(np.asarray(values, np.float64), nan=0.0)
    return (np.clip(clean, 0, 1) * TOP).astype(np.uint8)


def _matrix(pair: PairView, cut: int) -> npt.NDArray[np.uint8]:
    """The scores of all cells, links at or above the cut and all others below it."""
    assert pair.weights is not None
    cells = quantized(pair.weights.scores)
    linked = np.zeros(cells.shape, bool)
    if pair.links:
        linked[tuple(np.array(pair.links).T)] = True
    return np.where(linked, np.maximum(cells, cut), np.minimum(cells, cut - 1)).astype(np.uint8)


def _packed(values: npt.NDArray[np.uint8]) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _flat(links: Iterable[Link], third: Iterable[int]) -> list[int]:
    return [value for (i, j), last in zip(links, third, strict=True) for value in (i, j, last)]


def _plain(links: Sequence[Link]) -> list[int]:
    return _flat(links, [-1] * len(links))


# ---- one pair ----


def _pair(pair: PairView, cut: int | None, matrix: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "n": pair.number,
        "s": list(pair.src),
        "t": list(pair.tgt),
        "score": round(pair.score, 4),
        "l": _links(pair, cut),
    }
    if pair.weights is not None and len(pair.src) * len(pair.tgt) <= MAX_CELLS:
        weights = pair.weights
        cells = _matrix(pair, cut) if matrix and cut is not None else quantized(weights.scores)
        named = {"f": weights.fwd, "b": weights.bwd, "sn": weights.src_null, "tn": weights.tgt_null}
        row |= {"m": _packed(cells)}
        row |= {name: _packed(quantized(values)) for name, values in named.items()}
    for name, links in (("lf", pair.fwd), ("lb", pair.bwd), ("c", pair.compare)):
        if links is not None:
            row[name] = _plain(links)
    if pair.gold is not None:
        possible = sorted(pair.gold.possible)
        row["gp"] = _flat(possible, [int(link in pair.gold.sure) for link in possible])
    return row


def _links(pair: PairView, cut: int | None) -> list[int]:
    if pair.scores is None or cut is None:
        return _plain(pair.links)
    return _flat(pair.links, np.maximum(quantized(pair.scores), cut).tolist())

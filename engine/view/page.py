"""Builds a self-contained HTML page of aligned pairs: data as JSON beside our script and style.

Scores travel as whole numbers from 0 to 255. The threshold that the links were made with falls
between two of them, so that the page shows exactly those links before its slider is moved. Does not
decide which pairs are shown.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from ..links.link_files import Gold
from ..types import Floats, Link
from ..version import __version__

MAX_SCORE = 255
MIN_THRESHOLD = 2  # the slider's lower end: below it nearly all cells are links
# Larger matrices are left out of the page, their links are not: 1,000 pairs of 100 x 100 words with
# three matrices each would be 40 MB.
MAX_CELLS = 10_000

# The script of a page: modules that name each other in `import`, laid end to end in this order.
_MODULES = (
    "data", "line_breaks", "links", "heat_map", "saving", "errors", "edit", "cards", "pair_list",
    "page",
)  # fmt: skip
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_ZEROS = re.compile(rb"\0{1,255}")
_EXPORT = re.compile(r"^export ", re.MULTILINE)

# What the script calls the matrices and NULL rows of a pair.
_MATRICES = {"m": "scores", "f": "fwd", "b": "bwd", "sn": "src_null", "tn": "tgt_null"}
PAGE_NAMES = {
    "sys": "symmetrised", "fwd": "forward", "bwd": "backward", "cmp": "compared", "gold": "gold",
}  # fmt: skip


@dataclass(frozen=True)
class PairView:
    """An aligned pair as it is shown; `number` is its line, from 1. What is None is not drawn."""

    number: int
    src: Sequence[str]
    tgt: Sequence[str]
    links: Sequence[Link]
    score: float
    scores: Sequence[float] | None = None  # of the links
    # What a model says about all words: `scores`, `fwd`, `bwd`, `src_null` and `tgt_null` of it.
    weights: Mapping[str, Floats] | None = None
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
    report: Mapping[str, Any] = field(default_factory=dict)  # what `ReportCollector.report` says


def build_page(page: Page) -> str:
    """Return the page as text."""
    threshold = None
    if page.threshold is not None:
        # Up, because scores are rounded down: with 0.5 (127.5) the slider stands at 128, and a link
        # of 0.501 (127.8, as a whole number 127) is lifted to 128 by `_encode_pair`.
        whole = math.ceil(page.threshold * MAX_SCORE)
        threshold = min(max(whole, MIN_THRESHOLD), MAX_SCORE)
    data = {
        "how": page.how,
        "threshold": threshold,
        "cut": page.threshold,
        "matrix": page.matrix,
        "names": {**PAGE_NAMES, **page.names},
        "report": page.report or None,
        "pairs": [_encode_pair(pair, threshold, page.matrix) for pair in page.pairs],
    }
    return fill_page(page.title, data, page_modules())


def fill_page(
    title: str, data: Any, script: str, *, more: Mapping[str, str] | None = None, policy: str = ""
) -> str:
    """Return the page with data and script in it; `more` are further parts of its markup."""
    style = _read_part("page.css") + (more or {}).get("STYLE", "")
    allowed = (
        f"default-src 'none'; script-src '{_hash_source(script)}'; "
        f"style-src '{_hash_source(style)}'; base-uri 'none'; form-action 'none'{policy}"
    )
    parts = {
        "APP": "", **(more or {}), "CSP": allowed, "VERSION": __version__,
        "TITLE": html.escape(title), "STYLE": style, "DATA": _encode_json(data), "SCRIPT": script,
    }  # fmt: skip
    pieces = _read_part("page.html").split("@")
    # Names of parts stand between two @; what is put in is never looked at again, so no text can
    # bring in another part.
    return "".join(parts.get(piece, piece) if k % 2 else piece for k, piece in enumerate(pieces))


def page_modules(*more: str) -> str:
    """Return our modules and more as one script: a page that is one file can import nothing."""
    modules = [*(_read_part(f"{name}.js") for name in _MODULES), *more]
    body = "".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in modules)
    return f'"use strict";\n(() => {{\n{body}}})();\n'


@cache
def _read_part(name: str) -> str:
    return (files(__package__) / "web" / name).read_text("utf-8")


def _hash_source(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _encode_json(data: Any) -> str:
    """Return JSON that cannot end the script element it stands in, nor begin a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half of a surrogate pair, which no file can hold, is shown as a question mark.
    text = text.encode("utf-8", "replace").decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# ---- pairs ----


def _encode_pair(pair: PairView, threshold: int | None, matrix: bool) -> dict[str, Any]:
    """Return a pair as the script reads it; -1 is a link without a score."""
    scores = [-1] * len(pair.links)
    if pair.scores is not None and threshold is not None:
        scores = np.maximum(quantize_scores(pair.scores), threshold).tolist()
    row: dict[str, Any] = {
        "n": pair.number,
        "s": list(pair.src),
        "t": list(pair.tgt),
        "score": round(pair.score, 4),
        "l": _flatten_links(pair.links, scores),
    }
    if pair.weights is not None and len(pair.src) * len(pair.tgt) <= MAX_CELLS:
        cells = {key: quantize_scores(pair.weights[name]) for key, name in _MATRICES.items()}
        if matrix and threshold is not None:
            # Rounding must not change which cells are links.
            linked = np.zeros(cells["m"].shape, bool)
            linked[tuple(np.array(pair.links, np.int64).reshape(-1, 2).T)] = True
            low, high = np.minimum(cells["m"], threshold - 1), np.maximum(cells["m"], threshold)
            cells["m"] = np.where(linked, high, low).astype(np.uint8)
        row |= {key: pack_bytes(values) for key, values in cells.items()}
    for name, links in (("lf", pair.fwd), ("lb", pair.bwd), ("c", pair.compare)):
        if links is not None:
            row[name] = _flatten_links(links, [-1] * len(links))
    if pair.gold is not None:
        possible = sorted(pair.gold.possible)
        row["gp"] = _flatten_links(possible, [int(link in pair.gold.sure) for link in possible])
    return row


def quantize_scores(values: Any) -> npt.NDArray[np.uint8]:
    """Return scores 0..1 as whole numbers."""
    clean = np.nan_to_num(np.asarray(values, np.float64), nan=0.0)
    return (np.clip(clean, 0, 1) * MAX_SCORE).astype(np.uint8)


def pack_bytes(values: npt.NDArray[np.uint8]) -> str:
    """Return bytes as text; up to 255 zeros become 0 and their number: 7 0 0 0 9 is 7 0 3 9.

    What no slider can reach counts as zero. Of a matrix of 25 x 25 words a third is left.
    """
    seen = np.where(values < MIN_THRESHOLD, 0, values).astype(np.uint8).tobytes()
    packed = _ZEROS.sub(lambda run: bytes((0, len(run.group()))), seen)
    return base64.b64encode(packed).decode()


def _flatten_links(links: Iterable[Link], third: Iterable[int]) -> list[int]:
    """Return links as one row of numbers: (0, 1), (2, 2) with 7, 8 become 0 1 7 2 2 8."""
    return [value for (i, j), last in zip(links, third, strict=True) for value in (i, j, last)]

"""Builds the web app: the page of mx-view with a box to type sentences into. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ..view.page import PAGE_NAMES, fill_page, page_modules


@cache
def _read_part(name: str) -> str:
    return (files(__package__) / "web" / name).read_text("utf-8")


def build_app_page(pairs: Sequence[str], tokens: Sequence[str], methods: Sequence[str]) -> str:
    """Return the page, for the languages, kinds of tokens and methods that there are."""
    data: dict[str, Any] = {
        "app": {"langs": list(pairs), "tokens": list(tokens), "method": list(methods)},
        "names": {**PAGE_NAMES, "sys": "links", "gold": "by hand"},
        "how": "", "threshold": None, "cut": None, "matrix": True,
        "report": None, "pairs": [],
    }  # fmt: skip
    parts = {"APP": _read_part("app.html"), "STYLE": _read_part("app.css")}
    script = page_modules(_read_part("app.js"))
    return fill_page("mx-align", data, script, more=parts, policy="; connect-src 'self'")

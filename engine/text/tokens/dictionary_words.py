"""Split scripts without spaces into words by the dictionaries of ICU, if they are installed.

`pip install "mx-align[icu]"` brings them (icu4py, MIT; ICU itself has the Unicode licence). Does
not know what to do without them.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

from ...types import Span

INSTALL = 'pip install "mx-align[icu]"'


@cache
def has_dictionaries() -> bool:
    """Tell whether the dictionaries can be loaded."""
    return importlib.util.find_spec("icu4py") is not None


def find_breaks(text: str) -> list[Span] | None:
    """Return the words of a run of Thai, Lao, Khmer or Burmese; None without dictionaries."""
    breaker = _load_breaker()
    # ICU goes by the script; the language matters for none of these four.
    return None if breaker is None else list(breaker(text, "en").segments())


@cache
def _load_breaker() -> Any:
    if not has_dictionaries():
        return None
    from icu4py.breakers import WordBreaker

    return WordBreaker

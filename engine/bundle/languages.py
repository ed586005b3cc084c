"""Language pairs: how they are written on the command line and in bundles, and which ones match.

Does not know any language: a code is letters and digits, as in BCP 47 ("de", "zh-Hans").
"""

from __future__ import annotations

import re

from ..errors import MxError

Languages = tuple[str, str]  # source, target; "und" if unknown, "de+fr" if it may be either

_SUBTAGS = r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
_SIDE = re.compile(rf"{_SUBTAGS}(?:\+{_SUBTAGS})*")
_CODE = r"[A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*"
_PAIR = re.compile(rf"({_CODE}(?:\+{_CODE})*)-({_CODE}(?:\+{_CODE})*)")


def parse_languages(langs: str) -> Languages:
    """Return the two codes of `--langs`.

    In `zh_Hans-en` an underscore stands inside a code, because the hyphen parts the two.
    """
    found = _PAIR.fullmatch(langs)
    if not found:
        raise MxError(f"the languages must be two codes such as de-en, not {langs!r}")
    return found[1].replace("_", "-"), found[2].replace("_", "-")


def is_language_side(value: object) -> bool:
    """Whether a manifest may give this as the language of a side: "de", "zh-Hans", "de+fr"."""
    return isinstance(value, str) and bool(_SIDE.fullmatch(value))


def list_pairs(languages: Languages) -> list[str]:
    """Return the pairs that a model for these languages aligns: "de-en", "fr-en" for de+fr-en."""
    src, tgt = languages
    return [f"{s}-{t}" for s in src.split("+") for t in tgt.split("+")]


def match_order(languages: Languages, langs: str) -> int:
    """Return 1 if a model for `languages` aligns "de-en", -1 if it aligns "en-de", 0 if neither."""
    src, tgt = languages
    if langs.lower() in map(str.lower, list_pairs((src, tgt))):
        return 1
    return -1 if langs.lower() in map(str.lower, list_pairs((tgt, src))) else 0

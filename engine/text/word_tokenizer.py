"""Split raw text into words, for those who have no tokeniser (`--tokenize`).

Letters, numbers and marks hold together, everything else stands alone. Knows Unicode categories
and scripts, not languages. Words never contain blanks, so the tokenised line, joined by spaces,
says the same to every other tool.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache

# Scripts written without spaces. Han and Hiragana are split at each character, Katakana is kept in
# runs because it spells foreign words; South-East Asian scripts are split at each syllable's start.
_SINGLE = (
    "\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u3005-\u3007\u3021-\u3029\u3105-\u312f\u31a0-\u31bf"
)
_KATAKANA = "\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_SYLLABLES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"


def tokenize_line(line: str) -> list[str]:
    """Return the words and punctuation marks of a line of raw text.

    No character is lost but blanks of every kind, controls and byte-order marks.
    """
    return _word_pattern().findall(line)


@cache
def _word_pattern() -> re.Pattern[str]:
    """Build the pattern when first used: looking at all characters takes a quarter of a second."""
    classes: dict[str, list[int]] = {"word": [], "number": [], "mark": [], "blank": []}
    for code in range(sys.maxunicode + 1):
        if name := _character_class(chr(code)):
            classes[name].append(code)
    word, number, mark, blank = (_format_ranges(classes[name]) for name in classes)
    inner = f"[{mark}\u200c\u200d]*"  # combining marks and the two joiners stay with their letter
    letter = f"(?:(?![{_SINGLE}{_SYLLABLES}{_KATAKANA}])[{word}{number}]{inner})"
    # Don't, well-known; 1,000.50 and 12:30.
    joint = f"(?:['\u2019\u2010\u00b7-]|(?<=[{number}])[.,:/](?=[{number}]))"
    return re.compile(
        f"{letter}+(?:{joint}{letter}+)*"
        f"|[{_SINGLE}]{inner}"
        f"|(?:[{_KATAKANA}]{inner})+"
        f"|[{_SYLLABLES}]{inner}"
        rf"|\.\.+|--+|[^{blank}]{inner}"
    )


def _character_class(char: str) -> str | None:
    category = unicodedata.category(char)
    if category[0] == "L":
        return "word"
    if category[0] == "N":
        return "number"
    if category[0] == "M":
        return "mark"
    # Surrogates stay: they come from invalid text, which must not lose characters in silence.
    return "blank" if category[0] == "Z" or category == "Cc" or char == "\ufeff" else None


def _format_ranges(codes: list[int]) -> str:
    """Write sorted codes as the inside of a character class: [65, 66, 67, 90] as "A-CZ-Z"."""
    parts = []
    start = previous = codes[0]
    for code in [*codes[1:], -1]:
        if code != previous + 1:
            parts.append(f"\\U{start:08x}-\\U{previous:08x}")
            start = code
        previous = code
    return "".join(parts)

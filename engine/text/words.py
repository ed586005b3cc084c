"""Split lines into words, raw text too (`--tokenize`), and bring a word into the form models see.

In raw text, letters, numbers and marks hold together, everything else stands alone. Knows Unicode
categories and scripts, not languages. Does not split words into pieces (`pieces`).
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache


def split_words(line: str) -> list[str]:
    """Return what stands between ASCII spaces and tabs; other blanks belong to their word."""
    words = (line.replace("\t", " ") if "\t" in line else line).split(" ")
    return [word for word in words if word] if "" in words else words


def normalize_word(word: str, lowercase: bool, fold_accents: bool = False) -> str:
    """Return what a model sees of a word; never nothing, unless the word is empty.

    A `\\r` of a Windows line end goes. Half of a surrogate pair, which no file can hold, becomes
    a question mark. With `fold_accents` letters lose their accents; a word of nothing but accents
    keeps them.
    """
    if word[-1:] == "\r" and len(word) > 1:
        word = word.rstrip("\r") or "\r"
    if lowercase:
        word = word.lower()
    if fold_accents and not word.isascii():
        parts = unicodedata.normalize("NFD", word)
        word = "".join(c for c in parts if unicodedata.category(c) != "Mn") or word
    try:
        word.encode()
    except UnicodeEncodeError:
        return word.encode("utf-8", "replace").decode()
    return word


# ---- raw text ----

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

    No character is lost but blanks of every kind, controls and byte-order marks. Words never
    contain blanks, so the tokenised line, joined by spaces, says the same to every other tool.
    """
    return _word_pattern().findall(line)


@cache
def _word_pattern() -> re.Pattern[str]:
    """Build the pattern when first used: looking at all characters takes a quarter of a second."""
    classes: dict[str, list[int]] = {"L": [], "N": [], "M": [], "Z": []}
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        # Surrogates stay: they come from invalid text, which must not lose characters in silence.
        is_blank = category == "Cc" or chr(code) == "\ufeff"
        if (kind := "Z" if is_blank else category[0]) in classes:
            classes[kind].append(code)
    letters, numbers, marks, blanks = map(_format_ranges, classes.values())
    inner = f"[{marks}\u200c\u200d]*"  # combining marks and the two joiners stay with their letter
    letter = f"(?:(?![{_SINGLE}{_SYLLABLES}{_KATAKANA}])[{letters}{numbers}]{inner})"
    # Don't, well-known; 1,000.50 and 12:30.
    joint = f"(?:['\u2019\u2010\u00b7-]|(?<=[{numbers}])[.,:/](?=[{numbers}]))"
    return re.compile(
        f"{letter}+(?:{joint}{letter}+)*"
        f"|[{_SINGLE}]{inner}"
        f"|(?:[{_KATAKANA}]{inner})+"
        f"|[{_SYLLABLES}]{inner}"
        rf"|\.\.+|--+|[^{blanks}]{inner}"
    )


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

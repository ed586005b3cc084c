"""Split lines into words at spaces, and bring a word into the form models see.

Does not split raw text (`tokenizer`), nor words into pieces (`pieces`).
"""

from __future__ import annotations

import unicodedata


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

"""Decide how the tokens of a text are written, from its first lines, and say so in one line.

Decides only where the signs are unambiguous; whatever it decides, links count the tokens that stand
between spaces. Does not read tokens (`schemes`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ...errors import InputError, MxError
from ..words import split_words
from .schemes import BLANK_MARK, BPE_MARK, MOSES_ENTITY, READERS, TokenReader
from .tokenizer import UNSPACED

# Lines that are looked at, and characters of them.
SAMPLE, SAMPLE_CHARS = 1000, 1 << 20
KINDS = ("auto", *READERS, "raw")
# Shares of lines or tokens, far from what either kind of text has. In 1,000 lines of each language
# of a 36-language corpus, cut by SentencePiece, every line begins with the mark; plain text had it
# in none. Subword-nmt leaves @@ on one token in ten or more; e-mail never ends in it.
_LINES_WITH_MARKS, _TOKENS_WITH_MARKS, _TOKENS_WITH_BPE = 0.8, 0.05, 0.005
# Characters for each space between two of them, in scripts that write none: a segmented text has
# 1 to 5.
_LONG_RUN = 8
_GLUED = re.compile(r"[^\W_][\"'»”’)\]]*[.,!?;:…][\"'»”’)\]]*$")
_FREE = re.compile(r"[.,!?;:…]+$")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_UNSPACED_GAP = re.compile(rf"[{UNSPACED}]\s+(?=[{UNSPACED}])")
_BARE_MARKS = re.compile(r"[\"'\[\]|<>]")

_WORDS = TokenReader()
_TOLD = {
    "sentencepiece": "SentencePiece tokens",
    "icu": "tokens with kept spaces (▁)",
    "moses": "Moses tokens",
    "bpe": "pieces that end in @@",
}


def _name_both(found: re.Match[str]) -> str:
    return f"both sides {'are' if found.group(1) == 'is' else 'have'}"


@dataclass(frozen=True)
class TokenPlan:
    """How both sides of a text are read, and a line for the user about it, if there is need."""

    src: TokenReader = _WORDS
    tgt: TokenReader = _WORDS
    message: str = ""

    @property
    def spreads(self) -> bool:
        """Whether words and tokens are two things on some side."""
        return any(
            reader.model is not None or reader.is_raw or reader.scheme not in ("words", "raw")
            for reader in (self.src, self.tgt)
        )


PLAIN_WORDS = TokenPlan()


def plan_tokens(
    kind: str,
    sample: Iterable[tuple[str, str]],
    *,
    models: tuple[str | None, str | None] = (None, None),
    languages: tuple[str | None, str | None] = (None, None),
) -> TokenPlan:
    """Return how a text is read whose first pairs of lines are the sample.

    `kind` is one of `KINDS`; a SentencePiece model goes before it on its side, whose lines are then
    plain text. `languages` are codes like "fr"; where they are known, splitting raw text is surer.
    """
    if kind not in KINDS:
        raise MxError(f"tokens must be one of {', '.join(KINDS)}, not {kind!r}")
    pairs = list(islice(sample, SAMPLE))
    readers, notes = [], []
    for n, (name, model) in enumerate(zip(("source", "target"), models, strict=True)):
        lines = [pair[n] for pair in pairs]
        reader, note = plan_side(kind, lines, name, model)
        readers.append(replace(reader, language=languages[n]))
        notes.append(note)
    if notes[0] and notes[0].replace("source", "target") == notes[1]:
        notes = [re.sub("the source (is|has)", _name_both, notes[0])]
    return TokenPlan(readers[0], readers[1], "; ".join(note for note in notes if note))


def plan_side(
    kind: str, lines: Sequence[str], name: str = "text", model: str | None = None
) -> tuple[TokenReader, str]:
    """Return how one side is read, and what is to be said about it ("" if nothing is)."""
    flag = "--spm-src" if name == "source" else "--spm-tgt"
    if model is not None:
        if detect_scheme(lines) == "sentencepiece":
            raise InputError(
                f"{flag} cuts raw text into pieces, but the {name} has SentencePiece tokens "
                f"already, such as {' '.join(split_words(lines[0])[:3])!r}; leave it out"
            )
        return TokenReader("words", looks_raw(lines), model=model), ""
    if kind == "raw":
        return TokenReader("raw"), ""
    scheme = detect_scheme(lines) if kind == "auto" else kind
    if kind == "words":
        return TokenReader(), ""
    texts = lines
    if scheme != "words":
        texts = [READERS[scheme](line).text for line in lines]
    reader = TokenReader(scheme, looks_raw(texts) and scheme not in ("moses", "bpe"))
    if kind != "auto":
        return reader, ""
    if scheme != "words":
        return reader, f"the {name} is read as {_TOLD[scheme]}"
    if is_unspaced(texts):
        return reader, (
            f"warning: the {name} has no spaces between words, so links join whole phrases; "
            "--tokens raw splits it into words, --write-tokenized keeps them"
        )
    if reader.is_raw:
        return reader, (
            f"the {name} is raw text, links count what stands between spaces; "
            "--tokens raw counts words and marks"
        )
    return reader, ""


# ---- signs ----


def detect_scheme(lines: Iterable[str]) -> str:
    """Return the key of `READERS` that the lines show unmistakably, else "words"."""
    rows = [words for words in map(split_words, lines) if words]
    n_tokens = sum(map(len, rows))
    if not n_tokens:
        return "words"
    seen: Counter[str] = Counter()
    for words in rows:
        marked = [word for word in words if BLANK_MARK in word]
        seen["first"] += words[0].startswith(BLANK_MARK)
        seen["lines"] += bool(marked) or len(words) == 1
        seen["lone"] += words.count(BLANK_MARK)
        seen["joined"] += len(marked) - words.count(BLANK_MARK)
        seen["bpe"] += sum(word.endswith(BPE_MARK) and len(word) > 2 for word in words[:-1])
        seen["bpe_ends"] += words[-1].endswith(BPE_MARK)
        seen["entities"] += sum(1 for word in words if MOSES_ENTITY.search(word) or word == "@-@")
        seen["bare"] += sum(1 for word in words if _BARE_MARKS.search(word))
    n_marked = seen["lone"] + seen["joined"]
    if n_marked and seen["lines"] >= _LINES_WITH_MARKS * len(rows):
        begins = seen["first"] >= _LINES_WITH_MARKS * len(rows)
        often = n_marked >= _TOKENS_WITH_MARKS * n_tokens
        if seen["joined"] > seen["lone"] or begins:
            return "sentencepiece" if begins or often else "words"
        return "icu" if often and not seen["first"] > len(rows) / 10 else "words"
    if seen["bpe"] >= max(1, _TOKENS_WITH_BPE * n_tokens) and not seen["bpe_ends"]:
        return "bpe"
    # Moses leaves none of the marks that it escapes.
    return "moses" if seen["entities"] and not seen["bare"] else "words"


def looks_raw(lines: Iterable[str]) -> bool:
    """Tell whether marks are glued to words more often than they stand alone, or spaces are none.

    Tokenised text has few glued ones, as in `Mr.`, raw text has few that are free.
    """
    lines = list(lines)
    glued = free = 0
    for line in lines:
        for word in split_words(line.rstrip("\r")):
            if word[-1:].isalnum():
                continue
            if _FREE.match(word):
                free += 1
            elif _GLUED.search(word):
                glued += 1
    return glued > free or is_unspaced(lines)


def is_unspaced(lines: Iterable[str]) -> bool:
    """Tell whether most letters are of scripts written without spaces, and few spaces part them."""
    letters = unspaced = gaps = 0
    for line in lines:
        letters += sum(map(str.isalpha, line))
        unspaced += len(_UNSPACED.findall(line))
        gaps += len(_UNSPACED_GAP.findall(line))
    return 2 * unspaced > letters > 0 and unspaced >= _LONG_RUN * gaps

"""Read lines of the user's tokens: the plain text that they spell, and the place of each in it.

Knows how SentencePiece, ICU with kept spaces, Moses and subword-nmt write tokens. Does not choose
between them (`detection`), and does not split plain text into words (`tokenizer`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InputError
from ...protobuf import read_fields
from ...types import SideTokens, Span, Words
from ..words import split_words
from .spans import find_spans, join_spans, trim_span
from .tokenizer import find_word_spans, tokenize_line

BLANK_MARK = "\u2581"  # SentencePiece and Firefox Translations write it for a space
# What Moses' tokenizer writes for the marks that its decoder takes for syntax.
_MOSES_MARKS = {
    "&apos;": "'", "&quot;": '"', "&#91;": "[", "&#93;": "]", "&#124;": "|", "&bar;": "|",
    "&bra;": "[", "&ket;": "]", "&lt;": "<", "&gt;": ">", "&amp;": "&",
}  # fmt: skip
MOSES_ENTITY = re.compile("|".join(_MOSES_MARKS))
# A hyphen or slash inside a word, which Moses sets free: `well @-@ known`.
MOSES_JOINT = re.compile(r"@([^\w\s@]+)@")
BPE_MARK = "@@"  # subword-nmt ends a piece with it if the word goes on
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenLine(NamedTuple):
    """A line as its user sees it."""

    tokens: Words
    text: str
    spans: list[Span]  # of each token in the text; never going back


# ---- what tokens spell ----


def read_plain_tokens(line: str) -> TokenLine:
    """Read a line whose tokens stand between spaces and mean what they say."""
    tokens = split_words(line)
    return TokenLine(tokens, line, find_spans(tokens, line))


def read_blank_marks(line: str, dummy: bool = False) -> TokenLine:
    """Read tokens that keep the spaces of their text as ▁; with `dummy`, a first one is no space.

    `▁the ▁hou se .` and `the ▁ house .` both spell `the house.`; the token `▁` has no characters.
    """
    tokens = split_words(line)
    parts = _decode_bytes(tokens) if "<0x" in line else tokens
    text = "".join(parts).replace(BLANK_MARK, " ")
    skipped = 1 if dummy and text.startswith(" ") else 0
    text = text[skipped:]
    spans, end = [], -skipped
    for part in parts:
        start, end = end, end + len(part)
        spans.append(trim_span(text, max(start, 0), max(end, 0)))
    return TokenLine(tokens, text, _extend_byte_spans(tokens, spans) if "<0x" in line else spans)


def read_moses_tokens(line: str, pieces: bool = False) -> TokenLine:
    """Read tokens that Moses escaped: `&apos;s` is `'s`, `@-@` a hyphen; with `pieces`, those
    that end in @@ go on in the next.

    The text keeps its tokens apart, as `well - known` and `house .`.
    """
    tokens = split_words(line)
    text, spans, glued = "", [], True
    for place, token in enumerate(tokens):
        goes_on = pieces and token.endswith(BPE_MARK) and place + 1 < len(tokens)
        part = unescape_moses(token.removesuffix(BPE_MARK) if goes_on else token) or token
        text += part if glued else f" {part}"
        spans.append((len(text) - len(part), len(text)))
        glued = goes_on
    return TokenLine(tokens, text, spans)


def unescape_moses(token: str) -> str:
    """Return what Moses had before it escaped a token."""
    if "&" in token:
        token = MOSES_ENTITY.sub(lambda found: _MOSES_MARKS[found.group()], token)
    if token[:1] == "@" and (found := MOSES_JOINT.fullmatch(token)):
        return found.group(1)
    return token


def _decode_bytes(tokens: Words) -> list[str]:
    """Return the tokens with runs of byte pieces decoded: all characters of a run at its first.

    Pieces `<0xE2> <0x82> <0xAC>` spell `€`.
    """
    parts: list[str] = []
    run = bytearray()
    for token in chain(tokens, [""]):
        if found := _BYTE.fullmatch(token):
            run.append(int(found.group(1), 16))
            parts.append("")
            continue
        if run:
            parts[-len(run)] = run.decode("utf-8", "replace")
            run.clear()
        parts.append(token)
    return parts[:-1]


def _extend_byte_spans(tokens: Words, spans: list[Span]) -> list[Span]:
    """Give all byte pieces of a run the characters that were put at its first."""
    for place in range(1, len(tokens)):
        if _BYTE.fullmatch(tokens[place]) and _BYTE.fullmatch(tokens[place - 1]):
            spans[place] = spans[place - 1]
    return spans


# ---- SentencePiece models ----


class PieceReader:
    """Cuts raw lines into the pieces of a SentencePiece model; each keeps its place in the line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._model = load_piece_model(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return PieceReader, (self.path,)

    def __call__(self, line: str) -> TokenLine:
        tokens, spans, place = [], [], 0
        for piece, surface in _read_pieces(self._model.encode(line, out_type="serialized_proto")):
            tokens.append(piece)
            spans.append(trim_span(line, place, place + len(surface)))
            place += len(surface)
        for n in range(len(tokens) - 1, 0, -1):
            # A character's place is told with its last byte; all of them spell it.
            is_empty = spans[n - 1][0] == spans[n - 1][1]
            if is_empty and _BYTE.fullmatch(tokens[n]) and _BYTE.fullmatch(tokens[n - 1]):
                spans[n - 1] = spans[n]
        return TokenLine(tokens, line, spans)


def _read_pieces(message: bytes) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a SentencePieceText and the part of the line that each stands for.

    Read here, since what the Python classes of such a message are called changes with versions.
    """
    for field in read_fields(message):
        if field.number == 2 and not isinstance(field.value, int):
            parts = {
                part.number: bytes(part.value).decode("utf-8", "replace")
                for part in read_fields(field.value)
                if not isinstance(part.value, int)
            }
            yield parts.get(1, ""), parts.get(3, "")


def load_piece_model(path: str) -> Any:
    """Load a SentencePiece model, or say why that cannot be done."""
    import sentencepiece

    try:
        proto = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    model: Any = sentencepiece.SentencePieceProcessor()
    try:
        if not proto:
            raise ValueError("empty")
        model.LoadFromSerializedProto(proto)
    except (RuntimeError, ValueError):
        raise InputError(
            f"{path} is not a SentencePiece model; give the .model or .spm file that "
            "spm_train wrote"
        ) from None
    return model


# ---- sides ----

READERS: dict[str, Callable[[str], TokenLine]] = {
    "words": read_plain_tokens,
    "sentencepiece": partial(read_blank_marks, dummy=True),
    "icu": read_blank_marks,
    "moses": read_moses_tokens,
    "bpe": partial(read_moses_tokens, pieces=True),
}


@dataclass(frozen=True)
class TokenReader:
    """Makes of the lines of a side the words to align and, where they differ, the user's tokens.

    `scheme` is a key of `READERS` or "raw", where our own words are what the user gets.
    """

    scheme: str = "words"
    is_raw: bool = False  # the text has marks glued to words: our tokenizer finds the words in it
    language: str | None = None
    model: str | None = None  # SentencePiece cuts the lines, which are plain text

    def read_side(
        self, lines: Sequence[str], keep_spans: bool = False
    ) -> tuple[list[Words], SideTokens | None]:
        """Return the words of each line, and the tokens if they differ or spans are wanted."""
        if self.scheme == "raw":
            if not keep_spans:
                return [tokenize_line(line, self.language) for line in lines], None
            spans = [find_word_spans(line, self.language) for line in lines]
            words = [cut_text(line, found) for line, found in zip(lines, spans, strict=True)]
            return words, SideTokens(words, list(lines), spans)
        if self.scheme == "words" and not self.model and not self.is_raw:
            plain: list[Words] = list(map(split_words, lines))
            if not keep_spans:
                return plain, None
            places = [find_spans(found, line) for found, line in zip(plain, lines, strict=True)]
            return plain, SideTokens(plain, list(lines), places)
        read_line = _open_model(self.model) if self.model else READERS[self.scheme]
        rows = [read_line(line) for line in lines]
        texts = [row.text for row in rows]
        token_spans = [row.spans for row in rows]
        spans = [self.find_words(text) for text in texts]
        words = [cut_text(text, found) for text, found in zip(texts, spans, strict=True)]
        first, end = join_spans(texts, spans, token_spans)
        return words, SideTokens([row.tokens for row in rows], texts, token_spans, first, end)

    def find_words(self, text: str) -> list[Span]:
        """Return the spans of the words to align in the plain text of a line."""
        if self.is_raw:
            return find_word_spans(text, self.language)
        return find_spans(split_words(text), text)


def cut_text(text: str, spans: Sequence[Span]) -> Words:
    """Return the parts of a text."""
    return [text[start:end] for start, end in spans]


@cache
def _open_model(path: str) -> PieceReader:
    return PieceReader(path)

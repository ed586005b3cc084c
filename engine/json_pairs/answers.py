"""Align pairs that came as JSON and write each answer as a JSON object.

An answer is what `mx-align --format jsonl` writes for the pair, with the asker's id before it and,
if asked for, the matrices after it. It does not depend on the pairs that it was aligned with.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from ..align.pipeline import run_chunk
from ..errors import InputError
from ..jobs.corpus_options import CorpusOptions
from ..text.tokens.detection import plan_side
from ..text.tokens.schemes import TokenReader
from ..types import Links, Pairs, SideTokens, Span, Words
from .requests import PairRequest, Sentence

if TYPE_CHECKING:
    from ..aligner import Aligner

Offsets = Literal["codepoints", "utf16", "utf8"]
OFFSETS: tuple[Offsets, ...] = ("codepoints", "utf16", "utf8")
TOKENS = ("raw", "words", "auto", "sentencepiece", "icu", "moses", "bpe")
# Cells of a matrix that is sent: beyond it an answer of numbers has megabytes, and 300 x 300 words
# are a page of text.
MAX_SOFT_CELLS = 90_000


@dataclass(frozen=True)
class AnswerOptions:
    """What is wanted besides the links.

    `tokens` is how lines are read: "raw" counts our own words, others what stands between spaces.
    `offsets` is what spans count: Python's characters, JavaScript's and Java's, or bytes.
    """

    tokens: str = "raw"
    offsets: Offsets = "codepoints"
    soft: bool = False
    languages: tuple[str | None, str | None] = (None, None)
    one_based: bool = False
    reverse: bool = False


def answer_pairs(
    aligner: Aligner, requests: Sequence[PairRequest], options: AnswerOptions
) -> list[str]:
    """Return the answers, each a line of JSON."""
    answers = [""] * len(requests)
    # Lines and lists of words are read differently; pairs of one kind are aligned together.
    kinds = dict.fromkeys(request.kinds for request in requests)
    for kind in kinds:
        places = [k for k, request in enumerate(requests) if request.kinds == kind]
        chosen = [requests[k] for k in places]
        for place, answer in zip(places, _answer_kind(aligner, chosen, options), strict=True):
            answers[place] = answer
    return answers


def _answer_kind(
    aligner: Aligner, requests: list[PairRequest], options: AnswerOptions
) -> list[str]:
    """Answer pairs of which each side is always a line, or always words."""
    src, src_tokens = _read_side([request.src for request in requests], options, 0)
    tgt, tgt_tokens = _read_side([request.tgt for request in requests], options, 1)
    pairs = Pairs(0, src, tgt, src_tokens=src_tokens, tgt_tokens=tgt_tokens)
    settings = CorpusOptions(format="jsonl", one_based=options.one_based, reverse=options.reverse)
    render = aligner.make_renderer("jsonl", settings)

    def write_lines(found: Pairs, links: Links) -> list[str]:
        return render(_count_offsets(found, options.offsets), links)

    rows = run_chunk(aligner.make_recipe([write_lines], settings), pairs).items[0]
    softs = [""] * len(rows)
    if options.soft:
        both = zip(src, tgt, strict=True)
        softs = [f', "soft": {_describe_matrices(aligner, *sides)}' for sides in both]
    return [
        _add_parts(request, row, soft)
        for request, row, soft in zip(requests, rows, softs, strict=True)
    ]


def _add_parts(request: PairRequest, row: str, soft: str) -> str:
    """Put the id before what a row has, and the matrices after it."""
    start = f'{{"id": {json.dumps(request.id, ensure_ascii=False)}, ' if request.has_id else "{"
    return f"{start}{row[1:-1]}{soft}}}"


# ---- sentences ----


def _read_side(
    sentences: Sequence[Sentence], options: AnswerOptions, side: int
) -> tuple[list[Words], SideTokens | None]:
    """Return the words of sentences and, of lines, the user's tokens and where they are."""
    lines = [sentence for sentence in sentences if isinstance(sentence, str)]
    if len(lines) < len(sentences):
        return [sentence for sentence in sentences if not isinstance(sentence, str)], None
    language = options.languages[side]
    if options.tokens in ("raw", "words"):
        reader = TokenReader(options.tokens, language=language)
        return reader.read_side(lines, keep_spans=True)
    # Each line for itself: its answer must not depend on its neighbours.
    parts = [
        replace(plan_side(options.tokens, [line])[0], language=language).read_side(
            [line], keep_spans=True
        )
        for line in lines
    ]
    return _join_sides(parts)


def _join_sides(
    parts: list[tuple[list[Words], SideTokens | None]],
) -> tuple[list[Words], SideTokens]:
    """Return sides of single lines as one."""
    import numpy as np

    words, tokens, texts, spans, first, end = [], [], [], [], [], []
    for own_words, side in parts:
        assert side is not None
        words += own_words
        tokens += side.tokens
        texts += side.texts
        spans += side.spans
        same = np.arange(len(own_words[0]))
        first.append(same if side.first is None else side.first)
        end.append(same + 1 if side.end is None else side.end)
    return words, SideTokens(tokens, texts, spans, np.concatenate(first), np.concatenate(end))


# ---- places of characters ----


def _count_offsets(pairs: Pairs, offsets: Offsets) -> Pairs:
    """Return the pairs with spans that count what is asked for."""
    if offsets == "codepoints":
        return pairs
    sides = [
        None if side is None else replace(side, spans=list(map(convert, side.texts, side.spans)))
        for side in (pairs.src_tokens, pairs.tgt_tokens)
        for convert in [_SPAN_CONVERTERS[offsets]]
    ]
    return replace(pairs, src_tokens=sides[0], tgt_tokens=sides[1])


def _make_converter(size: Callable[[str], int]) -> Callable[[str, list[Span]], list[Span]]:
    def convert_spans(text: str, spans: list[Span]) -> list[Span]:
        """Return spans in units of which a character may have several."""
        if text.isascii():
            return spans
        places = [0, *accumulate(map(size, text))]
        return [(places[start], places[end]) for start, end in spans]

    return convert_spans


_SPAN_CONVERTERS: dict[str, Callable[[str, list[Span]], list[Span]]] = {
    "utf16": _make_converter(lambda char: 2 if ord(char) > 0xFFFF else 1),
    # One byte up to U+007F, two up to U+07FF, three up to U+FFFF.
    "utf8": _make_converter(lambda char: 1 + bisect_right((0x80, 0x800, 0x10000), ord(char))),
}


# ---- matrices ----


def _describe_matrices(aligner: Aligner, src: Words, tgt: Words) -> str:
    """Return all scores of a pair as JSON: matrices over the words that were aligned."""
    if len(src) * len(tgt) > MAX_SOFT_CELLS:
        raise InputError(
            f'"soft" is for up to {MAX_SOFT_CELLS:,} pairs of words, not {len(src)} x {len(tgt)}; '
            "leave it out, or split the sentences"
        )
    found = aligner.soft(src, tgt)
    names = ("scores", "fwd", "bwd", "src_null", "tgt_null")
    value: dict[str, Any] = {"src": list(found.src), "tgt": list(found.tgt)}
    value |= {name: getattr(found, name).round(4).tolist() for name in names}
    return json.dumps(value, ensure_ascii=False)


def split_sentences(
    texts: Sequence[str], language: str | None, offsets: Offsets
) -> list[dict[str, Any]]:
    """Return the words of texts and their places, as raw lines are split."""
    words, side = TokenReader("raw", language=language).read_side(texts, keep_spans=True)
    pairs = _count_offsets(Pairs(0, words, words, src_tokens=side), offsets)
    assert pairs.src_tokens is not None
    both = zip(words, pairs.src_tokens.spans, strict=True)
    return [{"words": list(own), "spans": spans} for own, spans in both]

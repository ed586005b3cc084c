"""mx-tokenize: splits raw text into words, as the aligner does. Has flags and messages only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from ..errors import MxError
from .flags import CommonFlags, FlagCommand, argument, flag

_HELP = """Split the lines of TEXT into words and marks, joined by spaces: one line for each line.
TEXT may be .gz or .zst, `-` is standard input.

`mx-align --tokens raw` splits text the same way by itself; this is for other tools, for mx-train,
and for the places of words in their line.

\b
Examples:
  mx-tokenize news.fr --lang fr -o news.tok.fr
  mx-tokenize news.fr --format jsonl -o news.jsonl      # {"text": ..., "words": ..., "spans": ...}
  mx-tokenize news.fr --format words --spans news.spans # 0-3 4-9 ... beside the words
"""
# Lines that are split before they are written.
_LINES = 1000


@dataclass(frozen=True)
class TokenizeFlags(CommonFlags):
    """The flags of mx-tokenize."""

    text: str = argument(required=True)
    lang: str | None = flag(
        None, "Language of the text, such as fr or fra: what languages do differently is done its "
        "way [default: from the name of the file].", group="Input", metavar="LANG",
    )  # fmt: skip
    errors: Literal["strict", "replace"] = flag(
        "strict", "Bytes that are not UTF-8: stop, or read as U+FFFD.", group="Input"
    )
    output: str = flag(
        "-", "The words [default: stdout].", group="Output", short="-o", metavar="OUT"
    )
    format: Literal["words", "jsonl"] = flag(
        "words", "Words between spaces; or an object for each line, with text, words and spans.",
        group="Output",
    )  # fmt: skip
    spans: str | None = flag(
        None, "Also write where words stand in their line, in characters: 0-3 4-9.",
        group="Output", metavar="FILE",
    )  # fmt: skip


def run_tokenize(flags: TokenizeFlags) -> None:
    """Split the text and write words and spans while it is read."""
    from ..text.files import open_output, read_lines

    language = find_language(flags)
    outputs = [name for name in (flags.output, flags.spans) if name is not None]
    check_outputs(flags.text, outputs)
    with ExitStack() as stack:
        files = [stack.enter_context(open_output(name, whole=True)) for name in outputs]
        lines = read_lines(flags.text, errors=flags.errors)
        while part := list(islice(lines, _LINES)):
            for file, made in zip(files, split_lines(part, language, flags.format), strict=False):
                file.write("".join(f"{line}\n" for line in made).encode())


def find_language(flags: TokenizeFlags) -> str | None:
    """Return the code of the language that was given, or that the name of the file tells."""
    from ..bundle.languages import guess_language, parse_language

    return parse_language(flags.lang) if flags.lang else guess_language(flags.text)


def check_outputs(text: str, outputs: list[str]) -> None:
    """Fail if a file would be written twice or over the text."""
    taken = {os.path.realpath(text)} if text != "-" else set()
    for name in outputs:
        path = name if name == "-" else os.path.realpath(name)
        if path in taken:
            raise MxError(f"{name} is the text or would be written twice; give another name")
        taken.add(path)


def split_lines(
    lines: list[str], language: str | None, kind: str
) -> tuple[Iterator[str], Iterator[str]]:
    """Return the lines of words, or objects, and those of spans."""
    from ..text.tokens.schemes import cut_text
    from ..text.tokens.tokenizer import find_word_spans

    spans = [find_word_spans(line, language) for line in lines]
    words = [cut_text(line, found) for line, found in zip(lines, spans, strict=True)]
    first: Iterator[str] = map(" ".join, words)
    if kind == "jsonl":
        rows = zip(lines, words, spans, strict=True)
        first = (
            json.dumps({"text": text, "words": own, "spans": places}, ensure_ascii=False)
            for text, own, places in rows
        )
    return first, (" ".join(f"{start}-{end}" for start, end in found) for found in spans)


main = FlagCommand("mx-tokenize", TokenizeFlags, run_tokenize, help=_HELP)

if __name__ == "__main__":
    main(prog_name="mx-tokenize")

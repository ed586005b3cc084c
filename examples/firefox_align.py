"""Align a corpus as the pipeline of Firefox Translations calls its `align.py`.

    python examples/firefox_align.py --corpus_src X.zst --corpus_trg Y.zst --output_path aln.zst

Writes Pharaoh lines that count tokens, of which words are some and `▁`, for each blank, the others;
and, with --tokenized_src and --tokenized_trg, these tokens. A literal `|||` in the text is text.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from mx_align import StatisticalAligner
from mx_align.engine.dropin import priors as prior_files
from mx_align.engine.text.files import open_output, read_lines, read_pairs
from mx_align.engine.text.tokens.tokenizer import find_word_spans

BLANK = "\u2581"


def split_line(line: str) -> tuple[list[str], list[str], list[int]]:
    """Return the words of a line, its tokens, and the token that each word is.

    "a b." has the words a, b and ., and the tokens a, ▁, b and .
    """
    words: list[str] = []
    tokens: list[str] = []
    places: list[int] = []
    end = 0
    for start, stop in find_word_spans(line):
        if start > end and end:
            tokens.append(BLANK)
        places.append(len(tokens))
        words.append(line[start:stop])
        tokens.append(line[start:stop])
        end = stop
    return words, tokens, places


def read_words(src: Path, trg: Path, side: int) -> Iterator[list[str]]:
    """Yield the words of one side; checks that both have as many lines."""
    for pair in read_pairs(src, trg):
        yield split_line(pair[side])[0]


def align_corpus(arguments: argparse.Namespace) -> None:
    """Learn from the corpus and from priors, then write links, tokens and priors."""
    src, trg = arguments.corpus_src, arguments.corpus_trg
    sides = read_words(src, trg, 0), read_words(src, trg, 1)
    aligner = StatisticalAligner.learn(*sides, lowercase=True)
    if arguments.priors_input_path:
        known = prior_files.read_priors(read_lines(arguments.priors_input_path))
        aligner.model = prior_files.add_priors(aligner.model, known)
    found = aligner.align(read_words(src, trg, 0), read_words(src, trg, 1))
    targets = [arguments.output_path, arguments.tokenized_src, arguments.tokenized_trg]
    links = []
    with ExitStack() as stack:
        files = [
            stack.enter_context(open_output(path, whole=True)) if path else None for path in targets
        ]
        for pair, alignment in zip(read_pairs(src, trg), found, strict=True):
            (_, src_tokens, src_places), (_, trg_tokens, trg_places) = map(split_line, pair)
            line = " ".join(f"{src_places[i]}-{trg_places[j]}" for i, j in alignment)
            texts = line, " ".join(src_tokens), " ".join(trg_tokens)
            for file, text in zip(files, texts, strict=True):
                if file:
                    file.write(f"{text}\n".encode())
            if arguments.priors_output_path:
                links.append((alignment.src, alignment.tgt, set(alignment.links)))
    if arguments.priors_output_path:
        columns = list(zip(*links, strict=True))
        text = io.StringIO()
        prior_files.write_priors(text, prior_files.count_priors(*columns, columns[2]))
        with open_output(arguments.priors_output_path, whole=True) as file:
            file.write(text.getvalue().encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("corpus_src", "corpus_trg", "output_path"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("tokenized_src", "tokenized_trg", "priors_input_path", "priors_output_path"):
        parser.add_argument(f"--{name}", type=Path)
    align_corpus(parser.parse_args())


if __name__ == "__main__":
    main()

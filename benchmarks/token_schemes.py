"""Measures whether links are as good on other tokens of the same text as on its words.

The gold text is written as SentencePiece tokens, ICU tokens with kept spaces and pieces that end in
@@; links found for these are mapped back to the words and scored there.

    python -m mx_align.benchmarks.token_schemes en-fr.mx test.en test.fr test.talp \\
        --text train.en.gz train.fr.gz --name en-fr

`--text` is what the SentencePiece models are learned from (8,000 pieces a side).
"""

import argparse
import io
import tempfile
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path

import sentencepiece

from ..engine.aligner import Aligner
from ..engine.links.link_files import read_link_file
from ..engine.links.scoring import score_links
from ..engine.text.files import read_lines, read_pairs
from ..engine.text.tokens.schemes import BLANK_MARK, PieceReader
from ..engine.text.tokens.spans import find_spans, join_spans
from ..engine.text.words import split_words
from . import records

Line = tuple[list[str], list[set[int]]]  # tokens, and the words that each lies on
SCHEMES = ("words", "sentencepiece", "icu", "bpe")


def learn_pieces(text: str, size: int, folder: Path) -> PieceReader:
    """Learn a SentencePiece model of the first 100,000 lines of a file."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=islice(read_lines(text), 100_000), model_writer=written,
        vocab_size=size, model_type="unigram", character_coverage=1.0, byte_fallback=True,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    path = folder / f"{Path(text).name}.model"
    path.write_bytes(written.getvalue())
    return PieceReader(str(path))


def cut_words(words: Sequence[str], scheme: str, pieces: PieceReader) -> Line:
    """Write the words of a line as tokens of a scheme."""
    if scheme == "words":
        return list(words), [{place} for place in range(len(words))]
    if scheme == "icu":
        tokens = [token for word in words for token in (word, BLANK_MARK)][:-1]
        return tokens, [{n // 2} if n % 2 == 0 else set() for n in range(len(tokens))]
    line = " ".join(words)
    row = pieces(line)
    first, end = join_spans([line], [find_spans(words, line)], [row.spans])
    places: list[set[int]] = [set() for _ in row.tokens]
    for word, (start, stop) in enumerate(zip(first.tolist(), end.tolist(), strict=True)):
        for token in range(start, stop):
            places[token].add(word)
    if scheme == "sentencepiece":
        return list(row.tokens), places
    # Pieces end in @@ if the word goes on; a mark that stands alone is none.
    spelled = [(line[a:b], own) for (a, b), own in zip(row.spans, places, strict=True) if a < b]
    goes_on = [bool(own & after) for (_, own), (_, after) in pairwise([*spelled, ("", set())])]
    tokens = [text + "@@" * on for (text, _), on in zip(spelled, goes_on, strict=True)]
    return tokens, [own for _, own in spelled]


def align_scheme(
    aligner: Aligner, sides: Sequence[Sequence[Line]]
) -> tuple[str, list[set[tuple[int, int]]]]:
    """Align the tokens as files; return what was said of them and the links of the words."""
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        names = [str(Path(folder) / name) for name in ("src", "tgt", "links")]
        for name, side in zip(names, sides, strict=False):
            Path(name).write_text("".join(" ".join(tokens) + "\n" for tokens, _ in side), "utf-8")
        aligner.align_files(*names, on_note=notes.append)
        found = []
        for line, (_, src), (_, tgt) in zip(read_lines(names[2]), *sides, strict=True):
            links = (tuple(map(int, link.split("-"))) for link in line.split())
            found.append({(a, b) for i, j in links for a in src[i] for b in tgt[j]})
    return "; ".join(notes), found


def main() -> None:
    """Print AER, precision and recall for each way to write the tokens."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("bundle", "src", "tgt", "gold"):
        command.add_argument(name)
    command.add_argument("--text", nargs=2, required=True, help="what pieces are learned from")
    command.add_argument("--pieces", type=int, default=8000)
    command.add_argument("--langs")
    command.add_argument("--name", help="of its row in the JSON file [not kept]")
    command.add_argument("--json", type=Path, default=records.RESULTS / "token_schemes.json")
    given = command.parse_args()
    text = [[split_words(side) for side in pair] for pair in read_pairs(given.src, given.tgt)]
    gold = read_link_file(given.gold).fit_length(len(text), given.src).sentences
    aligner = Aligner.load(given.bundle, langs=given.langs, backend="cpu")
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        models = [learn_pieces(path, given.pieces, Path(folder)) for path in given.text]
        for scheme in SCHEMES:
            sides = [[cut_words(pair[n], scheme, models[n]) for pair in text] for n in range(2)]
            note, links = align_scheme(aligner, sides)
            found = score_links(links, gold)
            row = {"aer": found.aer, "precision": found.precision, "recall": found.recall}
            rows[scheme] = {name: round(100 * value, 2) for name, value in row.items()}
            print(f"{scheme:14}", rows[scheme], note)
    if given.name:
        about = records.describe_circumstances(("onnxruntime", "sentencepiece"))
        run = {"signature": aligner.signature(), "pieces": given.pieces, **about, "schemes": rows}
        records.add_run(given.json, given.name, run)


if __name__ == "__main__":
    main()

"""Text to measure a graph on: pairs as pieces with their words, batches of them, links of a graph.

Does not judge the links.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...engine.runtime.model_graph import INPUTS
from ...engine.runtime.onnx_cpu import CPU, start_session
from ...engine.runtime.reference import pool_words
from ...engine.text.files import read_pairs
from ...engine.text.pieces import PieceTokenizer
from ...engine.text.words import split_words
from ...engine.types import Link
from ...trainer.data.batches import group_by_length
from ...trainer.data.token_cache import CachedSide, TokenCache
from ..graph.builder import Feeds

BATCH_PIECES = 2000  # of the longer side


@dataclass(frozen=True)
class ProbeSentence:
    """One side of a pair."""

    ids: np.ndarray  # (pieces,) int32
    words: np.ndarray  # (pieces,) index of each piece's word
    n_words: int


@dataclass(frozen=True)
class Probe:
    """Sentence pairs, and a few words on what they are."""

    pairs: list[tuple[ProbeSentence, ProbeSentence]]
    name: str

    def __len__(self) -> int:
        return len(self.pairs)


def read_probe_files(
    files: Sequence[str], tokenizers: Sequence[PieceTokenizer], name: str, limit: int | None = None
) -> Probe:
    """Read the first pairs of two parallel files, all if `limit` is None."""

    def encode_line(line: str, tokenizer: PieceTokenizer) -> ProbeSentence:
        words = split_words(line)
        ids, index = tokenizer.encode(words)
        return ProbeSentence(np.array(ids, np.int32), np.array(index, np.int64), len(words))

    pairs = [
        (encode_line(s, tokenizers[0]), encode_line(t, tokenizers[1]))
        for s, t in islice(read_pairs(*files), limit)
    ]
    return Probe(pairs, f"{len(pairs)} pairs of {name}")


def read_validation_text(run: Path, limit: int) -> Probe | None:
    """Read pairs of the run's validation text, if it was kept."""
    cache = TokenCache.open(run / "cache" / "valid")
    if cache is None or not len(cache):
        return None

    def read_sentence(side: CachedSide, i: int) -> ProbeSentence:
        words = side.words(i)
        return ProbeSentence(side.pieces(i).astype(np.int32), words, int(words[-1]) + 1)

    rows = range(min(limit, len(cache)))
    pairs = [(read_sentence(cache.src, i), read_sentence(cache.tgt, i)) for i in rows]
    return Probe(pairs, f"{len(pairs)} pairs of the run's validation text")


# ---- running a graph ----


def open_session(model: bytes | onnx.ModelProto) -> Any:
    """Open a graph in ONNX Runtime on one CPU thread."""
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return start_session(data, [CPU], "the exported model")


def make_feeds(src: list[np.ndarray], tgt: list[np.ndarray]) -> Feeds:
    """Make a batch of pairs of piece ids, padded with 0."""
    batch: list[np.ndarray] = []
    for rows in (src, tgt):
        lengths = np.array([len(row) for row in rows], np.int32)
        ids = np.zeros((len(rows), max(1, int(lengths.max()))), np.int32)
        for place, row in zip(ids, rows, strict=True):
            place[: len(row)] = row
        batch += [ids, lengths]
    return dict(zip(INPUTS, batch, strict=True))


def batch_probe(probe: Probe) -> Iterator[tuple[np.ndarray, Feeds]]:
    """Yield the rows of each batch and what to feed; pairs with an empty side are left out."""
    lengths = np.array([[len(side.ids) for side in pair] for pair in probe.pairs]).reshape(-1, 2)
    full = np.flatnonzero(lengths.all(axis=1))
    if not len(full):
        return
    for group in group_by_length(lengths[full, 0], lengths[full, 1], BATCH_PIECES):
        rows = full[group]
        src, tgt = zip(*(probe.pairs[i] for i in rows), strict=True)
        yield rows, make_feeds([s.ids for s in src], [t.ids for t in tgt])


def compute_word_values(
    graph: onnx.ModelProto, probe: Probe, outputs: tuple[str, ...] = ("scores",)
) -> list[list[np.ndarray]]:
    """Return for each pair the named outputs of a graph, by words instead of pieces.

    Of (S, T) outputs the largest value of each word pair, of NULL's a word's lowest.
    """
    session = open_session(graph)
    found = [[np.zeros((s.n_words, t.n_words), np.float32)] * len(outputs) for s, t in probe.pairs]
    for rows, batch in batch_probe(probe):
        results = session.run(list(outputs), batch)
        for place, i in enumerate(rows):
            src, tgt = probe.pairs[i]
            for k, (name, values) in enumerate(zip(outputs, results, strict=True)):
                if values.ndim == 3:
                    cells = values[place, : len(src.words), : len(tgt.words)]
                    found[i][k] = pool_words(cells, src.words, tgt.words)
                else:
                    side = tgt if name == "fwd_null" else src
                    found[i][k] = np.ones(side.n_words, np.float32)
                    np.minimum.at(found[i][k], side.words, values[place][: len(side.ids)])
    return found


def find_probe_links(graph: onnx.ModelProto, probe: Probe, threshold: float) -> list[set[Link]]:
    """Return the word pairs of each sentence pair whose score reaches the threshold."""
    scores = (one for (one,) in compute_word_values(graph, probe))
    return [{(int(i), int(j)) for i, j in np.argwhere(one >= threshold)} for one in scores]

"""Text to measure a graph on: pairs as pieces with their words, batches of them, links of a graph.

Knows ONNX Runtime and arrays; what follows from the links is the matter of others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import onnx

from ...engine.errors import MxError
from ...engine.runtime.reference import pool_words
from ...engine.text.files import read_pairs
from ...engine.text.pieces import PieceTokenizer
from ...engine.text.words import split_words
from ...trainer.data.batches import group_by_length
from ...trainer.data.token_cache import TokenCache
from ..graph.mask_align import INPUTS

Feeds = dict[str, np.ndarray]
Links = list[set[tuple[int, int]]]

BUDGET = 2000  # pieces of the longer side in a batch


@dataclass(frozen=True)
class Sentence:
    ids: np.ndarray  # (pieces,) int32
    words: np.ndarray  # (pieces,) index of each piece's word
    n_words: int


@dataclass(frozen=True)
class Probe:
    """Sentence pairs, and a few words on what they are."""

    src: list[Sentence]
    tgt: list[Sentence]
    name: str

    def __len__(self) -> int:
        return len(self.src)

    def part(self, rows: slice) -> "Probe":
        return Probe(self.src[rows], self.tgt[rows], self.name)


def from_files(
    src: str,
    tgt: str,
    tokenizers: tuple[PieceTokenizer, PieceTokenizer],
    limit: int | None,
    name: str,
) -> Probe:
    """The first pairs of two parallel files, all if `limit` is None."""
    pairs = [(split_words(s), split_words(t)) for s, t in islice(read_pairs(src, tgt), limit)]
    sides = [[sentence(tokenizers[side], pair[side]) for pair in pairs] for side in (0, 1)]
    return Probe(sides[0], sides[1], name)


def sentence(tokenizer: PieceTokenizer, words: list[str]) -> Sentence:
    ids, index = tokenizer.encode(words)
    return Sentence(np.array(ids, np.int32), np.array(index, np.int64), len(words))


def from_run(run: Path, limit: int) -> Probe | None:
    """Pairs of the run's validation text, if it was kept."""
    cache = TokenCache.open(run / "cache" / "valid")
    if cache is None or not len(cache):
        return None
    rows = range(min(limit, len(cache)))
    sides = [
        [
            Sentence(side.pieces(i).astype(np.int32), side.words(i), int(side.words(i)[-1]) + 1)
            for i in rows
        ]
        for side in (cache.src, cache.tgt)
    ]
    return Probe(sides[0], sides[1], f"{len(rows)} pairs of the run's validation text")


def feeds(src: list[np.ndarray], tgt: list[np.ndarray]) -> Feeds:
    """A batch of pairs of piece ids, padded with 0."""
    batch: list[np.ndarray] = []
    for rows in (src, tgt):
        lengths = np.array([len(row) for row in rows], np.int32)
        ids = np.zeros((len(rows), max(1, int(lengths.max()))), np.int32)
        for place, row in zip(ids, rows, strict=True):
            place[: len(row)] = row
        batch += [ids, lengths]
    return dict(zip(INPUTS, batch, strict=True))


def batches(probe: Probe) -> Iterator[tuple[np.ndarray, Feeds]]:
    """The rows of each batch and what to feed; pairs with an empty side are left out."""
    full = np.array(
        [i for i in range(len(probe)) if len(probe.src[i].ids) and len(probe.tgt[i].ids)]
    )
    if not len(full):
        return
    lengths = [np.array([len(side[i].ids) for i in full]) for side in (probe.src, probe.tgt)]
    for group in group_by_length(lengths[0], lengths[1], BUDGET):
        rows = full[group]
        yield rows, feeds([probe.src[i].ids for i in rows], [probe.tgt[i].ids for i in rows])


def open_session(model: bytes | onnx.ModelProto) -> "object":
    """An ONNX Runtime session on one CPU thread."""
    import onnxruntime

    data = model if isinstance(model, bytes) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no base class of their own
        raise MxError(f"ONNX Runtime cannot load the graph: {error}") from error


def pool(values: np.ndarray, src: Sentence, tgt: Sentence) -> np.ndarray:
    """Piece values (S, T) to word values: the largest of each word pair."""
    return pool_words(values[: len(src.words), : len(tgt.words)], src.words, tgt.words)


def word_values(
    session: "object", probe: Probe, outputs: tuple[str, ...] = ("scores",)
) -> list[list[np.ndarray]]:
    """For each pair the named outputs: (S, T) ones as word values, NULL's as a word's lowest."""
    found = [
        [np.zeros((s.n_words, t.n_words), np.float32) for _ in outputs]
        for s, t in zip(probe.src, probe.tgt, strict=True)
    ]
    for rows, batch in batches(probe):
        results = session.run(list(outputs), batch)  # type: ignore[attr-defined]
        for place, i in enumerate(rows):
            src, tgt = probe.src[i], probe.tgt[i]
            for k, (name, values) in enumerate(zip(outputs, results, strict=True)):
                if values.ndim == 3:
                    found[i][k] = pool(values[place], src, tgt)
                else:
                    side = tgt if name == "fwd_null" else src
                    found[i][k] = np.ones(side.n_words, np.float32)
                    np.minimum.at(found[i][k], side.words, values[place][: len(side.ids)])
    return found


def links(scores: list[np.ndarray], threshold: float) -> Links:
    """Word pairs that reach the threshold."""
    return [{(int(i), int(j)) for i, j in np.argwhere(one >= threshold)} for one in scores]


def link_f1(first: Links, second: Links) -> float:
    """Agreement of two sets of links; 1 if both are empty."""
    both = sum(len(a & b) for a, b in zip(first, second, strict=True))
    total = sum(len(a) + len(b) for a, b in zip(first, second, strict=True))
    return 2 * both / total if total else 1.0

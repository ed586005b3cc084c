"""Lines as words and words as pieces: where a line is cut, and which ids a model sees.
Knows SentencePiece; files are the matter of `files`, what the ids mean that of the model."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece

from ..errors import BundleError, InputError
from ..types import Pieces

MARK = "\u2581"  # SentencePiece puts it before a word

# Known words are forgotten all at once when there are this many, or this many pieces: frequent
# ones come back with the next lines. A known word takes about 210 bytes, so the two languages
# together stay near 110 MB; the bound on pieces is for texts whose words are very long.
MAX_WORDS = 1 << 18
MAX_PIECES = 1 << 21


def split(line: str) -> list[str]:
    """The words of a line: what stands between ASCII spaces and tabs, and nothing else."""
    words = (line.replace("\t", " ") if "\t" in line else line).split(" ")
    return [word for word in words if word] if "" in words else words


def visible(word: str, lowercase: bool, fold_accents: bool = False) -> str:
    """What a model sees of a word: a line end of two characters leaves no trace, and half of a
    surrogate pair, which no file can hold, becomes a question mark. With `fold_accents` letters
    lose their accents, but for a word that would have nothing left."""
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


class _Rows(dict[str, int]):
    """Word -> row of the piece table; a new word gets the next row and is noted in `fresh`."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[str] = []

    def __missing__(self, word: str) -> int:
        row = self[word] = len(self)
        self.fresh.append(word)
        return row


class _Table:
    """The ids of row r at ends[r]:ends[r + 1]. Only ever grows, in doubling arrays, so arrays
    taken under the lock can be read after it."""

    def __init__(self) -> None:
        self.n_rows = self.n_ids = 0
        self.ids = np.zeros(1024, np.int32)
        self.ends = np.zeros(1024, np.int64)

    def append(self, rows: list[list[int]]) -> None:
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        n_ids, n_rows = self.n_ids + int(counts.sum()), self.n_rows + len(rows)
        self.ids = _grown(self.ids, n_ids)
        self.ends = _grown(self.ends, n_rows + 1)
        self.ids[self.n_ids : n_ids] = np.fromiter(chain.from_iterable(rows), np.int32)
        self.ends[self.n_rows + 1 : n_rows + 1] = self.n_ids + np.cumsum(counts)
        self.n_ids, self.n_rows = n_ids, n_rows


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    if size <= len(array):
        return array
    grown = np.zeros(max(size, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown


class Tokenizer:
    """Words to piece ids. Each word is encoded by itself, so a piece never spans two words, and
    every word has a piece. May be shared between threads."""

    def __init__(
        self, proto: bytes, *, lowercase: bool = False, fold_accents: bool = False
    ) -> None:
        self.proto = proto
        self.lowercase = lowercase
        self.fold_accents = fold_accents
        self._model: Any = sentencepiece.SentencePieceProcessor()
        self._model.LoadFromSerializedProto(proto)
        self.vocab_size: int = self._model.vocab_size()
        self._unk: int = self._model.unk_id()
        self._lock = threading.Lock()
        self._rows, self._table = _Rows(), _Table()

    @classmethod
    def load(
        cls, spm: Path | bytes, *, lowercase: bool = False, fold_accents: bool = False
    ) -> Tokenizer:
        """From a SentencePiece model file or its bytes."""
        name = "the SentencePiece model" if isinstance(spm, bytes) else str(spm)
        try:
            proto = spm if isinstance(spm, bytes) else Path(spm).read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror}") from None
        try:
            if not proto:
                raise ValueError("empty")
            return cls(proto, lowercase=lowercase, fold_accents=fold_accents)
        except (RuntimeError, ValueError) as error:
            raise BundleError(f"{name} is not a SentencePiece model; make it again") from error

    def word_starts(self) -> npt.NDArray[np.float32]:
        """(vocabulary,): 1 for the pieces that begin a word, else 0.

        Where pieces do not tell, as in a model without the mark before words, all of them may.
        """
        pieces = [self._model.id_to_piece(i) for i in range(self.vocab_size)]
        marked = [piece.startswith(MARK) or i == self._unk for i, piece in enumerate(pieces)]
        told = self._model.encode("a", out_type=str)[0].startswith(MARK)
        return np.array(marked if told else [True] * len(pieces), np.float32)

    def encode(self, words: Sequence[str]) -> tuple[list[int], list[int]]:
        """The piece ids of one sentence, and for each piece the index of its word."""
        pieces = self.encode_many([words])
        return pieces.ids.tolist(), pieces.words.tolist()

    def encode_many(self, sentences: Iterable[Sequence[str]]) -> Pieces:
        """Many sentences at once, which is far faster: a dict look-up per word, NumPy the rest."""
        sentences = list(sentences)
        n_words = np.fromiter(map(len, sentences), np.int32, len(sentences))
        total = int(n_words.sum())
        with self._lock:
            if len(self._rows) > MAX_WORDS or self._table.n_ids > MAX_PIECES:
                self._rows, self._table = _Rows(), _Table()
            flat = chain.from_iterable(sentences)
            try:
                rows = np.fromiter(map(self._rows.__getitem__, flat), np.int64, total)
                self._learn()
            except BaseException:  # the rows may name words that were never encoded
                self._rows, self._table = _Rows(), _Table()
                raise
            ids, ends = self._table.ids, self._table.ends
        starts = ends[rows]
        counts = ends[rows + 1] - starts  # (words,) pieces of each word
        piece_ends = np.zeros(total + 1, np.int64)
        np.cumsum(counts, out=piece_ends[1:])
        # Place k of the flat result is place k - piece_ends[w] of its word w in the table.
        places = np.repeat(starts - piece_ends[:-1], counts)
        places += np.arange(len(places))
        word_ends = np.zeros(len(sentences) + 1, np.int64)
        np.cumsum(n_words, out=word_ends[1:])
        index = np.arange(total, dtype=np.int32)
        index -= np.repeat(word_ends[:-1].astype(np.int32), n_words)
        return Pieces(ids[places], np.repeat(index, counts), piece_ends[word_ends], n_words)

    def _learn(self) -> None:
        """Append the pieces of the words met for the first time to the table."""
        if fresh := self._rows.fresh:
            seen = [visible(word, self.lowercase, self.fold_accents) for word in fresh]
            # A list starts a thread, 65 us: worth it only for many words.
            many = len(seen) > 32
            encode = self._model.encode
            encoded = encode(seen, num_threads=1) if many else [encode(word) for word in seen]
            self._table.append([ids or [self._unk] for ids in encoded])
            self._rows.fresh = []

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.proto, self.lowercase, self.fold_accents)


def _rebuild(proto: bytes, lowercase: bool, fold_accents: bool) -> Tokenizer:
    return Tokenizer(proto, lowercase=lowercase, fold_accents=fold_accents)

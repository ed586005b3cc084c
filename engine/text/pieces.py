"""Encode words as the SentencePiece ids that a model reads.

Does not split lines into words, nor know what a model makes of the ids.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece

from ..errors import BundleError, InputError
from ..types import Pieces
from .words import normalize_word

WORD_MARK = "\u2581"  # SentencePiece puts it before a word

# Known words are forgotten all at once when there are this many, or this many pieces: frequent
# ones come back with the next lines. A known word takes about 210 bytes, so the two languages
# together stay near 110 MB; the bound on pieces is for texts whose words are very long.
MAX_KNOWN_WORDS = 1 << 18
MAX_KNOWN_PIECES = 1 << 21
# Characters of a word that has pieces; a longer one, which is data rather than a word, counts as
# unknown. Links to it are still found.
MAX_WORD = 10_000


class PieceTokenizer:
    """Words to piece ids. Each word is encoded by itself, so a piece never spans two words, and
    every word has a piece. May be shared between threads."""

    def __init__(
        self, spm: Path | bytes, *, lowercase: bool = False, fold_accents: bool = False
    ) -> None:
        """Load a SentencePiece model from a file or from the bytes of one."""
        name = "the SentencePiece model" if isinstance(spm, bytes) else str(spm)
        self._model: Any = sentencepiece.SentencePieceProcessor()
        try:
            self.proto = spm if isinstance(spm, bytes) else Path(spm).read_bytes()
            if not self.proto:
                raise ValueError("empty")
            self._model.LoadFromSerializedProto(self.proto)
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror}") from None
        except (RuntimeError, ValueError) as error:
            raise BundleError(f"{name} is not a SentencePiece model; make it again") from error
        self.lowercase = lowercase
        self.fold_accents = fold_accents
        self.vocab_size: int = self._model.vocab_size()
        self._unk: int = self._model.unk_id()
        self._lock = threading.Lock()
        self._known = _KnownWords()

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(PieceTokenizer, lowercase=self.lowercase, fold_accents=self.fold_accents)
        return make, (self.proto,)

    def word_starts(self) -> npt.NDArray[np.float32]:
        """Return (vocabulary,): 1 for the pieces that begin a word, else 0.

        Where pieces do not tell, as in a model without the mark before words, all of them may.
        """
        pieces = [self._model.id_to_piece(i) for i in range(self.vocab_size)]
        marked = [piece.startswith(WORD_MARK) or i == self._unk for i, piece in enumerate(pieces)]
        has_marks = self._model.encode("a", out_type=str)[0].startswith(WORD_MARK)
        return np.array(marked if has_marks else [True] * len(pieces), np.float32)

    def encode(self, words: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the piece ids of one sentence, and for each piece the index of its word."""
        pieces = self.encode_many([words])
        return pieces.ids.tolist(), pieces.words.tolist()

    def encode_many(self, sentences: Iterable[Sequence[str]]) -> Pieces:
        """Encode many sentences at once: a dict look-up per word, NumPy does the rest."""
        sentences = list(sentences)
        n_words = np.fromiter(map(len, sentences), np.int32, len(sentences))
        total = int(n_words.sum())
        with self._lock:
            if len(self._known) > MAX_KNOWN_WORDS or self._known.n_ids > MAX_KNOWN_PIECES:
                self._known = _KnownWords()
            flat = chain.from_iterable(sentences)
            try:
                rows = np.fromiter(map(self._known.__getitem__, flat), np.int64, total)
                self._learn_words()
            except BaseException:  # the rows may name words that were never encoded
                self._known = _KnownWords()
                raise
            ids, ends = self._known.ids, self._known.ends
        # Say the table knows "a" as row 0 with ids [5] and "bird" as row 1 with ids [7 8], so that
        # its ids are [5 7 8] and its ends [0 1 3]. The sentences "a" and "bird a" then have
        #     rows       [0 1 0]    counts     [1 2 1]   starts       [0 1 0]
        #     places     [0 1 2 0]  ids        [5 7 8 5] piece_ends   [0 1 3 4]
        #     word_ends  [0 1 3]    words      [0 0 0 1] offsets      [0 1 4]
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

    def _learn_words(self) -> None:
        """Encode the words met for the first time."""
        if new := self._known.new:
            seen = [
                normalize_word(word, self.lowercase, self.fold_accents)
                if len(word) <= MAX_WORD
                else ""
                for word in new
            ]
            encode = self._model.encode
            # A list starts a thread, 65 us: worth it only for many words.
            many = len(seen) > 32
            encoded = encode(seen, num_threads=1) if many else [encode(word) for word in seen]
            self._known.append([ids or [self._unk] for ids in encoded])


class _KnownWords(dict[str, int]):
    """Word -> row r of a table whose ids are at ends[r]:ends[r + 1].

    A new word gets the next row and is noted in `new`. The table only ever grows, in doubling
    arrays, so arrays taken under the lock can be read after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []
        self.n_ids = 0
        self.ids = np.zeros(1024, np.int32)
        self.ends = np.zeros(1024, np.int64)

    def __missing__(self, word: str) -> int:
        row = self[word] = len(self)
        self.new.append(word)
        return row

    def append(self, rows: list[list[int]]) -> None:
        """Add the ids of the new words."""
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        n_ids, first = self.n_ids + int(counts.sum()), len(self) - len(rows)
        self.ids = _grow_array(self.ids, n_ids)
        self.ends = _grow_array(self.ends, len(self) + 1)
        self.ids[self.n_ids : n_ids] = np.fromiter(chain.from_iterable(rows), np.int32)
        self.ends[first + 1 : len(self) + 1] = self.n_ids + np.cumsum(counts)
        self.n_ids, self.new = n_ids, []


def _grow_array(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return an array of at least that size that begins with this one."""
    return array if size <= len(array) else np.resize(array, max(size, 2 * len(array)))

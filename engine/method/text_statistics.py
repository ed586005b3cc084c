"""Learns the statistics of a whole text, whatever part of it is aligned, and keeps a sample of it.

Does not know models, and does not decide whether statistics are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..errors import InputError
from ..statistical.learning import learn_model
from ..statistical.model import StatisticalModel
from ..statistical.settings import LearningSettings
from ..text.corpus import ChunkReader, LineSource, ParallelFiles
from ..text.spool import SpooledLines
from ..text.tokens.detection import TokenPlan
from ..types import Pairs, Words

# Pairs held while learning.
_CHUNK = 1 << 15
# Words of the longest pairs that few pairs are learned from: those that can be aligned.
_LONGEST = 4096
# Pairs of a sample; what is measured on it moves by less than 0.01 with other ones.
SAMPLE = 500


@dataclass
class EvenSample:
    """Up to `size` pairs spread evenly over a text: of n pairs every k-th, from the first on."""

    size: int = SAMPLE
    n_read: int = 0
    pairs: list[tuple[Words, Words]] = field(default_factory=list)
    _every: int = 1

    def watch(self, chunks: Iterable[Pairs]) -> Iterator[Pairs]:
        """Yield the chunks, and keep some of their pairs."""
        for chunk in chunks:
            first = -self.n_read % self._every
            self.n_read += len(chunk.src)
            kept = slice(first, None, self._every)
            self.pairs += zip(chunk.src[kept], chunk.tgt[kept], strict=True)
            while len(self.pairs) > self.size:
                self.pairs = self.pairs[::2]
                self._every *= 2
            yield chunk

    def as_chunk(self) -> Pairs:
        """Return the sample as a chunk."""
        return Pairs(0, [src for src, _ in self.pairs], [tgt for _, tgt in self.pairs])


def open_twice(source: ParallelFiles) -> tuple[LineSource, LineSource]:
    """Return a source as it is aligned, and its whole text as it is learned from before.

    Shards learn from the whole, so that all learn the same. A pipe is kept on disk, up to the
    pairs that are learned from.
    """
    if source.open_sample() is not None:
        return source, replace(source, shard=(1, 1))
    spooled = SpooledLines(source, LearningSettings.max_pairs)
    return spooled, spooled


def read_whole(source: LineSource, tokens: TokenPlan) -> Iterator[Pairs]:
    """Yield the words of a source in chunks, as they are aligned."""
    return ChunkReader(source, _CHUNK, tokens=tokens).read_chunks()


def learn_statistics(
    chunks: Iterable[Pairs], few: bool, on_progress: Callable[[str], None] = lambda message: None
) -> StatisticalModel | None:
    """Learn from chunks; words are compared in lower case, whatever the text has.

    Of `few` pairs long ones are learned from, too. None if no pair has words on both sides.
    """
    has_words = False

    def watch() -> Iterator[Pairs]:
        nonlocal has_words
        for chunk in chunks:
            has_words = has_words or any(map(all, zip(chunk.src, chunk.tgt, strict=True)))
            yield chunk

    longest = _LONGEST if few else LearningSettings.max_words
    try:
        return learn_model(watch(), LearningSettings(True, max_words=longest), on_progress)
    except InputError:
        if has_words:
            raise
        return None

"""Takes the finished chunks of a run, in order, to its files or to standard output.

Files survive a kill (`output_files`); what an observer noted of each chunk is kept with them. Does
not align, and does not know what the lines mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..align.pipeline import FinishedChunk
from ..links.formats import Calibrate, LinkFormat
from ..text.corpus import ChunkReader
from ..text.files import open_output
from ..types import Counts, Renderer
from .corpus_options import CorpusOptions
from .output_files import OutputFiles


class LinkObserver(Protocol):
    """Sees every chunk, in order, and can be reminded of those of an earlier run."""

    def add(self, seen: Any, /) -> Any:
        """Take what was seen of a chunk; returns what has to be remembered of it."""

    def encode_note(self, kept: Any, /) -> bytes:
        """Write what `add` returned as a line."""

    def add_notes(self, notes: Iterable[bytes], /) -> None:
        """Add what the lines of an earlier run say."""


@dataclass(frozen=True)
class CorpusSummary:
    """What became of a corpus: counts, how many pairs earlier runs had done, seconds of this one,
    and how the links were made."""

    total: Counts
    resumed: int
    seconds: float
    signatures: list[str]

    @property
    def pairs_per_second(self) -> float:
        """The speed of this run."""
        return (self.total.pairs - self.resumed) / max(self.seconds, 1e-9)

    @property
    def links_per_word(self) -> float:
        """How many links a word of either side has on average."""
        return 2 * self.total.links / self.total.words if self.total.words else 0.0

    def as_report(self) -> dict[str, Any]:
        """Return all numbers and the signature, as the report has them."""
        return {
            **vars(self.total),
            "links_per_word": round(self.links_per_word, 6),
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "pairs_per_second": round(self.pairs_per_second, 3),
            "signature": self.signatures[0],
        }


def make_renderers(options: CorpusOptions, calibrate: Calibrate | None) -> list[Renderer]:
    """Return what makes the lines of each target, in the order of `find_targets`."""
    based: dict[str, Any] = {"one_based": options.one_based, "reverse": options.reverse}
    renderers: list[Renderer] = [LinkFormat(options.format, calibrate=calibrate, **based)]
    if options.scores:
        renderers.append(LinkFormat("scores", **based))
    if options.write_tokenized:
        renderers.append(lambda pairs, links: list(map(" ".join, pairs.src)))
        renderers.append(lambda pairs, links: list(map(" ".join, pairs.tgt)))
    return renderers


class CorpusOutput:
    """Where the chunks of a run go; use as `with CorpusOutput.open(...) as output`."""

    def __init__(self, files: OutputFiles | None, observer: LinkObserver | None) -> None:
        self._files = files
        self._observer = observer

    @classmethod
    @contextmanager
    def open(
        cls,
        targets: Sequence[Path],
        settings: Mapping[str, Any],
        *,
        restart: bool = False,
        observer: LinkObserver | None = None,
    ) -> Iterator[CorpusOutput]:
        """Begin files, or go on with those of a run with the same settings; none is stdout.

        With an observer the last items of every chunk are what it saw.
        """
        if not targets:
            yield cls(None, observer)
            return
        notes = observer is not None
        with OutputFiles(targets, settings, restart=restart, notes=notes) as files:
            yield cls(files, observer)

    @property
    def is_complete(self) -> bool:
        """Whether an earlier run had written everything, and only the names were missing."""
        return self._files is not None and self._files.complete

    def skip_finished(self, reader: ChunkReader) -> Counts:
        """Let the reader and the observer pass over what earlier runs did; returns its counts."""
        total = Counts()
        if self._files is None:
            return total
        for record in self._files.records:
            if not self.is_complete:
                reader.skip_chunk(record["pairs"], record["digest"])
            total += Counts(*record["counts"])
        if self._observer:
            self._observer.add_notes(self._files.read_notes())
        return total

    def write(self, done: FinishedChunk) -> None:
        """Add the next chunk."""
        items, notes = list(done.items), []
        if self._observer:
            kept = self._observer.add(items.pop()[0])
            notes = [self._observer.encode_note(kept)]
        parts = ["".join(f"{line}\n" for line in lines).encode("utf-8") for lines in items]
        if self._files is None:
            with open_output("-") as out:
                out.write(parts[0])
            return
        note, counts = done.pairs.note, done.counts
        assert note is not None  # chunks of files have one
        self._files.append_chunk(
            parts + notes, counts.pairs, note.digest, counts.as_tuple(), note.whole
        )

    def finish(self) -> None:
        """Give the files their names."""
        if self._files is not None:
            self._files.finish()

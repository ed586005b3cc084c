"""Align in the actors of a Ray cluster: blocks of a corpus, or rows of a dataset.

An actor has one `Aligner` and goes through it as everybody does. Does not start actors (`ray`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..aligner import Aligner
from ..errors import MxError
from ..jobs.corpus_options import CorpusOptions
from ..links.formats import LinkFormat
from ..text.corpus import LineSource
from ..types import Counts, Renderer
from .corpus_blocks import CorpusBlock, format_side


class LineAligner:
    """An aligner in an actor, or the `problem` why there is none.

    A problem is kept instead of raised: Ray would start the actor again and again.
    """

    def __init__(self, load: Mapping[str, Any], options: CorpusOptions, cores: int) -> None:
        self.options = options
        self.problem = ""
        try:
            self.aligner = Aligner.load(**load, threads=cores)
        except MxError as error:
            self.problem = str(error)

    def align_lines(
        self, lines: LineSource, renderers: Sequence[Renderer]
    ) -> tuple[list[list[str]], Counts]:
        """Return the items of each renderer for all lines; chunks are those of one machine."""
        found: list[list[str]] = [[] for _ in renderers]
        counts = Counts()
        # Blocks begin at multiples of the chunk size, so these are the chunks of one machine.
        chunks = self.aligner.open_reader(lines, self.options).read_chunks()
        nulls = self.options.format == "jsonl"
        batch_tokens = self.options.batch_tokens
        for done in self.aligner.align_chunks(
            chunks, renderers, batch_tokens=batch_tokens, nulls=nulls
        ):
            counts += done.counts
            for items, more in zip(found, done.items, strict=True):
                items += more
        return found, counts

    def make_renderer(self, kind: str) -> LinkFormat:
        """Return what writes links, or `scores`, as lines of a format."""
        one_based, reverse = self.options.one_based, self.options.reverse
        calibrate = self.aligner.bundle.calibrate
        return LinkFormat(kind, one_based=one_based, reverse=reverse, calibrate=calibrate)


class BlockAligner(LineAligner):
    """Reads the blocks that are named to it, and gives back the bytes of their files."""

    def __call__(self, rows: Any) -> Any:
        import pyarrow as pa

        blocks = map(CorpusBlock.from_json, rows.column("block").to_pylist())
        found = [(block.number, *self.align_block(block)) for block in blocks]
        return pa.table(
            {
                "number": pa.array([number for number, _, _ in found], pa.int64()),
                "data": pa.array([data for _, data, _ in found], pa.large_binary()),
                "note": pa.array([json.dumps(note) for _, _, note in found], pa.string()),
            }
        )

    def align_block(self, block: CorpusBlock) -> tuple[bytes, dict[str, Any]]:
        """Return the bytes of a block's file and what is known of it, or a `problem`."""
        if self.problem:
            return b"", {"problem": self.problem}
        try:
            if self.options.format == "parquet":
                # With the sentences, since its readers do not go by lines.
                renderers: list[Renderer] = [
                    lambda pairs, links: [" ".join(words) for words in pairs.src],
                    lambda pairs, links: [" ".join(words) for words in pairs.tgt],
                    self.make_renderer("pharaoh"),
                    self.make_renderer("scores"),
                ]
                columns, counts = self.align_lines(block, renderers)
                data = encode_parquet(*columns)
            else:
                renderer = self.make_renderer(self.options.format)
                (lines,), counts = self.align_lines(block, [renderer])
                data = "".join(f"{line}\n" for line in lines).encode()
            if counts.pairs != block.pairs:
                raise MxError(
                    f"block {block.number} has {counts.pairs:,} pairs where {block.pairs:,} were "
                    "counted: the corpus has changed meanwhile; give --restart to begin anew"
                )
        except MxError as error:
            return b"", {"problem": str(error)}
        return data, {"counts": counts.as_tuple(), "how": self.aligner.signature()}


class RowAligner(LineAligner):
    """Adds a column of links, and one of scores, to rows of two sentences."""

    def __init__(
        self, load: Mapping[str, Any], options: CorpusOptions, cores: int, names: Sequence[str]
    ) -> None:
        super().__init__(load, options, cores)
        self.names = names  # of the columns: source, target, links, scores

    def __call__(self, rows: Any) -> Any:
        import pyarrow as pa

        if self.problem:
            raise MxError(self.problem)
        src, tgt, links, scores = self.names
        sides = [
            [format_side(value, f"column {name}") for value in rows.column(name).to_pylist()]
            for name in (src, tgt)
        ]
        renderers = [self.make_renderer("pharaoh"), self.make_renderer("scores")]
        (link_lines, score_lines), _ = self.align_lines(ListedLines(*sides), renderers)
        rows = rows.append_column(links, pa.array(link_lines, pa.string()))
        return rows.append_column(scores, parse_scores(score_lines))


class ListedLines:
    """Lines that are in memory, as a source that can be read in chunks."""

    def __init__(self, src: list[str], tgt: list[str]) -> None:
        self.pairs = list(zip(src, tgt, strict=True))

    def line_range(self, multiple: int = 1) -> tuple[int, int | None]:
        return 0, len(self.pairs)

    def read_range(self, first: int, end: int | None) -> Iterator[tuple[str, str]]:
        return iter(self.pairs[first:end])


def encode_parquet(
    src: Sequence[str], tgt: Sequence[str], links: Sequence[str], scores: Sequence[str]
) -> bytes:
    """Return the bytes of a Parquet file with these columns; scores are lists of numbers."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    texts = {"src": src, "tgt": tgt, "links": links}
    columns = {name: pa.array(lines, pa.string()) for name, lines in texts.items()}
    sink = pa.BufferOutputStream()
    table = pa.table({**columns, "scores": parse_scores(scores)})
    parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def parse_scores(lines: Sequence[str]) -> Any:
    """Return the numbers of each line as an Arrow column of lists."""
    import pyarrow as pa

    values = [[float(score) for score in line.split()] for line in lines]
    return pa.array(values, pa.list_(pa.float32()))

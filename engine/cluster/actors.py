"""Align in the actors of a Ray cluster: blocks of a corpus, or rows of a dataset.

An actor has one `Aligner` and goes through it as everybody does. Does not start actors (`ray`).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from ..aligner import WORD_RENDERERS, Aligner
from ..errors import MxError
from ..jobs.corpus_options import CorpusOptions
from ..text.corpus import LineSource
from ..text.tokens.detection import TokenPlan, plan_tokens
from ..types import Counts, Renderer
from .corpus_blocks import CorpusBlock, format_side

FinishedBlock = tuple[CorpusBlock, bytes, dict[str, Any]]  # the bytes of its file, what is known


class LineAligner:
    """An aligner in an actor, or the `problem` why there is none.

    A problem is kept instead of raised: Ray would start the actor again and again.
    """

    def __init__(
        self, load: Mapping[str, Any], options: CorpusOptions, cores: int, names: Sequence[str] = ()
    ) -> None:
        self.options = options
        self.names = names  # of columns, if the lines come from rows: source, target, links, scores
        self.problem: MxError | None = None
        try:
            self.aligner = Aligner.load(**load, threads=cores)
        except MxError as error:
            self.problem = error

    def align_lines(
        self, lines: LineSource, tokens: TokenPlan, kinds: Sequence[str],
        before: Sequence[Renderer] = (),
    ) -> tuple[list[list[str]], Counts]:  # fmt: skip
        """Return the items of the renderers `before`, then the links in each format, of all lines.

        Chunks are those of one machine.
        """
        if self.problem:
            raise self.problem
        renderers = list(before)
        renderers += [self.aligner.make_renderer(kind, self.options) for kind in kinds]
        found: list[list[str]] = [[] for _ in renderers]
        counts = Counts()
        # Blocks begin at multiples of the chunk size, so these are the chunks of one machine.
        chunks = self.aligner.open_reader(lines, self.options, tokens).read_chunks()
        for done in self.aligner.align_chunks(chunks, renderers, self.options):
            counts += done.counts
            for items, more in zip(found, done.items, strict=True):
                items += more
        return found, counts


class BlockAligner(LineAligner):
    """Reads the blocks that are named to it, and gives back the bytes of their files."""

    def __call__(self, rows: Any) -> Any:
        import pyarrow as pa

        blocks = map(pickle.loads, rows.column("block").to_pylist())
        found = [pickle.dumps(self.align_block(block)) for block in blocks]
        return pa.table({"found": pa.array(found, pa.large_binary())})

    def align_block(self, block: CorpusBlock) -> FinishedBlock | MxError:
        """Return a block, the bytes of its file and what is known of it, or what went wrong."""
        try:
            if self.options.format == "parquet":
                # With the sentences, since its readers do not go by lines.
                kinds = ("pharaoh", "scores")
                columns, counts = self.align_lines(block, block.tokens, kinds, WORD_RENDERERS)
                data = encode_parquet(*columns)
            else:
                (lines,), counts = self.align_lines(block, block.tokens, [self.options.format])
                data = "".join(f"{line}\n" for line in lines).encode()
            if counts.pairs != block.pairs:
                raise MxError(
                    f"block {block.number} has {counts.pairs:,} pairs where {block.pairs:,} were "
                    "counted: the corpus has changed meanwhile; give --restart to begin anew"
                )
        except MxError as error:
            return error
        return block, data, {"counts": astuple(counts), "how": self.aligner.signature()}


class RowAligner(LineAligner):
    """Adds a column of links, and one of scores, to rows of two sentences."""

    def __call__(self, rows: Any) -> Any:
        import pyarrow as pa

        src, tgt, links, scores = self.names
        lines = ListedLines(
            [format_side(value, f"column {src}") for value in rows.column(src).to_pylist()],
            [format_side(value, f"column {tgt}") for value in rows.column(tgt).to_pylist()],
        )
        tokens = plan_tokens(self.options.token_kind, ())
        (link_lines, score_lines), _ = self.align_lines(lines, tokens, ("pharaoh", "scores"))
        rows = rows.append_column(links, pa.array(link_lines, pa.string()))
        return rows.append_column(scores, parse_scores(score_lines))


@dataclass
class ListedLines:
    """Lines that are in memory, as a source that can be read in chunks."""

    src: list[str]
    tgt: list[str]

    def open_lines(self, multiple: int) -> tuple[int, int | None, Iterator[tuple[str, str]]]:
        return 0, None, zip(self.src, self.tgt, strict=True)

    def open_sample(self) -> Iterator[tuple[str, str]]:
        return zip(self.src, self.tgt, strict=True)


def encode_parquet(
    src: Sequence[str], tgt: Sequence[str], links: Sequence[str], scores: Sequence[str]
) -> bytes:
    """Return the bytes of a Parquet file with these columns; scores are lists of numbers."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    columns = [pa.array(lines, pa.string()) for lines in (src, tgt, links)]
    columns.append(parse_scores(scores))
    table = pa.table(columns, names=["src", "tgt", "links", "scores"])
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def parse_scores(lines: Sequence[str]) -> Any:
    """Return the numbers of each line as an Arrow column of lists."""
    import pyarrow as pa

    values = [[float(score) for score in line.split()] for line in lines]
    return pa.array(values, pa.list_(pa.float32()))

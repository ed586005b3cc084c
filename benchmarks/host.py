"""Measures how many pairs a second everything but the model handles, and where that time goes.

Runs the real pipeline with a stand-in for the model that returns prepared scores.

    python -m mx_align.benchmarks.host corpus.de corpus.en --vocab joint.spm --pairs 100000
"""

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.align import pipeline
from ..engine.align.decoding import LinkRule
from ..engine.align.pipeline import ModelSettings, Recipe, run_chunk, stream_chunks
from ..engine.links.formats import LinkFormat
from ..engine.text import corpus
from ..engine.text.corpus import ChunkReader, ParallelFiles
from ..engine.text.pieces import PieceTokenizer
from ..engine.types import Batch


class InstantBackend:
    """A backend that takes no time: one link per source piece, well inside every sentence."""

    name, dtype, steady, grain, finds_links = "instant", "fp32", True, 1, False

    def __init__(self, workers: int, batch_tokens: int) -> None:
        self.workers, self.batch_tokens = workers, batch_tokens
        self.prepared: dict[tuple[int, ...], np.ndarray] = {}

    def run(self, batch: Batch, outputs: Sequence[str]) -> Mapping[str, Any]:
        shape = (*batch.src.shape, batch.tgt.shape[1])
        if shape not in self.prepared:
            self.prepared[shape] = self.make_links(*shape)
        return {"scores": self.prepared[shape]}

    def make_links(self, rows: int, n_src: int, n_tgt: int) -> np.ndarray:
        """Make links only where a sentence padded to this size surely has pieces."""
        scores = np.full((rows, n_src, n_tgt), 0.01, np.float32)
        sure_src, sure_tgt = max(1, n_src - 16), max(1, n_tgt - 16)
        sure_src = max(sure_src, n_src - 3 if n_src <= 64 else 0)
        sure_tgt = max(sure_tgt, n_tgt - 3 if n_tgt <= 64 else 0)
        src = np.arange(sure_src)
        scores[:, src, src * sure_tgt // sure_src] = 0.9
        return scores

    def describe(self) -> str:
        return "prepared scores"


class Clock:
    """Adds up the time inside functions, less that of clocked functions they call."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.inner: list[float] = []

    def wrap(self, owner: Any, name: str, stage: str) -> None:
        """Replace a function of a module or class by one that is timed."""
        function = getattr(owner, name)

        def measure_call(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            self.inner.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.thread_time() - start
                self.seconds[stage] += spent - self.inner.pop()
                if self.inner:
                    self.inner[-1] += spent

        setattr(owner, name, measure_call)


def join_lines(done: pipeline.FinishedChunk) -> bytes:
    return ("\n".join(done.items[0]) + "\n").encode()


def profile_stages(recipe: Recipe, reader: ChunkReader, chunks: int) -> dict[str, float]:
    """Return microseconds per pair by stage, all in one thread."""
    clock = Clock()
    clock.wrap(reader, "_take_lines", "read")
    clock.wrap(corpus.ChunkLines, "digest", "digest")
    clock.wrap(PieceTokenizer, "encode_many", "tokenise")
    clock.wrap(pipeline, "plan_units", "batch")
    clock.wrap(pipeline, "pack_batch", "batch")
    clock.wrap(InstantBackend, "run", "stand-in for the model")
    clock.wrap(pipeline, "find_piece_links", "decode")
    clock.wrap(pipeline, "link_words", "decode")
    clock.wrap(LinkFormat, "__call__", "format")
    clock.wrap(sys.modules[__name__], "join_lines", "join lines")
    pairs, start = 0, time.thread_time()
    for chunk in islice(reader.read_chunks(), chunks):
        join_lines(run_chunk(recipe, chunk))
        pairs += len(chunk.src)
    total = time.thread_time() - start
    stages = dict(clock.seconds)
    stages["split words and the rest"] = total - sum(stages.values())
    return {name: round(1e6 * seconds / pairs, 2) for name, seconds in stages.items()}


def main() -> None:
    """Time the pipeline, and its stages if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("src")
    parser.add_argument("tgt")
    parser.add_argument("--vocab", type=Path, required=True, help="SentencePiece model")
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--chunk", type=int, default=8192)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()

    gc.set_threshold(200_000, 20, 100)  # as the command does
    tokenizer = PieceTokenizer(options.vocab, lowercase=True)
    backend = InstantBackend(options.threads, options.batch_tokens)
    model = ModelSettings(
        backend, (tokenizer, tokenizer), 256, LinkRule(), LinkRule(), options.batch_tokens
    )
    recipe = Recipe([LinkFormat("pharaoh")], model)
    chunks = -(-options.pairs // options.chunk)
    rates, cpu = [], []
    for _ in range(options.repeat):
        reader = ChunkReader(ParallelFiles(options.src, options.tgt), options.chunk)
        start, used = time.perf_counter(), time.process_time()
        pairs = 0
        with open(os.devnull, "wb") as out:
            for done in stream_chunks(
                recipe, islice(reader.read_chunks(), chunks), options.threads
            ):
                out.write(join_lines(done))
                pairs += done.counts.pairs
        rates.append(pairs / (time.perf_counter() - start))
        cpu.append(pairs / (time.process_time() - used))
    result = {
        "pairs": pairs,
        "pairs_per_second": [round(rate) for rate in rates],
        "pairs_per_cpu_second": [round(rate) for rate in cpu],
        "threads": options.threads, "batch_tokens": options.batch_tokens, "chunk": options.chunk,
        "python": platform.python_version(), "numpy": np.__version__, "cores": os.cpu_count(),
    }  # fmt: skip
    if options.profile:
        reader = ChunkReader(ParallelFiles(options.src, options.tgt), options.chunk)
        result["microseconds_per_pair"] = profile_stages(recipe, reader, min(chunks, 6))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

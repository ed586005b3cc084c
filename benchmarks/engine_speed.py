"""Times the whole engine against a bare ONNX Runtime loop on the same batches, in pairs a second.

What lies between the two is the price of reading, batching, decoding and writing.

    python -m mx_align.benchmarks.engine_speed de-en.mx corpus.de corpus.en --pairs 8192
"""

import argparse
import json
import os
import platform
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import onnxruntime

from ..engine.align.batching import pack_batch
from ..engine.align.pipeline import ModelPass, stream_chunks
from ..engine.aligner import Aligner
from ..engine.links.formats import LinkFormat
from ..engine.text.corpus import ChunkReader, ParallelFiles
from ..engine.types import Batch, Pairs


def time_bare_loop(aligner: Aligner, ready: list[Batch], threads: int) -> tuple[float, float]:
    """Return wall and CPU seconds of nothing but `session.run`, in as many threads."""

    def run_batch(batch: Batch) -> None:
        aligner.require_model()[1].run(batch, aligner.rule.outputs)

    def work() -> None:
        with ThreadPoolExecutor(threads) as pool:
            deque(pool.map(run_batch, ready), maxlen=0)  # for its errors

    return time_call(work)


def time_engine(
    aligner: Aligner, reader: ChunkReader, chunks: int, threads: int
) -> tuple[float, float]:
    """Return wall and CPU seconds from text to lines."""
    recipe = aligner.make_recipe([LinkFormat("pharaoh")])

    def work() -> None:
        with open(os.devnull, "wb") as out:
            for done in stream_chunks(recipe, islice(reader.read_chunks(), chunks), threads):
                out.write("\n".join(done.items[0]).encode())

    return time_call(work)


def time_call(work: Any) -> tuple[float, float]:
    """Return wall and CPU seconds of a call."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def make_batches(aligner: Aligner, chunks: list[Pairs]) -> list[Batch]:
    """Return the batches that the engine makes of these chunks."""
    found = []
    for pairs in chunks:
        work = ModelPass(aligner.make_settings(), pairs)
        every = work.prepare()
        for planned in every:  # which grow on the way
            every += work.run(planned)
        found += [pack_batch(planned, work.src, work.tgt) for planned in every]
    return found


def main() -> None:
    """Time both in turn and print what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("src")
    parser.add_argument("tgt")
    parser.add_argument("--pairs", type=int, default=8192)
    parser.add_argument("--chunk", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dtype")
    options = parser.parse_args()

    aligner = Aligner.load(
        options.model, backend="cpu", dtype=options.dtype, threads=options.threads
    )
    n_chunks = -(-options.pairs // options.chunk)

    def reader() -> ChunkReader:
        return ChunkReader(ParallelFiles(options.src, options.tgt), options.chunk)

    chunks = list(islice(reader().read_chunks(), n_chunks))
    pairs = sum(len(chunk.src) for chunk in chunks)
    ready = make_batches(aligner, chunks)
    places = sum(batch.src.size + batch.tgt.size for batch in ready)
    pieces = sum(int(batch.src_lengths.sum() + batch.tgt_lengths.sum()) for batch in ready)
    del chunks
    rows = []
    for _ in range(options.repeat):  # in turn, so that other load meets both alike
        rows.append((time_bare_loop(aligner, ready, options.threads),
                     time_engine(aligner, reader(), n_chunks, options.threads)))  # fmt: skip
    result = {
        "signature": aligner.signature(),
        "pairs": pairs,
        "batches": len(ready),
        "pieces_per_pair": round(pieces / pairs, 1),
        "padding": round(places / pieces - 1, 4),
        "threads": options.threads,
        "bare_pairs_per_second": [round(pairs / loop[0], 1) for loop, _ in rows],
        "engine_pairs_per_second": [round(pairs / engine[0], 1) for _, engine in rows],
        "bare_pairs_per_cpu_second": [round(pairs / loop[1], 1) for loop, _ in rows],
        "engine_pairs_per_cpu_second": [round(pairs / engine[1], 1) for _, engine in rows],
        "share_wall": [round(loop[0] / engine[0], 3) for loop, engine in rows],
        "share_cpu": [round(loop[1] / engine[1], 3) for loop, engine in rows],
        "onnxruntime": onnxruntime.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

"""The pipeline, and above all: the same bytes whatever the batches, threads and chunks are."""

import random
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ....engine.align.pipeline import run_chunk, stream_chunks
from ....engine.aligner import Aligner
from ....engine.bundle.bundle import Bundle
from ....engine.jobs.corpus_options import CorpusOptions
from ....engine.links.formats import LinkFormat
from ....engine.text.words import split_words
from ....engine.types import Pairs
from ...support.bundles import LINES, write_toy

WORDS = " ".join(LINES).split(" ")


def corpus(n: int, seed: int = 1) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    sides: tuple[list[str], list[str]] = ([], [])
    for _ in range(n):
        base = rng.choice([0, 1, 1, 2, 5, 10, 20, 60])
        for side in sides:
            count = max(0, base + rng.randint(-1, 2))
            side.append(" ".join(rng.choice(WORDS) for _ in range(count)))
    return sides


def chunks(src, tgt, size):
    for first in range(0, len(src), size):
        part = slice(first, first + size)
        yield Pairs(first, list(map(split_words, src[part])), list(map(split_words, tgt[part])))


def lines(aligner, src, tgt, *, size=100, tokens=512, threads=2, kind="pharaoh"):
    recipe = aligner.make_recipe(
        [LinkFormat(kind)], CorpusOptions(batch_tokens=tokens, format=kind)
    )
    done = list(stream_chunks(recipe, chunks(src, tgt, size), threads))
    return [line for part in done for line in part.items[0]]


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Bundle:
    return write_toy(tmp_path_factory.mktemp("toy") / "toy.mx")


@pytest.fixture(scope="module")
def aligner(toy) -> Aligner:
    return Aligner.load(toy.path, backend="cpu")


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Bundle:
    """A network of the real kind with random weights, as the export builds it."""
    pytest.importorskip("torch")
    from ...support.bundles import write_network

    return write_network(tmp_path_factory.mktemp("real") / "real.mx")


@pytest.fixture(scope="module")
def student(tmp_path_factory) -> Bundle:
    pytest.importorskip("torch")
    from ...support.bundles import write_network

    return write_network(tmp_path_factory.mktemp("student") / "student.mx", kind="student")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["toy", "real", "student"])
def test_same_bytes_for_all_batches_threads_and_chunks_with_thresholds_at_scores(which, request):
    """The threshold is a score that occurs, so the smallest change of that score moves a link."""
    path = request.getfixturevalue(which).path
    src, tgt = corpus(60)
    scored = Aligner.load(path, backend="cpu", threshold=1e-6).align_batch(src, tgt)
    scores = np.unique([score for one in scored for score in one.scores])
    rng = np.random.default_rng(1)
    for threshold in rng.choice(scores[scores > 1e-3], 3):
        aligner = Aligner.load(path, backend="cpu", threshold=float(threshold))
        wanted = lines(aligner, src, tgt)
        kept = sum(bool(score >= threshold) for one in scored for score in one.scores)
        assert sum(len(line.split()) for line in wanted) == kept
        for tokens, size, threads in [(1, 7, 1), (64, 60, 3), (100_000, 33, 2), (300, 1, 4)]:
            made = lines(aligner, src, tgt, size=size, tokens=tokens, threads=threads)
            assert made == wanted


@pytest.mark.slow
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 999), st.integers(1, 2000), st.integers(1, 60), st.integers(1, 4))
def test_scores_to_the_last_bit(aligner, seed, tokens, size, threads):
    src, tgt = corpus(40, seed)
    one_by_one = [aligner.align_pair(s, t) for s, t in zip(src, tgt, strict=True)]
    recipe = aligner.make_recipe(
        [lambda pairs, links: [links] * len(pairs.src)], CorpusOptions(batch_tokens=tokens)
    )
    made = [
        score
        for done in stream_chunks(recipe, chunks(src, tgt, size), threads)
        for score in (done.items[0][0].score.tolist() if done.items[0] else [])
    ]
    assert made == [score for one in one_by_one for score in one.scores]


def test_order_and_counts(aligner):
    src, tgt = corpus(500, 3)
    recipe = aligner.make_recipe([LinkFormat("pharaoh")])
    done = list(stream_chunks(recipe, chunks(src, tgt, 64), 2))
    assert [part.pairs.first for part in done] == list(range(0, 500, 64))
    total = sum((part.counts for part in done[1:]), done[0].counts)
    assert total.pairs == 500
    assert total.empty == sum(not s or not t for s, t in zip(src, tgt, strict=True))
    assert total.words == sum(len(split_words(line)) for line in src + tgt)
    assert total.windowed > 0 and total.skipped == 0
    assert total.links == sum(len(split_words(line)) for part in done for line in part.items[0])


def test_an_error_of_the_input_comes_after_everything_before_it(aligner):
    src, tgt = corpus(90)

    def failing():
        yield from chunks(src, tgt, 40)
        raise ValueError("bad line")

    got = []
    with pytest.raises(ValueError, match="bad line"):
        for done in stream_chunks(aligner.make_recipe([LinkFormat("pharaoh")]), failing(), 2):
            got += done.items[0]
    assert len(got) == 90


def test_an_error_of_the_model_ends_the_run(aligner):
    class Broken:
        name, dtype, steady, workers, batch_tokens = "broken", "fp32", True, 2, 64
        grain, finds_links = 1, False

        def run(self, batch, outputs):
            raise RuntimeError("no memory")

    recipe = aligner.make_recipe([LinkFormat("pharaoh")])
    recipe = replace(recipe, model=replace(recipe.model, backend=Broken()))
    src, tgt = corpus(300)
    with pytest.raises(RuntimeError, match="no memory"):
        list(stream_chunks(recipe, chunks(src, tgt, 50), 2))
    assert threading.active_count() < 20


def test_reading_ahead_is_bounded_and_stops_with_the_consumer(aligner):
    src, tgt = corpus(50)
    read = []

    def endless():
        while True:
            read.append(1)
            yield from chunks(src, tgt, 50)

    before = threading.active_count()
    running = stream_chunks(aligner.make_recipe([LinkFormat("pharaoh")]), endless(), 2)
    next(running)
    time.sleep(0.3)
    assert len(read) <= 5
    running.close()
    assert threading.active_count() == before


def test_no_pairs_and_only_empty_pairs(aligner):
    recipe = aligner.make_recipe([LinkFormat("jsonl")], CorpusOptions(format="jsonl"))
    assert list(stream_chunks(recipe, [], 2)) == []
    done = run_chunk(recipe, Pairs(0, [[], ["a"], []], [["b"], [], []]))
    assert done.counts.empty == 3 and done.counts.links == 0
    assert '"src_null": [1.0]' in done.items[0][1]

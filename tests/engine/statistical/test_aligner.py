"""The statistical aligner: right on a made-up language, well-behaved on odd input."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from itertools import repeat

import pytest

from ....engine.alignment import Alignment, chunk_sentences, unzip_pairs
from ....engine.errors import InputError, MxError
from ....engine.statistical import blocks
from ....engine.statistical.aligner import StatisticalAligner
from ....engine.text.files import open_output
from ...support.guarded import run_guarded
from ...support.made_up_language import make_corpus, measure_f1


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(400, random_seed=7)


@pytest.fixture(scope="module")
def aligner(corpus) -> StatisticalAligner:
    return StatisticalAligner.learn(corpus[0], corpus[1])


def link_sets(alignments: Iterable[Alignment]) -> list[set[tuple[int, int]]]:
    return [set(alignment.links) for alignment in alignments]


# ---- what it finds ----


def test_finds_the_links_of_a_made_up_language(corpus, aligner):
    src, tgt, gold = corpus
    assert measure_f1(link_sets(aligner.align(src, tgt)), gold) > 0.98


def test_aligns_text_it_did_not_learn_from(aligner):
    src, tgt, gold = make_corpus(100, random_seed=8)
    assert measure_f1(link_sets(aligner.align(src, tgt)), gold) > 0.98


def test_swapping_the_languages_transposes_the_links(corpus):
    src, tgt = corpus[0][:200], corpus[1][:200]
    there = link_sets(StatisticalAligner.learn(src, tgt).align(src, tgt))
    back = link_sets(StatisticalAligner.learn(tgt, src).align(tgt, src))
    assert measure_f1(there, [{(i, j) for j, i in links} for links in back]) > 0.999


def test_words_never_met_are_linked_when_they_begin_alike(corpus, aligner):
    src, tgt = [*corpus[0][0], "zebra"], [*corpus[1][0], "zebras"]
    assert (len(src) - 1, len(tgt) - 1) in aligner.align_pair(src, tgt).links


def test_new_words_do_not_stay_in_the_model(corpus, aligner):
    before = aligner.describe(), len(aligner.model.prior.src_class)
    new = [[f"new{n}"] for n in range(50)]
    first = list(aligner.align(new, new))
    assert all(alignment.links == [(0, 0)] for alignment in first)
    assert list(aligner.align(new, new)) == first
    assert (aligner.describe(), len(aligner.model.prior.src_class)) == before


def test_lowercase_joins_words_that_differ_in_case(corpus):
    src, tgt, gold = corpus
    src = [[w.upper() for w in words] if n % 2 else words for n, words in enumerate(src)]
    aligner = StatisticalAligner.learn(src, tgt, lowercase=True)
    assert measure_f1(link_sets(aligner.align(src, tgt)), gold) > 0.98
    assert len(aligner.model.src_words) == 60


# ---- one door, several ways in ----


def test_lines_words_files_pairs_and_batches_give_the_same(corpus, aligner, tmp_path):
    src, tgt, _ = corpus
    wanted = list(aligner.align(src, tgt))
    lines = [[" ".join(words) for words in side] for side in (src, tgt)]
    assert list(aligner.align(*lines)) == wanted
    assert aligner.align_batch(src, tgt) == wanted
    assert aligner.align_pair(src[3], lines[1][3]).links == wanted[3].links
    for name, side in zip(("src", "tgt.gz"), lines, strict=True):
        with open_output(tmp_path / name) as file:
            file.write("".join(f"{line}\n" for line in side).encode())
    files = tmp_path / "src", tmp_path / "tgt.gz"
    learned = StatisticalAligner.learn_files(*files)
    assert list(learned.align(*lines)) == wanted
    scored = tmp_path / "scored"
    assert learned.align_files(*files, tmp_path / "links", scores=scored) == len(src)
    assert (tmp_path / "links").read_text().splitlines() == list(map(str, wanted))
    with_scores = zip(wanted[0].links, wanted[0].scores, strict=True)
    line = " ".join(f"{i}-{j}:{score:.4f}" for (i, j), score in with_scores)
    assert scored.read_text().splitlines()[0] == line


def test_what_it_says_about_itself(corpus):
    src, tgt, _ = corpus
    aligner = StatisticalAligner.learn(src, tgt, lowercase=True, threshold=0.6, hmm_rounds=2)
    assert "|pairs:400|case:lower|rounds:3+2|agreement:0.75|sym:soft|thr:0.6" in aligner.signature()
    assert aligner.describe().startswith(
        "statistical aligner, learned from 400 pairs: 60 and 61 words in lower case, "
    )


def test_works_without_torch_and_onnxruntime(corpus):
    code = """
from mx_align import StatisticalAligner
text = ["a b", "b", "a c", "c"] * 5, ["x y", "y", "x z", "z"] * 5
print(StatisticalAligner.learn(*text).align_pair("c b", "z y"))
"""
    done = run_guarded(
        {"torch", "onnxruntime", "onnx", "mx_align.trainer", "mx_align.export"}, code
    )
    assert done.stdout == "0-0 1-1\n", done.stderr


# ---- manners ----


def test_one_sorted_result_for_each_pair_in_order(corpus, aligner):
    src = [[], corpus[0][0], ["a"], [], corpus[0][1]]
    tgt = [["a"], corpus[1][0], [], [], corpus[1][1]]
    found = list(aligner.align(src, tgt))
    assert [len(alignment) > 0 for alignment in found] == [False, True, False, False, True]
    for alignment, words, others in zip(found, src, tgt, strict=True):
        assert (alignment.src, alignment.tgt) == (tuple(words), tuple(others))
        assert alignment.links == sorted(alignment.links)
        assert all(0 <= i < len(words) and 0 <= j < len(others) for i, j in alignment)
        assert all(0 < score <= 1 for score in alignment.scores)
        assert 0 <= alignment.score <= 1


def test_no_pairs_at_all_have_no_links(aligner):
    assert list(aligner.align([], [])) == aligner.align_batch([], []) == []


def test_the_same_text_gives_the_same_links_whatever_the_chunk(corpus, aligner):
    src, tgt, _ = corpus
    again = StatisticalAligner.learn(iter(src), iter(tgt))
    whole = list(aligner.align(src, tgt))
    assert whole == list(again.align(src, tgt))
    assert link_sets(whole) == link_sets(again.align(src, tgt, chunk=7))


def test_the_same_text_teaches_the_same_whatever_the_threads():
    code = (
        "from mx_align import StatisticalAligner\n"
        "from mx_align.tests.support.made_up_language import make_corpus\n"
        "src, tgt, _ = make_corpus(1500, random_seed=7)\n"
        "print(StatisticalAligner.learn(src, tgt, hmm_rounds=2).model.digest)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"OMP_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n},
            check=True, capture_output=True, text=True,
        ).stdout
        for n in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1


def test_aligning_is_lazy(corpus, aligner):
    endless = repeat(corpus[0][0]), repeat(corpus[1][0])
    assert len(next(aligner.align(*endless, chunk=2)))


def test_a_higher_threshold_gives_a_part_of_the_links(corpus, aligner):
    src, tgt, _ = corpus
    low, high = (
        link_sets(StatisticalAligner(aligner.model, threshold=t).align(src, tgt))
        for t in (0.2, 0.9)
    )
    assert all(few <= many for few, many in zip(high, low, strict=True))
    assert sum(map(len, high)) < sum(map(len, low))


def test_sentences_of_one_word_and_very_long_ones(aligner):
    src = [["1w"], ["1w"] * 300, ["1w"] * 3000]
    tgt = [["q1x"], ["q1x"] * 200, ["q1x"] * 3000]
    one, _long, too_long = link_sets(aligner.align(src, tgt))
    assert one == {(0, 0)}
    assert too_long == set()


def test_a_line_too_long_for_its_jumps_gets_no_links(aligner):
    """It has few cells beside a short one, but its jumps from word to word fill the memory."""
    long = ["w"] * (blocks._MAX_WORDS + 1)
    found = list(aligner.align([["1w"], long, ["0w"], ["1w"]], [["q1x"], ["q0x"], long, ["q1x"]]))
    assert found[0] == found[3] and len(found[0]) == 1 and len(found[1]) == len(found[2]) == 0


def test_mistakes_are_explained(corpus, aligner):
    src, tgt, _ = corpus
    for call, message in (
        (lambda: StatisticalAligner.learn(src, tgt, threshold=0), "threshold must be above 0"),
        (lambda: StatisticalAligner.learn(src, tgt, max_pairs=1), "max_pairs must be at least 2"),
        (lambda: StatisticalAligner.learn(src, tgt[:-1]), "the target ends after 399 sentences"),
        (
            lambda: StatisticalAligner.learn(src, tgt, ibm1_rounds=0, hmm_rounds=0),
            "one round at least",
        ),
        (lambda: aligner.align_batch(src, tgt[:-1]), "400 source sentences but 399"),
        (lambda: list(aligner.align(src, tgt, chunk=0)), "chunk must be 1 or more"),
    ):
        with pytest.raises(MxError, match=message):
            call()
    with pytest.raises(TypeError, match="one string"):
        StatisticalAligner.learn("corpus.en", "corpus.fr")


# ---- limits of learning ----


def test_nothing_to_learn_from_is_said():
    for src, tgt in (([], []), ([[]], [["a"]]), ([["a"] * 200], [["b"]])):
        with pytest.raises(InputError, match="nothing to learn from"):
            StatisticalAligner.learn(src, tgt)


def test_a_single_pair_of_words_that_tell_nothing_can_be_learned_from():
    """Each of the 10,000 links is expected so seldom that none is worth keeping but one."""
    src, tgt = [f"s{n}" for n in range(100)], [f"t{n}" for n in range(100)]
    aligner = StatisticalAligner.learn([src], [tgt], hmm_rounds=0)
    assert len(aligner.model.keys) >= 1
    assert len(aligner.align_pair(src, tgt).src) == 100


def test_a_long_text_is_sampled_evenly(corpus):
    src, tgt, gold = corpus
    aligner = StatisticalAligner.learn(src * 2, tgt * 2, max_pairs=150)
    assert 75 <= aligner.model.n_learned <= 150
    assert measure_f1(link_sets(aligner.align(src, tgt)), gold) > 0.95


def test_sampling_keeps_every_nth_pair_across_chunks():
    src_words, tgt_words = blocks.Vocabulary(False), blocks.Vocabulary(False)
    pairs = [([str(n)], [str(n), "x"]) for n in range(100)]
    chunks = chunk_sentences(*unzip_pairs(pairs), 7)
    src, tgt, n_read = blocks.sample_pairs(chunks, 30, src_words, tgt_words)
    assert n_read == 100
    assert [src_words.new_words[i] for i in src.ids] == [str(n) for n in range(0, 100, 4)]
    assert tgt.lengths.tolist() == [2] * 25


def test_the_number_of_cells_is_bounded(corpus):
    src, tgt, gold = corpus
    cells = sum(len(s) * len(t) for s, t in zip(src, tgt, strict=True))
    aligner = StatisticalAligner.learn(src, tgt, max_cells=cells // 2)
    assert 190 <= aligner.model.n_learned <= 200
    assert measure_f1(link_sets(aligner.align(src, tgt)), gold) > 0.95


def test_nothing_is_left_in_the_temporary_folder_by_a_kill(corpus, tmp_path, monkeypatch):
    """While it learns there is no name to find, so that there can be none later."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = []
    StatisticalAligner.learn(
        corpus[0][:50], corpus[1][:50], on_progress=lambda _: seen.append(list(tmp_path.iterdir()))
    )
    assert len(seen) > 5 and not any(seen)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="space cannot be reserved here")
def test_a_full_disk_is_explained(tmp_path):
    """The limit on the size of files stands for a full disk."""
    code = """
import resource
from mx_align import MxError, StatisticalAligner
pair = ["a", "b", "c", "d"] * 5, ["e", "f", "g"] * 5
StatisticalAligner.learn  # imported before files are limited
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    StatisticalAligner.learn([pair[0]] * 40, [pair[1]] * 40)
except MxError as error:
    print(error)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.stdout.startswith(f"learning needs a temporary file of 0.0 MB in {tmp_path}: ")
    assert "set TMPDIR" in done.stdout and done.stdout.count("\n") == 1, done

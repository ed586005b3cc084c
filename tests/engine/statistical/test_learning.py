"""Seed links: right on a language made up for the purpose, and well-behaved on odd input."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ....engine.commands.seed import main
from ....engine.errors import InputError
from ....engine.statistical import blocks as seed_text
from ....engine.statistical import hmm as seed_hmm
from ....engine.statistical.learning import SeedConfig, SeedModel

N_WORDS = 60


def made_up(n: int, rng: np.random.Generator) -> tuple[list, list[set[tuple[int, int]]]]:
    """Pairs whose target translates word by word, with neighbours swapped now and then and a
    target word from nowhere in between; and their true links."""
    pairs, gold = [], []
    for _ in range(n):
        ids = rng.permutation(N_WORDS)[: rng.integers(3, 9)]
        order = list(range(len(ids)))
        if rng.random() < 0.4:
            k = int(rng.integers(len(ids) - 1))
            order[k], order[k + 1] = order[k + 1], order[k]
        tgt = [(f"q{ids[i]}x", i) for i in order]
        if rng.random() < 0.3:
            tgt.insert(int(rng.integers(len(tgt) + 1)), ("ne", -1))
        pairs.append(([f"{i}w" for i in ids], [word for word, _ in tgt]))
        gold.append({(i, j) for j, (_, i) in enumerate(tgt) if i >= 0})
    return pairs, gold


@pytest.fixture(scope="module")
def corpus() -> tuple[list, list]:
    return made_up(400, np.random.default_rng(7))


@pytest.fixture(scope="module")
def model(corpus) -> SeedModel:
    return SeedModel.learn(corpus[0])


def places(links) -> list[set[tuple[int, int]]]:
    return [{(i, j) for i, j, _ in sentence} for sentence in links]


def f1(found, gold) -> float:
    both = sum(len(a & b) for a, b in zip(found, gold, strict=True))
    return 2 * both / (sum(map(len, found)) + sum(map(len, gold)))


# ---- what it finds ----


def test_finds_the_links_of_a_made_up_language(corpus, model):
    assert f1(places(model.align(corpus[0])), corpus[1]) > 0.98


def test_aligns_text_it_did_not_learn_from(model):
    pairs, gold = made_up(100, np.random.default_rng(8))
    assert f1(places(model.align(pairs)), gold) > 0.98


def test_swapping_the_languages_transposes_the_links(corpus):
    pairs = corpus[0][:200]
    there = places(SeedModel.learn(pairs).align(pairs))
    turned = [(tgt, src) for src, tgt in pairs]
    back = places(SeedModel.learn(turned).align(turned))
    assert f1(there, [{(i, j) for j, i in links} for links in back]) > 0.999


def test_words_never_met_are_linked_when_they_begin_alike(corpus, model):
    pair = corpus[0][0]
    src, tgt = [*pair[0], "zebra"], [*pair[1], "zebras"]
    assert (len(src) - 1, len(tgt) - 1) in places(model.align([(src, tgt)]))[0]


def test_lowercase_joins_words_that_differ_in_case(corpus):
    pairs = [([w.upper() for w in s], t) if n % 2 else (s, t) for n, (s, t) in enumerate(corpus[0])]
    model = SeedModel.learn(pairs, SeedConfig(lowercase=True))
    assert f1(places(model.align(pairs)), corpus[1]) > 0.98


# ---- manners ----


def test_one_sorted_result_for_each_pair_in_order(corpus, model):
    pairs = [([], ["a"]), corpus[0][0], (["a"], []), ([], []), corpus[0][1]]
    links = list(model.align(pairs))
    assert len(links) == len(pairs)
    assert links[0] == links[2] == links[3] == []
    assert links[1] and links[4]
    for sentence, (src, tgt) in zip(links, pairs, strict=True):
        assert sentence == sorted(sentence)
        assert all(0 <= i < len(src) and 0 <= j < len(tgt) for i, j, _ in sentence)
        assert all(0 < score <= 1 for _, _, score in sentence)


def test_the_same_text_gives_the_same_links_whatever_the_chunk(corpus, model):
    again = SeedModel.learn(iter(corpus[0]))
    whole = list(model.align(corpus[0]))
    assert whole == list(again.align(corpus[0]))
    assert places(whole) == places(again.align(corpus[0], chunk=7))


def test_aligning_is_lazy(corpus, model):
    def endless():
        while True:
            yield corpus[0][0]

    assert next(model.align(endless(), chunk=2))


def test_a_higher_threshold_gives_a_part_of_the_links(corpus, model):
    low, high = (places(model.align(corpus[0], threshold=t)) for t in (0.2, 0.9))
    assert all(few <= many for few, many in zip(high, low, strict=True))
    assert sum(map(len, high)) < sum(map(len, low))


def test_sentences_of_one_word_and_very_long_ones(model):
    pairs = [(["1w"], ["q1x"]), (["1w"] * 300, ["q1x"] * 200), (["1w"] * 3000, ["q1x"] * 3000)]
    one, _long, too_long = places(model.align(pairs))
    assert one == {(0, 0)}
    assert too_long == set()


def test_nothing_to_learn_from_is_said():
    for pairs in ([], [([], ["a"])], [(["a"] * 200, ["b"])]):
        with pytest.raises(InputError, match="nothing to learn from"):
            SeedModel.learn(pairs)


def test_a_long_text_is_sampled_evenly(corpus):
    config = SeedConfig(max_pairs=150)
    model = SeedModel.learn(corpus[0] * 2, config)
    assert 75 <= model.n_learned <= 150
    assert f1(places(model.align(corpus[0])), corpus[1]) > 0.95


def test_sampling_keeps_every_nth_pair_across_chunks(monkeypatch):
    monkeypatch.setattr(seed_text, "_READ", 7)
    words = seed_text.Vocabulary(False), seed_text.Vocabulary(False)
    pairs = [([str(n)], [str(n), "x"]) for n in range(100)]
    src, tgt, n_read = seed_text.sample(pairs, 30, *words)
    assert n_read == 100
    assert [words[0].words[i] for i in src.ids] == [str(n) for n in range(0, 100, 4)]
    assert tgt.lengths.tolist() == [2] * 25


def test_the_number_of_cells_is_bounded(corpus):
    cells = sum(len(src) * len(tgt) for src, tgt in corpus[0])
    model = SeedModel.learn(corpus[0], SeedConfig(max_cells=cells // 2))
    assert 190 <= model.n_learned <= 200
    assert f1(places(model.align(corpus[0])), corpus[1]) > 0.95


def test_nothing_is_left_in_the_temporary_folder_by_a_kill(corpus, tmp_path, monkeypatch):
    """While it learns there is no name to find, so that there can be none later."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = []
    SeedModel.learn(corpus[0][:50], report=lambda _: seen.append(list(tmp_path.iterdir())))
    assert len(seen) > 5 and not any(seen)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="space cannot be reserved here")
def test_a_full_disk_is_explained(corpus, tmp_path):
    """The limit on the size of files stands for a full disk."""
    code = """
import resource
from mx_align.engine.errors import MxError
from mx_align.engine.statistical.learning import SeedModel
pair = ["a", "b", "c", "d"] * 5, ["e", "f", "g"] * 5
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    SeedModel.learn([pair] * 40)
except MxError as error:
    print(error)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.stdout.startswith(f"learning needs a temporary file of 0.0 MB in {tmp_path}: ")
    assert "set TMPDIR" in done.stdout and done.stdout.count("\n") == 1, done


def test_saved_and_loaded_it_gives_the_same(corpus, model, tmp_path):
    model.save(tmp_path / "seed.npz")
    loaded = SeedModel.load(tmp_path / "seed.npz")
    assert list(loaded.align(corpus[0])) == list(model.align(corpus[0]))
    assert (loaded.config, loaded.n_learned) == (model.config, model.n_learned)


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", format=np.array([99]))
    for name, message in (
        ("none.npz", "does not exist"),
        ("text.npz", "not a seed model"),
        ("other.npz", "another version"),
    ):
        with pytest.raises(InputError, match=message):
            SeedModel.load(tmp_path / name)


# ---- the recursion against plain enumeration ----


def enumerated(emission, null, start, end, jump, null_prob):
    """Posteriors of one pair by summing over every path of places and kinds of step."""
    T, S = emission.shape
    total, out = 0.0, np.zeros((T, S))
    for path in product(range(2 * S), repeat=T):  # place, or place + S for the empty word
        weight, place = 1.0, None
        for t, state in enumerate(path):
            to, real = state % S, state < S
            if real:
                move = start[to] if place is None else jump[place, to] / jump[place].sum()
                weight *= (1 - null_prob) * move * emission[t, to]
            else:
                move = start[to] if place is None else float(place == to)
                weight *= null_prob * move * null[t]
            place = to
        weight *= end[place]
        total += weight
        for t, state in enumerate(path):
            if state < S:
                out[t, state] += weight
    return out / total


def test_posteriors_match_enumeration_also_in_padding():
    rng = np.random.default_rng(3)
    S, T, null_prob, max_jump = 3, 3, 0.3, 2
    sizes = [(3, 3), (2, 3), (3, 1), (1, 2)]
    n_states, n_steps = (np.array(column) for column in zip(*sizes, strict=True))
    emission = np.zeros((T, len(sizes), S), np.float32)
    null = np.zeros((T, len(sizes)), np.float32)
    for b, (s, t) in enumerate(sizes):
        emission[:t, b, :s] = rng.random((t, s))
        null[:t, b] = rng.random(t)
    weights = [rng.random(n).astype(np.float32) + 0.1 for n in (5, 3, 3)]
    direction = seed_hmm.Direction(null, *weights)
    got = seed_hmm._hmm(emission.copy(), null, n_states, n_steps, direction, null_prob)
    for b, (s, t) in enumerate(sizes):
        jump = direction.jump[seed_hmm._widths(s, max_jump)]
        start, end = seed_hmm._ends(direction, np.array([s]), s)
        want = enumerated(emission[:t, b, :s], null[:t, b], start[0], end[0], jump, null_prob)
        np.testing.assert_allclose(got[:t, b, :s], want, rtol=1e-4, atol=1e-6)
        assert not got[t:, b].any() and not got[:, b, s:].any()


# ---- the command ----


@pytest.fixture
def files(corpus, tmp_path: Path) -> tuple[str, str]:
    pairs = [*corpus[0][:150], ([], ["a"]), (["a"], [])]
    for name, side in (("src", 0), ("tgt", 1)):
        lines = "".join(" ".join(pair[side]) + "\n" for pair in pairs)
        (tmp_path / name).write_text(lines)
    return str(tmp_path / "src"), str(tmp_path / "tgt")


def run(*args: str):
    return CliRunner().invoke(main, list(args))


def test_command_writes_a_line_for_each_pair(files):
    result = run(*files)
    lines = result.stdout.split("\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(lines) == 153 and lines[150:] == ["", "", ""]
    assert lines[0].startswith("0-")


def test_command_writes_scores_and_keeps_the_model(files, tmp_path):
    out, scores, kept = (str(tmp_path / name) for name in ("out", "scores.gz", "kept.npz"))
    result = run(*files, "-o", out, "--scores", scores, "--save", kept, "--signature")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "mx-seed|v:" in result.stderr and "pairs:150" in result.stderr
    from ....engine.text.files import read_lines

    scored = [[link.split(":")[0] for link in line.split()] for line in read_lines(scores)]
    assert scored == [line.split() for line in read_lines(out)]
    assert run(*files, "--load", kept).stdout == Path(out).read_text()


@pytest.mark.parametrize("name", ["out", "out.zst"])
def test_command_replaces_nothing_before_all_is_aligned(files, tmp_path, name, monkeypatch):
    def fails(self, pairs, threshold):
        yield [(0, 0, 1.0)]
        raise InputError("the disk is gone")

    monkeypatch.setattr(SeedModel, "align", fails)
    out = tmp_path / name
    out.write_text("links of an earlier run")
    assert run(*files, "-o", str(out), "--scores", str(tmp_path / "scores")).exit_code == 2
    assert out.read_text() == "links of an earlier run"
    assert {path.name for path in tmp_path.iterdir()} == {"src", "tgt", name}


def test_command_writes_no_file_twice_and_no_input(files, tmp_path):
    for flags in (["-o", files[0]], ["-o", "x", "--scores", "x"], ["--scores", files[1]]):
        found = run(*files, *flags)
        assert found.exit_code == 2 and "is an input or would be written twice" in found.stderr


def test_command_explains_mistakes(files, tmp_path):
    (tmp_path / "short").write_text("a b\n")
    for args, message in (
        (("-", files[1]), "cannot be read twice"),
        ((files[0], str(tmp_path / "absent")), "does not exist"),
        ((files[0], str(tmp_path / "short")), "equal line counts"),
        ((*files, "--load", str(tmp_path / "absent")), "does not exist"),
        ((*files, "--load", "m", "--lowercase"), "--load m learns nothing, so that --lowercase"),
        ((*files, "--load", "m", "--max-words", "9", "--save", "n"), "--max-words, --save cannot"),
    ):
        result = run(*args)
        assert result.exit_code == 2
        assert message in result.stderr and "Traceback" not in result.stderr


def test_a_line_too_long_for_its_jumps_gets_no_links():
    """It has few cells beside a short one, but its jumps from word to word fill the memory."""
    long = ["w"] * (seed_text._MAX_WORDS + 1)
    pairs = [(["0w", "1w"], ["q0x", "q1x"])] * 40
    model = SeedModel.learn(iter(pairs), SeedConfig())
    found = list(model.align([*pairs[:1], (long, ["q0x"]), (["0w"], long), *pairs[:1]]))
    assert found[0] == found[3] and found[0] and found[1] == found[2] == []

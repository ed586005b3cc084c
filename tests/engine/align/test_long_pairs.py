"""Long pairs are split where hardly a link crosses, and their parts are aligned as pairs."""

from collections import deque
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.align import long_pairs
from ....engine.align.long_pairs import LONG, SEVERAL, Look, Split, choose_splits
from ....engine.aligner import Aligner
from ....engine.bundle.manifest import Thresholds
from ....engine.bundle.writing import write_bundle
from ....engine.text.sentence_ends import find_sentence_ends
from ....engine.types import Links, Pieces
from ...support.bundles import write_toy

WORDS = [f"w{k}" for k in range(400)]


def split_words(src, tgt, links, scores=None, again=False):
    """Split a pair of lists of words by its links, all of score 1 if none are given."""
    i, j = np.array(sorted(links), np.int64).reshape(-1, 2).T
    scores = np.ones(len(i), np.float32) if scores is None else scores
    [src_ends], [tgt_ends] = find_sentence_ends([src], [tgt])
    return long_pairs.split_pair(src_ends, tgt_ends, i, j, scores, again)


def sentences(n, size):
    return [word for k in range(n) for word in [*WORDS[:size], "."]]


def test_sentences_are_found_by_their_ends():
    src, tgt = sentences(6, 19), sentences(6, 19)
    assert split_words(src, tgt, [(k, k) for k in range(120)]) == [
        (20 * k, 20 * k) for k in range(7)
    ]


@pytest.mark.parametrize("end", [".", "?", "...", "!»", ";", "。"])
def test_ends_of_sentences_are_better_places_than_pauses(end):
    """Even if the parts are of very different lengths then."""
    one = [*WORDS[:4], end, *WORDS[:14], ",", *WORDS[:14], end]
    size = len(one)
    found = split_words(one * 4, one * 4, [(k, k) for k in range(4 * size)])
    wanted = [size * k + more for k in range(4) for more in (0, 5)]
    assert found == [(place, place) for place in [*wanted, 4 * size]]


def test_without_pauses_or_ends_nothing_is_won():
    src, tgt = ([word if word != "." else other for word in sentences(6, 9)] for other in "xy")
    assert split_words(src, tgt, [(k, k) for k in range(60)]) == [(0, 0), (60, 60)]


def test_an_end_that_the_other_side_lacks_is_used_if_the_parts_are_long():
    """At the last place where no link crosses: what has no links there rather ends a sentence."""
    one, two = [*WORDS[:29], "."], [*WORDS[30:58], "x", "y"]
    links = [(k, k) for k in range(28)]
    links += [(i + 30, j + 30) for i, j in links]
    whole = [(0, 0), (60, 60)]
    assert split_words(one + two, two + two, links) == [(0, 0), (30, 30), (60, 60)]
    assert split_words(two + two, two + one, links) == whole  # it ends there anyway
    assert split_words(two + two, one + two, links) == [(0, 0), (30, 30), (60, 60)]
    short, lacks = ([*WORDS[:12], mark, *WORDS[:12], "y"] for mark in ".x")
    assert split_words(short, lacks, [(k, k) for k in range(12)]) == [(0, 0), (26, 26)]


@pytest.mark.parametrize(("opens", "closes"), [("(", ")"), ('"', '"'), ("„", "“")])
def test_what_closes_a_sentence_stays_with_it(opens, closes):
    one = [opens, *WORDS[:18], ".", closes]
    bounds = [(21 * k, 21 * k) for k in range(5)]
    linked = [(k, k) for k in range(84)]
    assert split_words(one * 4, one * 4, linked) == bounds
    words = [(i, j) for i, j in linked if i % 21 < 19]  # no mark is linked
    assert split_words(one * 4, one * 4, words) == bounds


@pytest.mark.parametrize("turned", [False, True])
def test_quotes_that_do_not_come_in_pairs_say_nothing_on_either_side(turned):
    """Each is linked to one of the other side, and no split comes between them."""
    good = ["«", *WORDS[:18], ".", "»"] * 4
    bad = ['"', *WORDS[:18], "."] + ['"', *WORDS[:18], ".", '"'] * 3
    lost = [k for k in range(84) if k != 20]  # the first that closes
    links = [(k, place) for place, k in enumerate(lost)]
    src, tgt = (bad, good) if turned else (good, bad)
    links = [pair[::-1] for pair in links] if turned else links
    for p, q in split_words(src, tgt, links):
        assert all((i < p) == (j < q) for i, j in links)


def test_leaders_are_split_like_words():
    """Dots that lead to the number of a page: a part each, for there is nothing to see in them."""
    src = tgt = [*sentences(3, 19), *["."] * 300, *sentences(3, 19)]
    sizes = np.diff(np.array(split_words(src, tgt, [(k, k) for k in range(len(src))])), axis=0)
    assert sizes.max() <= 20


@pytest.mark.parametrize("turned", [False, True])
def test_what_one_side_alone_has_does_not_keep_the_rest_together(turned):
    """Many short sentences without a link, whose ends are all at one place of the other."""
    src = [*sentences(10, 19), *["x", "y", "."] * 500, *sentences(10, 19)]
    tgt = sentences(20, 19)
    links = [(k if k < 200 else k + 1500, k) for k in range(400)]
    if turned:
        src, tgt, links = tgt, src, [(j, i) for i, j in links]
    sizes = np.diff(np.array(split_words(src, tgt, links)), axis=0)
    assert sizes.min(axis=1).max() <= 40


def test_a_sentence_is_split_inside_only_if_it_is_long_by_itself():
    """As in a line of its own."""
    one = [*WORDS[:24], ",", *WORDS[:24], ",", *WORDS[:8], "."]
    size = len(one)
    assert size < LONG
    found = split_words(one * 4, one * 4, [(k, k) for k in range(4 * size)])
    assert found == [(size * k, size * k) for k in range(5)]
    long = [*WORDS[:40], ",", *WORDS[:40], "."]
    linked = [(k, k) for k in range(4 * len(long))]
    assert len(split_words(long * 4, long * 4, linked)) == 9
    again = split_words(long * 4, long * 4, linked, again=True)
    assert len(again) == 5  # what a look at one sentence alone may show is left for later


@pytest.mark.parametrize("turned", [False, True])
def test_either_side_may_be_long(turned):
    src = [*WORDS[:25], ",", *WORDS[:24]]
    tgt = [*WORDS[:25], *["v"] * 3, ",", *["u"] * 6, *WORDS[:24], *["z"] * 25]
    links = [(k, k) for k in range(25)] + [(25, 28)] + [(26 + k, 35 + k) for k in range(24)]
    if turned:
        src, tgt, links = tgt, src, [(j, i) for i, j in links]
    assert max(map(len, (src, tgt))) > LONG > min(map(len, (src, tgt)))
    assert (29, 26)[:: 1 if turned else -1] in split_words(src, tgt, links)


def test_an_end_that_is_linked_to_a_pause_is_an_end():
    """Inside a sentence this split would be cheaper, but is not looked for."""
    src, tgt = ([*WORDS[:29], mark, *WORDS[30:59], "."] for mark in ".,")
    assert split_words(src, tgt, [(k, k) for k in range(60)]) == [(0, 0), (30, 30), (60, 60)]


def test_half_ends_are_used_if_both_sides_have_them():
    half, none = ([*WORDS[:29], mark, *WORDS[30:59], "."] for mark in ";z")
    words = [(k, k) for k in range(60) if k != 29]
    assert split_words(half, half, words) == [(0, 0), (30, 30), (60, 60)]
    for src, tgt in ((half, none), (none, half)):
        assert split_words(src, tgt, words) == [(0, 0), (60, 60)]


def make_sentences(*sizes):
    return [word for size in sizes for word in [*WORDS[: size - 1], "."]]


def test_sentences_are_rather_paired_one_by_one():
    """The second is linked to nothing, and the first to the second of the target: two for the first
    and one for both others would lose no link and have parts of equal size."""
    links = [(k, k) for k in range(19)] + [(k, k) for k in range(50, 70)] + [(19, 20)]
    found = split_words(make_sentences(40, 10, 30), make_sentences(20, 20, 40), links)
    assert found == [(0, 0), (40, 20), (50, 40), (80, 80)]


def test_half_ends_do_not_count_when_sentences_are_paired():
    src = [*WORDS[:19], ".", *WORDS[:19], "."]
    tgt = [*WORDS[:15], ";", *WORDS[16:21], ".", *WORDS[:19], "."]
    links = [(k, k) for k in range(12)] + [(k + 20, k + 22) for k in range(19)]
    stray = [(k + 20, k + 16) for k in range(3)]  # the second, in what follows the semicolon
    assert split_words(src, tgt, [*links, *stray]) == [(0, 0), (20, 22), (40, 42)]


@pytest.mark.parametrize(("crossing", "is_split"), [(4, True), (6, False)])
@pytest.mark.parametrize("mark", [".", ";", "x"])
def test_only_few_links_may_cross_a_split(mark, crossing, is_split):
    """However long the line is, and whether the other side has an end there or not."""
    src, tgt = [*WORDS[:99], ".", *WORDS[:99], "."], [*WORDS[:99], mark, *WORDS[:99], "."]
    links = [(k, k) for k in range(200) if k != 99] + [(k, k + 100) for k in range(crossing)]
    assert (100 in [p for p, _ in split_words(src, tgt, links)]) is is_split


def test_without_punctuation_long_lines_are_split_between_neighbours():
    bounds = split_words(WORDS, WORDS, [(k, k) for k in range(400)])
    sizes = np.diff(np.array(bounds), axis=0)
    assert len(bounds) > 2 and sizes.max() < 100 and (sizes[:, 0] == sizes[:, 1]).all()


def test_a_stray_link_does_not_keep_two_sentences_together():
    src, tgt = sentences(6, 19), sentences(6, 19)
    links = [(k, k) for k in range(120)]
    whole = split_words(src, tgt, links)
    assert split_words(src, tgt, [*links, (3, 111)]) == whole


def test_what_many_links_cross_is_not_split():
    """Two halves that have changed places: any split between them would lose one."""
    src, tgt = sentences(6, 19), sentences(6, 19)
    links = [(k, (k + 60) % 120) for k in range(120)]
    assert split_words(src, tgt, links) == [(0, 0), (120, 120)]
    assert len(split_words(src, tgt, [(k, k) for k in range(60)] + links[60:64])) > 2


def test_ends_that_are_linked_to_others_are_put_right_by_the_words():
    """All marks of the source are linked to the end before theirs in the target."""
    src = tgt = sentences(6, 19)
    words = [(k, k) for k in range(120) if k % 20 != 19]
    marks = [(k, k - 20) for k in range(39, 120, 20)]
    assert split_words(src, tgt, [*words, *marks]) == [(20 * k, 20 * k) for k in range(7)]
    short = sentences(40, 4)
    words = [(k, k) for k in range(200) if k % 5 != 4]
    marks = [(k, k - 70) for k in range(74, 200, 5)]  # more of them than may cross
    assert len(split_words(short, short, [*words, *marks])) == 41


def test_parts_of_pairs_are_counted_in_pieces():
    """Each source word has two pieces, each target word one; the pair between is not asked for."""
    words = sentences(3, 19)
    src = Pieces(
        ids=np.zeros(360),
        words=np.tile(np.repeat(np.arange(60), 2), 3),
        offsets=np.arange(4) * 120,
        n_words=np.full(3, 60),
    )
    tgt = Pieces(np.zeros(180), np.tile(np.arange(60), 3), np.arange(4) * 60, np.full(3, 60))
    i = np.arange(60)
    to_one_word = np.zeros(60, np.int64)  # in the last pair, where nothing can be split
    links = Links(
        offsets=np.array([0, 60, 60, 120]),
        src=np.tile(i, 2),
        tgt=np.concatenate([i, to_one_word]),
        score=np.ones(120, np.float32),
        sure=np.ones(120, bool),
    )
    parts = long_pairs.split_long_pairs(
        np.array([0, 2]), np.array([False, False]), links, [words] * 3, [words] * 3, src, tgt
    )
    assert parts.tolist() == [
        [0, 0, 40, 0, 20],
        [0, 40, 80, 20, 40],
        [0, 80, 120, 40, 60],
        [2, 0, 120, 0, 60],
    ]


@pytest.mark.parametrize(
    "links", [[], [(0, 0)], [(99, 0)], [(0, 99)], [(k, 5) for k in range(100)]]
)
def test_where_there_is_nothing_to_split_by_the_pair_stays_whole(links):
    assert split_words(WORDS[:100], WORDS[:100], links) == [(0, 0), (100, 100)]


def test_other_links_than_those_of_neighbours_do_not_tell_where_to_split():
    links = [(k, k) for k in range(0, 200, 2)]
    assert split_words(WORDS[:200], WORDS[:200], links) == [(0, 0), (200, 200)]


def test_without_links_ends_tell_nothing():
    assert split_words(sentences(6, 19), sentences(6, 19), []) == [(0, 0), (120, 120)]


def test_one_word_cannot_be_split():
    assert split_words(["a", ".", "b"], ["x"], [(0, 0)]) == [(0, 0), (3, 1)]


def test_too_many_ends_to_try_them_all_are_split_by_their_links(monkeypatch):
    """The table of all places with all others would not fit into memory."""
    monkeypatch.setattr(long_pairs, "_MAX_CELLS", 1)
    src = tgt = sentences(6, 19)
    assert len(split_words(src, tgt, [(k, k) for k in range(120)])) == 7
    assert (20, 20) not in split_words(src, tgt, [(k, k) for k in range(120) if k % 20 != 19])


def test_parts_may_begin_further_back_than_the_splits_that_are_tried_one_by_one():
    """So a stretch that cannot be split does not keep all that is before it."""
    near = range(1000 - long_pairs._REACH, 1000)
    assert {0, 1000 - 512, 1000 - 128, *near} <= set(long_pairs._list_starts(1000))
    assert sorted(long_pairs._list_starts(3)) == [0, 1, 2]


@st.composite
def linked(draw):
    links = sorted(draw(st.sets(st.tuples(st.integers(0, 70), st.integers(0, 90)), max_size=150)))
    scores = st.lists(st.floats(0, 1, width=32), min_size=len(links), max_size=len(links))
    return links, np.array(draw(scores), np.float32)


@settings(deadline=None)
@given(linked(), st.lists(st.tuples(st.integers(0, 71), st.integers(0, 91)), max_size=20))
def test_what_crosses_each_split(found, places):
    links, scores = found
    i, j = np.array(links, np.int64).reshape(-1, 2).T
    p, q = np.array(sorted(places), np.int64).reshape(-1, 2).T
    rows, columns = np.unique(p), np.unique(q)
    look = Look(None, None, i, j, scores)
    table = long_pairs.tabulate_crossing(rows, columns, look)
    for a, b, crossing in zip(p, q, long_pairs.sum_crossing(p, q, look), strict=True):
        apart = [(x < a) != (y < b) for x, y in links]
        assert crossing == pytest.approx(scores[apart].sum(), abs=1e-4)
        assert table[rows == a, columns == b] == pytest.approx(crossing, abs=1e-4)


@pytest.mark.slow
@settings(deadline=None)
@given(linked(), st.lists(st.sampled_from(["a", "b", ",", ".", '"']), min_size=91, max_size=91))
def test_parts_divide_both_sides(found, words):
    links, scores = found
    bounds = np.array(split_words(words[:71], words, links, scores))
    assert bounds[0].tolist() == [0, 0] and bounds[-1].tolist() == [71, 91]
    assert (np.diff(bounds, axis=0) > 0).all()
    for p, q in bounds[1:-1].tolist():
        ends = {".", '"'} & {words[p - 1], words[q - 1]}
        assert ends or (p - 1, q - 1) in links


def test_no_other_splits_are_cheaper():
    """Of all subsets of a few possible ones."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        src, tgt = (sorted([0, *rng.integers(1, 100, 7).tolist(), 100]) for _ in range(2))
        own, surplus = [0, *rng.uniform(-2, 5, 7).tolist(), 0], rng.integers(-1, 2, 9).tolist()
        possible = [Split(*row) for row in zip(src, tgt, [True] * 9, own, surplus, strict=True)]

        def cost(chosen):
            total = sum(split.cost for split in chosen)
            for first, last in pairwise(chosen):
                sizes = last.src - first.src, last.tgt - first.tgt
                total += np.inf if min(sizes) <= 0 else (max(sizes) / long_pairs._EASY) ** 2
                total += long_pairs._UNEVEN * abs(last.surplus - first.surplus)
            return total

        subsets = [[k + 1 for k in range(7) if number >> k & 1] for number in range(128)]
        least = min(cost([possible[k] for k in (0, *subset, 8)]) for subset in subsets)
        assert cost(choose_splits(possible)) == pytest.approx(least)


# ---- in the engine ----


def joined(aligner, pairs):
    return aligner.align_pair(" ".join(s for s, _ in pairs), " ".join(t for _, t in pairs))


def moved(aligner, pairs):
    """The links of single pairs, where their words are when they are joined."""
    alone, src, tgt = set(), 0, 0
    for s, t in pairs:
        alone |= {(i + src, j + tgt) for i, j in aligner.align_pair(s, t)}
        src, tgt = src + len(s.split()), tgt + len(t.split())
    return alone


@pytest.fixture(scope="module")
def sample():
    text = [Path(__file__).parents[2] / "data" / name for name in ("sample.en", "sample.fr")]
    return list(zip(*(path.read_text("utf-8").splitlines() for path in text), strict=True))


def test_joined_sentences_keep_their_links(sample):
    aligner = Aligner.load(langs="en-fr", backend="cpu", threads=1)
    pairs = sample * 3
    assert sum(len(s.split()) for s, _ in pairs) > LONG
    alone, together = moved(aligner, pairs), set(joined(aligner, pairs))
    assert len(alone & together) > 0.95 * max(len(alone), len(together))


def test_very_long_pairs_are_split_anew_by_what_their_parts_show(sample, monkeypatch):
    """Those alone: a first look at many words at once is the worse for it."""
    asked = []

    def spy(pairs, *rest):
        asked.append(pairs.tolist())
        return keep(pairs, *rest)

    keep = long_pairs.split_long_pairs
    monkeypatch.setattr(long_pairs, "split_long_pairs", spy)
    aligner = Aligner.load(langs="en-fr", backend="cpu", threads=1)
    some = [[*sample * 3][:n] for n in (1, 8, 24, 9)]
    src, tgt = ([" ".join(pair[side] for pair in each) for each in some] for side in (0, 1))
    sizes = [max(len(s.split()), len(t.split())) for s, t in zip(src, tgt, strict=True)]
    assert LONG < sizes[1] < sizes[3] < 2 * LONG < sizes[2] < 4 * LONG
    assert [len(one.src) for one in aligner.align_batch(src, tgt)] == [len(s.split()) for s in src]
    assert asked == [[1, 2, 3], [2]]


def test_sentences_that_share_a_line_are_looked_at_before_it_is_long(sample):
    """A line of one sentence is aligned at once, and one of two sentences in one of them, too."""
    aligner = Aligner.load(langs="en-fr", backend="cpu", threads=1)
    tokenizer = aligner.require_model()[0].tokenizers[0]
    one = WORDS[:30]

    def looks(src, tgt):
        pieces = map(tokenizer.encode_many, ([src], [tgt]))
        return long_pairs.count_looks([src], [tgt], *pieces).tolist()

    for end in (".", "...", "?!", '."', "。」", ";", "house.", "house:"):
        two = [*WORDS[:14], end, *WORDS[:14], end]
        assert looks(two, two) == looks(two, deque(two)) == [1]
        assert looks(two, [*one, end]) == looks(one, two) == looks(two[:20], two[:20]) == [0]
        assert looks(two, []) == looks([], two) == [0]
    assert [*map(looks, [one] * 6, [one * n for n in (2, 3, 4, 5, 9, 99)])] == [
        [0],
        [1],
        [1],
        [2],
        [3],
        [4],
    ]
    src, tgt = (" ".join(pair[side] for pair in sample[:3]) for side in (0, 1))
    assert SEVERAL < len(src.split()) < LONG
    assert set(aligner.align_pair(src, tgt)) == moved(aligner, sample[:3])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["soft", "forward", "grow-diag-final-and"])
def test_same_links_for_all_chunks_and_threads(sample, mode):
    pairs = [pair for n in (1, 8, 20, 3, 12) for pair in ([*sample * 2][:n], [*sample * 2][-n:])]
    src, tgt = ([" ".join(pair[side] for pair in some) for some in pairs] for side in (0, 1))
    load = {"backend": "cpu", "symmetrize": mode, "nulls": True, "threads": 2}
    wanted = Aligner.load(langs="en-fr", **load).align_batch(src, tgt)
    assert any(len(one.src) > 2 * LONG for one in wanted)
    for one in wanted:
        assert len(one.src_null) == len(one.src) and len(one.tgt_null) == len(one.tgt)
    for size in (1, 3, 100):
        found = Aligner.load(langs="en-fr", **load).align(src, tgt, chunk=size)
        assert list(found) == wanted
    turned = Aligner.load(langs="fr-en", **load).align_batch(tgt, src)
    if mode == "soft":
        assert [set(one) for one in turned] == [{(j, i) for i, j in one} for one in wanted]
        assert [one.tgt_null for one in turned] == [one.src_null for one in wanted]


def test_an_error_while_splitting_is_raised_after_what_came_before(sample, monkeypatch):
    aligner = Aligner.load(langs="en-fr", backend="cpu", threads=2)
    long = [" ".join(pair[side] for pair in sample * 3) for side in (0, 1)]

    def fail(*arguments):
        raise RuntimeError("no scissors")

    monkeypatch.setattr(long_pairs, "split_long_pairs", fail)
    found = aligner.align([sample[0][0], long[0]], [sample[0][1], long[1]], chunk=1)
    assert len(next(found)) > 0
    with pytest.raises(RuntimeError, match="no scissors"):
        next(found)


@pytest.mark.slow
def test_a_bundle_whose_threshold_is_0(tmp_path):
    """Cells outside the sentences have the score 0 and are no links, in the first look as well."""
    old = write_toy(tmp_path / "old.mx")
    none = replace(old.manifest, thresholds=Thresholds(0.0, 0.5, 0.0, "by hand"))
    files = {name: old.read_file(name) for name in old.manifest.files}
    made = write_bundle(tmp_path / "new.mx", none, files)
    aligner = Aligner.load(made.path, backend="cpu", threshold=0.3)
    for n in range(61, 70):
        one = aligner.align_pair("ein Haus " * n, "a house " * n)
        assert all(i < 2 * n and j < 2 * n for i, j in one)


@pytest.mark.slow
def test_a_higher_threshold_only_takes_links_away(sample):
    found = [
        set(joined(Aligner.load(langs="en-fr", backend="cpu", threshold=t), sample * 3))
        for t in (0.05, 0.5, 0.9)
    ]
    assert found[2] <= found[1] < found[0]


def test_soft_is_about_the_same_parts_as_the_links(sample):
    aligner = Aligner.load(langs="en-fr", backend="cpu", nulls=True)
    pairs = sample * 3
    links = joined(aligner, pairs)
    soft = aligner.soft(links.src, links.tgt)
    for (i, j), score in zip(links.links, links.scores, strict=True):
        assert soft.scores[i, j] == pytest.approx(score, abs=1e-5)
    found = {(int(i), int(j)) for i, j in np.argwhere(soft.scores >= aligner.rule.threshold)}
    assert found == set(links)
    assert links.src_null == pytest.approx(soft.src_null.tolist(), abs=1e-5)


def test_long_pairs_with_an_empty_side_or_too_many_words_have_no_links(tmp_path):
    aligner = Aligner.load(write_toy(tmp_path / "toy.mx").path, backend="cpu")
    long = "ein Haus " * 50
    assert [len(a) for a in aligner.align([long, "", long], ["", long, "a " * 70000])] == [0, 0, 0]

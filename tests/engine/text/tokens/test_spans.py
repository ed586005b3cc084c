"""Words and tokens are joined by the characters they share; links go from the one to the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .....engine.text.tokens.spans import find_spans, join_spans, spread_links, trim_span
from .....engine.types import Links, Pairs, SideTokens


def test_words_stand_one_after_the_other():
    assert find_spans(["a", "a", "ba"], "a  a ba") == [(0, 1), (3, 4), (5, 7)]
    assert trim_span(" a b ", 0, 5) == (1, 4)
    assert trim_span("   ", 0, 3) == (3, 3)


def test_a_word_lies_on_all_tokens_that_have_characters_of_it():
    first, end = join_spans(
        ["house.!", "", "ab"],
        [[(0, 5), (5, 6), (6, 7)], [], [(0, 1), (1, 2)]],
        [[(0, 3), (3, 6), (6, 7)], [], [(0, 2)]],
    )
    assert first.tolist() == [0, 1, 2, 0, 0] and end.tolist() == [2, 2, 3, 1, 1]


def make_links(rows, n_pairs, nulls=(None, None)):
    """Make links of rows (pair, source, target, score)."""
    pair, src, tgt, score = (np.array(column) for column in zip(*rows, strict=True))
    offsets = np.searchsorted(pair, np.arange(n_pairs + 1))
    return Links(offsets, src, tgt, score.astype(np.float32), score > 0.5, *nulls)


def split_side(lines):
    """Make a side of lines whose tokens are parted by |, its words by spaces."""
    texts = [line.replace("|", "") for line in lines]
    words = [text.split() for text in texts]
    tokens, spans = [], []
    for line in lines:
        place, own, places = 0, [], []
        for token in line.split("|"):
            start = place + (len(token) - len(token.lstrip()))
            own.append(token.strip() or "_")
            places.append((start, max(start, place + len(token.rstrip()))))
            place += len(token)
        tokens.append(own)
        spans.append(places)
    word_spans = [find_spans(*row) for row in zip(words, texts, strict=True)]
    first, end = join_spans(texts, word_spans, spans)
    return words, SideTokens(tokens, texts, spans, first, end)


def test_a_link_of_words_becomes_links_of_all_their_tokens():
    src, src_tokens = split_side(["ho|use| is", "x"])
    tgt, tgt_tokens = split_side(["das |Haus", "yy"])
    pairs = Pairs(0, src, tgt, src_tokens=src_tokens, tgt_tokens=tgt_tokens)
    nulls = np.array([0.25, 0.5, 1], np.float32), np.array([0.5, 0, 1], np.float32)
    links = make_links([(0, 0, 1, 0.9), (0, 1, 0, 0.4), (1, 0, 0, 0.7)], 2, nulls)
    spread, found = spread_links(pairs, links)
    assert spread.src == [["ho", "use", "is"], ["x"]] and spread.tgt[0] == ["das", "Haus"]
    rows = list(zip(found.src.tolist(), found.tgt.tolist(), strict=True))
    assert rows == [(0, 1), (1, 1), (2, 0), (0, 0)]
    assert found.offsets.tolist() == [0, 3, 4]
    assert found.score.tolist() == pytest.approx([0.9, 0.9, 0.4, 0.7])
    assert found.src_null.tolist() == pytest.approx([0.25, 0.25, 0.5, 1])


def test_tokens_of_several_words_get_the_best_of_their_links():
    src, src_tokens = split_side(["new york"])  # one token on two words
    pairs = Pairs(0, src, [["a", "b"]], src_tokens=src_tokens)
    nulls = np.array([0.9, 0.2], np.float32), None
    links = make_links([(0, 0, 0, 0.4), (0, 1, 0, 0.8), (0, 1, 1, 0.3)], 1, nulls)
    _, found = spread_links(pairs, links)
    assert found.src.tolist() == [0, 0] and found.tgt.tolist() == [0, 1]
    assert found.score.tolist() == pytest.approx([0.8, 0.3])
    assert found.sure.tolist() == [True, False]
    assert found.src_null.tolist() == pytest.approx([0.2])


def test_plain_words_stay_as_they_are():
    pairs, links = Pairs(0, [["a"]], [["b"]]), make_links([(0, 0, 0, 1.0)], 1)
    assert spread_links(pairs, links) == (pairs, links)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.sampled_from(["ab| c", "a b", "a|b|c", " a", "a| |b"]), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_links_spread_are_those_that_share_characters(lines, random):
    """Compare with the slow way: two tokens are linked if some words on them are."""
    src, src_tokens = split_side(lines)
    tgt, tgt_tokens = split_side(lines[::-1])
    rows = [
        (k, i, j, random.random())
        for k in range(len(lines))
        for i in range(len(src[k]))
        for j in range(len(tgt[k]))
        if random.random() < 0.6
    ]
    if not rows:
        return
    pairs = Pairs(0, src, tgt, src_tokens=src_tokens, tgt_tokens=tgt_tokens)
    _, found = spread_links(pairs, make_links(rows, len(lines)))
    pair = np.repeat(np.arange(len(lines)), np.diff(found.offsets))
    made = set(zip(pair.tolist(), found.src.tolist(), found.tgt.tolist(), strict=True))
    wanted = set()
    for k, i, j, _ in rows:
        sides = ((src[k], src_tokens, i), (tgt[k], tgt_tokens, j))
        hit = []
        for words, side, place in sides:
            start, end = find_spans(words, side.texts[k])[place]
            spans = enumerate(side.spans[k])
            hit.append([n for n, (a, b) in spans if max(a, start) < min(b, end)])
        wanted |= {(k, a, b) for a in hit[0] for b in hit[1]}
    assert made == wanted

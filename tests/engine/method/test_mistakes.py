"""Likely mistakes are noticed, and good text is left alone."""

import random

import pytest

from ....engine.method.choice import ModelCandidate, choose_method
from ....engine.method.mistakes import find_text_mistakes
from ....engine.types import Pairs
from ...support.made_up_language import make_corpus

SRC, TGT, _ = make_corpus(400, 1)


def choose(src, tgt, model=None, method="auto"):
    return choose_method(method, [Pairs(0, src, tgt)], model)


def make_candidate(right, turned, known=True):
    """A model that finds every word's neighbour with one of two scores."""
    from ..links.test_combination import make_links

    def find(score):
        return lambda pairs: make_links(
            *(
                [(k, k, score) for k in range(min(map(len, both)))]
                for both in zip(pairs.src, pairs.tgt, strict=True)
            )
        )

    return ModelCandidate("toy", find(right), find(turned), known, known)


def test_good_text_gets_one_line():
    assert len([m for m in choose(SRC, TGT).messages if m]) == 1
    assert find_text_mistakes(Pairs(0, SRC, TGT)) == []


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        (SRC, SRC, "both sides are the same in 400 of 400 lines"),
        (SRC, [["0-0", "1-2:0.5"]] * 400, "the target looks like links"),
        ([["3p4"], []] * 200, TGT, "the source looks like links"),
    ],
)
def test_what_is_no_translation(src, tgt, message):
    (warning,) = find_text_mistakes(Pairs(0, src, tgt))
    assert warning.startswith("warning: ") and message in warning


def test_lines_that_do_not_belong_together():
    src, tgt = SRC, random.Random(0).sample(TGT, len(TGT))
    warning = "do the lines belong together"
    assert any(warning in message for message in choose(src, tgt).messages)
    assert not any(warning in message for message in choose(SRC, TGT).messages)
    assert not any(warning in message for message in choose(src[:40], tgt[:40]).messages)


def test_swapped_sides_are_told_or_turned():
    few = SRC[:100], TGT[:100]
    told = choose(*few, make_candidate(0.5, 0.9))
    assert not told.turned and "sides seem swapped" in told.messages[-1]
    turned = choose(*few, make_candidate(0.5, 0.9, known=False))
    assert turned.turned and "turned round" in turned.messages[0]
    right = choose(*few, make_candidate(0.9, 0.8))
    assert not right.turned and len(right.messages) == 1


def test_a_model_that_does_not_know_the_text_is_left_out():
    unlike = make_candidate(0.0, 0.0)
    chosen = choose(SRC, TGT, unlike)
    assert not chosen.model and chosen.statistics and "seems not to know" in chosen.messages[0]
    kept = choose(SRC, TGT, unlike, "both")
    assert kept.model and kept.combination.model == 0

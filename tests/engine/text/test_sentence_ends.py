"""Sentences end at marks that end them, with what closes behind; other words say nothing."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.text import sentence_ends
from ....engine.text.sentence_ends import (
    FULL_END,
    HALF_END,
    NO_MARK,
    PAUSE,
    find_sentence_ends,
    have_inner_ends,
)


def find_in_line(line):
    """Find the ends of one line that is its own translation."""
    [ends], _ = find_sentence_ends([line.split()], [line.split()])
    return ends


def kind_of(word):
    [ends], _ = find_sentence_ends([[word]], [[word]])
    return ends.kinds.tolist()[0]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (NO_MARK, ["word", "word)", "l'", "e-mail", "…x", "``", "$", ""]),
        (PAUSE, [",", "house,", "(", "»", "-", "、", "''"]),
        (HALF_END, [":", ";", "house:", "；"]),
        (FULL_END, [".", "?!", "...", "!»", "。", "؟", "।", ":."]),
    ],
)
def test_kinds_of_words(kind, words):
    assert {word: kind_of(word) for word in words} == dict.fromkeys(words, kind)


@pytest.mark.parametrize(
    "word", ["house.", "house?", 'house."', "(house).", "it!", "so...", "で。", "합니다.", "कहा."]
)
def test_full_ends_may_be_ends_of_words(word):
    """As in text that is not tokenised."""
    assert kind_of(word) == FULL_END


@pytest.mark.parametrize("word", ["mr.", "hon.", "z.B.", "3.", "1990.", "U.S.S.R.", "Japan-U.S."])
def test_dots_of_abbreviations_and_ordinals_end_nothing(word):
    assert kind_of(word) == NO_MARK


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("▁house.", FULL_END),
        (".▁", FULL_END),
        ("▁,", PAUSE),
        ("▁", NO_MARK),
        ("house.\u00a0»", FULL_END),
        ("house.\u200f", FULL_END),
        ("\u200b", NO_MARK),
    ],
)
def test_signs_for_spaces_and_invisible_characters_are_not_seen(word, kind):
    assert kind_of(word) == kind


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("&quot;", PAUSE),
        ("&amp;", PAUSE),
        ("&#93;", PAUSE),
        ("l&apos;", NO_MARK),
        ("AT&amp;T", NO_MARK),
        ("house.&quot;", FULL_END),
        ("house.&quot", FULL_END),
        ("l&amp;apos;", NO_MARK),
        ("&amp;quot;", PAUSE),
    ],
)
def test_escaped_characters_are_read_also_if_escaped_twice(word, kind):
    assert kind_of(word) == kind


def test_ends_inside_a_line():
    ends = find_in_line("He came : I saw , and left . Why ?")
    assert ends.kinds.tolist() == [0, 0, 2, 0, 0, 1, 0, 0, 3, 0, 3]
    assert ends.after.tolist() == list(range(1, 12))
    assert ends.ends.tolist() == [3, 9]
    assert ends.full_ends.tolist() == [9]  # where the line ends, it ends anyway


CLOSERS = ['" "', "' '", "( )", "「 」", "“ ”", "« »", "（ ）", "” ”", "„ “", "» «"]
CLOSERS += ["`` ''", "▁„ “", "&quot; &quot;", "‹ ›", "&amp;quot; &amp;quot;"]


@pytest.mark.parametrize("marks", CLOSERS)
def test_what_closes_behind_an_end_belongs_to_the_sentence(marks):
    """But not what opens there, with the same mark perhaps."""
    opens, closes = marks.split()
    ends = find_in_line(f"{opens} Go ! {closes} {opens} Now ? {closes} {opens} he said . {closes}")
    assert ends.full_ends.tolist() == ends.ends.tolist() == [4, 8]
    assert ends.after.tolist() == [1, 2, 4, 4, 5, 6, 8, 8, 9, 10, 11, 13, 13]
    assert (ends.kinds[[3, 7, 12]] == FULL_END).all() and ends.kinds[4] < HALF_END


def test_several_marks_close_a_sentence():
    ends = find_in_line('( " Go ! " ) Now .')
    assert ends.after.tolist() == [1, 2, 3, 6, 6, 6, 7, 8]
    assert ends.ends.tolist() == [6]


def test_what_closes_elsewhere_is_no_end():
    ends = find_in_line(") so ; ) and ) on .")
    assert ends.kinds.tolist() == [PAUSE, 0, HALF_END, PAUSE, 0, PAUSE, 0, FULL_END]
    assert ends.ends.tolist() == [3]


def test_what_closes_at_the_start_of_a_line_belongs_to_nothing():
    """Though the line before ends with a full end."""
    lines = [["Go", "."], [")", "Now", "."], [], [")"]]
    _, ends = find_sentence_ends(lines, lines)
    assert [line.kinds.tolist() for line in ends] == [[0, 3], [1, 0, 3], [], [1]]
    assert [line.after.tolist() for line in ends] == [[1, 2], [1, 2, 3], [], [1]]


@pytest.mark.parametrize("turned", [False, True])
def test_quotes_that_do_not_come_in_twos_close_nothing_on_either_side(turned):
    good, bad = ["«", "Go", "!", "»", "Now", "."], ['"', "Go", "!", "Now", "."]
    sides = find_sentence_ends([bad], [good]) if turned else find_sentence_ends([good], [bad])
    assert [ends.ends.tolist() for [ends] in sides] == [[3], [3]]
    others, _ = find_sentence_ends([good, good], [good, bad])  # each pair for itself
    assert [ends.ends.tolist() for ends in others] == [[4], [3]]


def test_single_and_double_quotes_are_counted_apart():
    ends = find_in_line('\' " Go ! " Now .')
    assert ends.ends.tolist() == [5]


def test_many_closing_marks_take_no_time():
    """A line of 60,000 took seconds when each looked at all before it."""
    words = [".", *[")"] * 60_000]
    [ends], _ = find_sentence_ends([words], [words])
    assert ends.after.tolist() == [len(words)] * len(words)


def test_the_last_word_is_no_inner_end():
    lines = [[], ["."], ["a", "."], [".", "a"], ["a", ";", "b"], ["a", ",", "b"], [], ["."]]
    wanted = [False, False, False, True, True, False, False, False]
    assert have_inner_ends(lines).tolist() == wanted
    assert have_inner_ends([deque(line) for line in lines]).tolist() == wanted
    assert have_inner_ends([]).tolist() == []


def test_codes_that_are_forgotten_are_found_again(monkeypatch):
    line = "Go ! « Now . »"
    wanted = find_in_line(line)
    monkeypatch.setattr(sentence_ends, "_MAX_CODES", 0)
    for _ in range(2):
        assert [column.tolist() for column in find_in_line(line)] == [
            column.tolist() for column in wanted
        ]


WORDS = st.lists(st.sampled_from(["a", ",", ";", ".", "!", ")", '"', "'", "``"]), max_size=12)


@settings(deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS), max_size=5))
def test_lines_do_not_depend_on_their_neighbours(pairs):
    src, tgt = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for side, together in enumerate(find_sentence_ends(src, tgt)):
        for k, ends in enumerate(together):
            [alone] = find_sentence_ends(src[k : k + 1], tgt[k : k + 1])[side]
            for column, wanted in zip(ends, alone, strict=True):
                assert column.tolist() == wanted.tolist()


@settings(deadline=None)
@given(WORDS)
def test_ends_are_where_the_words_say(words):
    [ends], _ = find_sentence_ends([words], [words])
    places = np.unique(ends.after[ends.kinds >= HALF_END])
    assert ends.ends.tolist() == [place for place in places.tolist() if place < len(words)]
    full = np.unique(ends.after[ends.kinds == FULL_END])
    assert ends.full_ends.tolist() == [place for place in full.tolist() if place < len(words)]
    assert (np.diff(ends.after) >= 0).all()

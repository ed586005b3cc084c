import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.text.words import normalize_word, split_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        (" \t ", []),
        ("a b", ["a", "b"]),
        ("  a\t\tb ", ["a", "b"]),
        ("a\u3000b\xa0c\u2028d\x85e\x0bf\x1cg\rh", ["a\u3000b\xa0c\u2028d\x85e\x0bf\x1cg\rh"]),
        ("a \r", ["a", "\r"]),
    ],
)
def test_words_stand_between_spaces_and_tabs(line, words):
    assert split_words(line) == words


@settings(deadline=None)
@given(st.text(alphabet=" \ta\r\u3000\x85b", max_size=30))
def test_split_against_a_loop(line):
    words, word = [], ""
    for char in line + " ":
        if char in " \t":
            words += [word] if word else []
            word = ""
        else:
            word += char
    assert split_words(line) == words


def test_accents_can_be_folded():
    assert normalize_word("Été", True, True) == "ete"
    assert normalize_word("Été", False, True) == "Ete"
    assert normalize_word("été", True) == "été"
    assert normalize_word("\u0301", True, True) == "\u0301"  # nothing would be left
    assert normalize_word("straße", True, True) == "straße"

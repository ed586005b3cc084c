import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.text.words import normalize_word, split_words, tokenize_line


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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        (" \t\u3000\xa0\u2028", []),
        ("Don't stop, now!", ["Don't", "stop", ",", "now", "!"]),
        ("(a) well-known...", ["(", "a", ")", "well-known", "..."]),
        ("1,000.50 at 12:30, 3.", ["1,000.50", "at", "12:30", ",", "3", "."]),
        ("COVID-19 and B2B", ["COVID-19", "and", "B2B"]),
        ("l’homme", ["l’homme"]),
        ("我喜欢 sushi。", ["我", "喜", "欢", "sushi", "。"]),
        ("カタカナです", ["カタカナ", "で", "す"]),
        ("สวัสดี", ["ส", "วั", "ส", "ดี"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("cafe\u0301 e\u0301", ["cafe\u0301", "e\u0301"]),
        ("a\0b\rc\ufeffd", ["a", "b", "c", "d"]),
        ("price: €5/kg", ["price", ":", "€", "5", "/", "kg"]),
    ],
)
def test_raw_text_is_split_into_words_and_marks(line, words):
    assert tokenize_line(line) == words


@settings(deadline=None)
@given(st.text(max_size=40))
def test_nothing_is_lost_and_every_tool_sees_the_same_words(line):
    words = tokenize_line(line)
    assert split_words(" ".join(words)) == words
    kept = iter(line)
    assert all(char in kept for char in "".join(words))  # in order
    assert tokenize_line(" ".join(words)) is not None
    letters = [char for char in line if char.isalnum()]
    assert [char for char in "".join(words) if char.isalnum()] == letters

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.text.word_tokenizer import tokenize_line
from ....engine.text.words import split_words


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
def test_cases(line, words):
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

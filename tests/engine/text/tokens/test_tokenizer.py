"""Raw text is split into words and marks, and nothing is lost."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .....engine.text.tokens import dictionary_words
from .....engine.text.tokens.tokenizer import find_word_spans, tokenize_line
from .....engine.text.words import split_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        (" \t\u3000\xa0\u2028", []),
        ("(a) well-known...", ["(", "a", ")", "well-known", "..."]),
        ("1,000.50 at 12:30, 3.", ["1,000.50", "at", "12:30", ",", "3", "."]),
        ("COVID-19 and B2B", ["COVID-19", "and", "B2B"]),
        ("我喜欢 sushi。", ["我", "喜", "欢", "sushi", "。"]),
        ("カタカナです", ["カタカナ", "で", "す"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("cafe\u0301 e\u0301", ["cafe\u0301", "e\u0301"]),
        ("a\0b\rc\ufeffd", ["a", "b", "c", "d"]),
        ("price: €5/kg", ["price", ":", "€", "5", "/", "kg"]),
        # clitics
        ("Don't stop, now!", ["Do", "n't", "stop", ",", "now", "!"]),
        ("it's O'Brien's", ["it", "'s", "O'Brien", "'s"]),
        ("L'eau qu'il a aujourd'hui", ["L'", "eau", "qu'", "il", "a", "aujourd'hui"]),
        ("l’homme", ["l’", "homme"]),
        ("l ' eau it 's", [["l", "'"][0], "'", "eau", "it", "'s"]),
        # words with a dot
        ("Mr. Hale met J. R. Doe.", ["Mr.", "Hale", "met", "J.", "R.", "Doe", "."]),
        ("e.g. the U.S. army", ["e.g.", "the", "U.S.", "army"]),
        ("No. 5, see p. 7", ["No.", "5", ",", "see", "p.", "7"]),
        # addresses, tags, signs
        ("See https://a.org/b?c=1, or me@x.org!",
         ["See", "https://a.org/b?c=1", ",", "or", "me@x.org", "!"]),
        ("read.me index.html a.b", ["read", ".", "me", "index.html", "a", ".", "b"]),
        ("#fun with @ann for $5", ["#fun", "with", "@ann", "for", "$", "5"]),
        ("<b>bold</b> &amp; {0} %1$s %d", ["<b>", "bold", "</b>", "&amp;", "{0}", "%1$s", "%d"]),
        ("👨‍👩‍👧 🇫🇷👍🏽!", ["👨‍👩‍👧", "🇫🇷", "👍🏽", "!"]),
        ("20 °C at 90 km/h", ["20", "°C", "at", "90", "km/h"]),
    ],
)  # fmt: skip
def test_raw_text_is_split_into_words_and_marks(line, words):
    assert tokenize_line(line) == words


def test_languages_do_it_their_way():
    assert tokenize_line("Am 17. Dezember", "de") == ["Am", "17.", "Dezember"]
    assert tokenize_line("It was 17. December", "en") == ["It", "was", "17", ".", "December"]
    # Where nothing is elided, l' is no word of its own; nor is n't where English is not spoken.
    assert tokenize_line("d'artagnan", "de") == ["d'artagnan"]
    assert tokenize_line("c'est", "fr_CA") == ["c'", "est"]
    assert tokenize_line("don't", "fr") == ["don't"]


def test_scripts_without_spaces_are_split_with_dictionaries_or_without(monkeypatch):
    monkeypatch.setattr(dictionary_words, "_load_breaker", lambda: None)
    assert tokenize_line("สวัสดี") == ["ส", "วั", "ส", "ดี"]
    monkeypatch.undo()
    pytest.importorskip("icu4py")
    assert tokenize_line("สวัสดี ครับ ok") == ["สวัสดี", "ครับ", "ok"]
    assert tokenize_line("ພາສາລາວ") == ["ພາສາ", "ລາວ"]


_SNIPPETS = st.sampled_from(
    [
        "'",
        "’",
        ".",
        "@",
        "#",
        "<b",
        ">",
        "&lt;",
        "http://a.b",
        "don't",
        "l'",
        "ภาษา",
        "👍🏽",
        " ",
        "1",
    ]
)


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(max_size=8), _SNIPPETS), max_size=8).map("".join))
def test_nothing_is_lost_and_every_tool_sees_the_same_words(line):
    spans = find_word_spans(line)
    words = [line[start:end] for start, end in spans]
    assert words == tokenize_line(line)
    assert split_words(" ".join(words)) == words
    assert all(start < end for start, end in spans)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    covered = {place for start, end in spans for place in range(start, end)}
    assert not [char for n, char in enumerate(line) if char.isalnum() and n not in covered]

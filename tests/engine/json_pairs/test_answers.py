"""Pairs that come as JSON: what is answered, and that it is what mx-align writes."""

from __future__ import annotations

import json

import pytest

from ....engine.aligner import Aligner
from ....engine.errors import InputError
from ....engine.json_pairs.answers import AnswerOptions, answer_pairs
from ....engine.json_pairs.requests import MAX_CHARS, PairRequest, parse_json, parse_pair

RAW = AnswerOptions()


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return Aligner.load(langs="de-en", threads=1)


def ask(aligner: Aligner, *pairs: tuple, options: AnswerOptions = RAW) -> list[dict]:
    requests = [PairRequest(src, tgt) for src, tgt in pairs]
    return [json.loads(answer) for answer in answer_pairs(aligner, requests, options)]


def test_an_answer_has_words_links_scores_and_places(aligner):
    (answer,) = ask(aligner, ("Das Haus ist klein.", "The house is small."))
    assert answer["src"] == ["Das", "Haus", "ist", "klein", "."]
    assert answer["links"] == [[k, k] for k in range(5)]
    assert len(answer["scores"]) == len(answer["probabilities"]) == 5
    assert len(answer["src_null"]) == len(answer["tgt_null"]) == 5
    assert answer["src_spans"] == [[0, 3], [4, 8], [9, 12], [13, 18], [18, 19]]
    assert "id" not in answer and "soft" not in answer


def test_words_are_taken_as_they_are(aligner):
    """Also beside lines, and in any order."""
    pairs = [
        (["das", "Haus"], ["the", "house"]), ("das Haus", "the house"),
        (["das Haus"], "the house"), ("das Haus", ["the", "house"]),
    ]  # fmt: skip
    answers = ask(aligner, *pairs)
    assert [answer["links"] for answer in answers[:2]] == [[[0, 0], [1, 1]]] * 2
    assert answers[2]["src"] == ["das Haus"] and answers[2]["tgt"] == ["the", "house"]
    assert "src_spans" not in answers[0] and "src_spans" not in answers[2]
    assert answers[2]["tgt_spans"] == [[0, 3], [4, 9]]


def test_an_answer_does_not_depend_on_its_neighbours(aligner):
    pairs = [("das Haus " * n, "the house " * n) for n in (1, 30, 2, 9)] + [
        ("", "x"),
        ("a\tb", "c"),
    ]
    for tokens in ("raw", "auto"):
        options = AnswerOptions(tokens)
        together = ask(aligner, *pairs, options=options)
        alone = [ask(aligner, pair, options=options)[0] for pair in pairs]
        assert together == alone


@pytest.mark.parametrize(
    ("offsets", "places"),
    [("codepoints", [[0, 2], [3, 4]]), ("utf16", [[0, 2], [3, 5]]), ("utf8", [[0, 3], [4, 8]])],
)
def test_places_count_what_the_asker_counts(aligner, offsets, places):
    (answer,) = ask(aligner, ("aä 😀", "x"), options=AnswerOptions(offsets=offsets))
    assert answer["src"] == ["aä", "😀"] and answer["src_spans"] == places


def test_tokens_of_users_are_counted(aligner):
    (answer,) = ask(
        aligner, ("▁das ▁Ha us .", "▁the ▁house ."), options=AnswerOptions("sentencepiece")
    )
    assert answer["src"] == ["▁das", "▁Ha", "us", "."] and [1, 0] not in answer["links"]
    assert {1, 2} <= {i for i, _ in answer["links"]}


def test_matrices_are_over_the_words(aligner):
    (answer,) = ask(aligner, ("das Haus .", "house"), options=AnswerOptions(soft=True))
    soft = answer["soft"]
    assert len(soft["scores"]) == 3 and len(soft["scores"][0]) == 1 == len(soft["tgt_null"])
    assert soft["scores"][1][0] == max(row[0] for row in soft["scores"])
    with pytest.raises(InputError, match="90,000"):
        ask(aligner, ("a " * 301, "b " * 300), options=AnswerOptions("words", soft=True))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b'{"src": "a"', "not JSON at line 1, character 12"),
        (b"\xff", "not UTF-8 at byte 1"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"src": NaN}', "NaN is no JSON number"),
        (b"1" * 5000, "not JSON"),
    ],
)
def test_what_is_not_json_is_told(text, wrong):
    with pytest.raises(InputError, match=wrong):
        parse_json(text)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ([], "must be an object like"),
        ({"source": "a"}, 'must have "src".*found \\["source"\\]'),
        ({"src": "a", "tgt": 1}, '"tgt" must be a string or a list of words, not 1'),
        ({"src": ["a", ""], "tgt": "b"}, '"src" must be a string or a list of words'),
        ({"src": "a" * (MAX_CHARS + 1), "tgt": "b"}, "more than 100,000"),
    ],
)
def test_what_is_no_pair_is_told(value, wrong):
    with pytest.raises(InputError, match=wrong):
        parse_pair(value)

"""How tokens are written is told from the first lines, and only where it is unmistakable."""

import pytest

from .....engine.errors import InputError, MxError
from .....engine.text.tokens.detection import (
    detect_scheme,
    is_unspaced,
    looks_raw,
    plan_side,
    plan_tokens,
)

RAW = ["The house is small.", "It's Peter's, isn't it?", "No, thanks!"]
TOKENIZED = ["The house is small .", "It is Mr. Hale 's , is n't it ?", "No , thanks !"]


@pytest.mark.parametrize(
    ("scheme", "lines"),
    [
        ("words", TOKENIZED),
        ("words", RAW),
        ("words", []),
        ("words", ["", " "]),
        ("sentencepiece", ["▁The ▁hou se ▁is ▁small .", "▁No , ▁thank s !"]),
        ("sentencepiece", ["▁Yes", "▁", "▁No ▁no"]),
        ("icu", ["The ▁ house ▁ is ▁ small .", "No , ▁ thanks !", "Yes"]),
        ("moses", ["It &apos;s well @-@ known .", "Yes , it is ."]),
        ("words", ["It &apos;s [ here ] .", "Yes ."]),  # Moses would have escaped the bracket
        ("bpe", ["The hou@@ se is sma@@ ll .", "N@@ o ."]),
        ("words", ["mail me @@ home", "or end in a@@"]),
        ("words", ["a ▁ is a mark", "this one has none", "nor this"]),
    ],
)
def test_schemes_are_told_apart(scheme, lines):
    assert detect_scheme(lines) == scheme


def test_raw_text_has_glued_marks():
    assert looks_raw(RAW) and not looks_raw(TOKENIZED)
    assert looks_raw(["我喜欢吃寿司和面条。我也喜欢茶。"])
    assert is_unspaced(["我喜欢茶。", "ok"]) and is_unspaced(["สวัสดี ครับผมชอบชา"])
    assert not is_unspaced(["我 喜欢 吃 寿司 。"]) and not is_unspaced(RAW)


def test_both_sides_are_told_of_in_one_line():
    pieces = [("▁a ▁b .", "▁x ▁y .")] * 3
    plan = plan_tokens("auto", pieces)
    assert plan.message == "both sides are read as SentencePiece tokens" and plan.spreads
    raw = plan_tokens("auto", zip(RAW, RAW, strict=True))
    assert raw.message.startswith("both sides are raw text") and "--tokens raw" in raw.message
    mixed = plan_tokens("auto", [("▁a ▁b .", "x y .")] * 3)
    assert mixed.message == "the source is read as SentencePiece tokens"
    quiet = plan_tokens("auto", zip(TOKENIZED, TOKENIZED, strict=True))
    assert quiet.message == "" and not quiet.spreads


def test_what_was_asked_for_is_not_questioned():
    assert plan_tokens("words", [("▁a", "▁b")]).message == ""
    assert not plan_tokens("words", [("It's, a.", "b.")]).spreads
    assert plan_tokens("raw", ()).src.scheme == "raw"
    with pytest.raises(MxError, match="tokens must be one of"):
        plan_tokens("letters", ())


def test_text_without_spaces_gets_a_warning():
    reader, note = plan_side("auto", ["我喜欢吃寿司和面条。我也喜欢茶。"], "target")
    assert reader.is_raw and note.startswith("warning: the target has no spaces")


def test_a_model_does_not_cut_pieces_again():
    with pytest.raises(InputError, match="--spm-tgt cuts raw text into pieces, but the target"):
        plan_side("auto", ["▁a ▁b .", "▁c"], "target", "some.model")
    reader, note = plan_side("auto", RAW, "source", "some.model")
    assert reader.model == "some.model" and reader.is_raw and not note

"""Tokens of every scheme spell their text, and keep their places in it."""

import pickle
from itertools import pairwise

import pytest

from .....engine.errors import InputError
from .....engine.text.tokens.schemes import READERS, PieceReader, TokenReader


def shown(scheme, line):
    """Return the text of a line and what stands at the place of each token."""
    row = READERS[scheme](line)
    assert all(a[0] <= b[0] for a, b in pairwise(row.spans))
    return row.text, [row.text[start:end] for start, end in row.spans]


@pytest.mark.parametrize(
    ("scheme", "line", "text", "parts"),
    [
        ("words", "the  house .", "the  house .", ["the", "house", "."]),
        ("sentencepiece", "▁the ▁hou se .", "the house.", ["the", "hou", "se", "."]),
        ("sentencepiece", "▁ a ▁ b", "a b", ["", "a", "", "b"]),
        ("sentencepiece", "▁ <0xE2> <0x82> <0xAC> 5", "€5", ["", "€", "€", "€", "5"]),
        ("icu", "the ▁ house . ▁ It", "the house. It", ["the", "", "house", ".", "", "It"]),
        ("moses", "it &apos;s well @-@ known &amp; so", "it 's well - known & so",
         ["it", "'s", "well", "-", "known", "&", "so"]),
        ("bpe", "lo@@ w@@ er &quot; x@@", 'lower " x@@', ["lo", "w", "er", '"', "x@@"]),
        ("sentencepiece", "", "", []),
    ],
)  # fmt: skip
def test_tokens_spell_their_text(scheme, line, text, parts):
    assert shown(scheme, line) == (text, parts)


def test_words_of_raw_text_lie_on_its_pieces():
    reader = TokenReader("sentencepiece", is_raw=True)
    words, tokens = reader.read_side(["▁It ' s ▁a ▁hou se .", ""])
    assert words == [["It", "'s", "a", "house", "."], []]
    assert tokens.tokens[0] == ["▁It", "'", "s", "▁a", "▁hou", "se", "."]
    assert tokens.first.tolist() == [0, 1, 3, 4, 6] and tokens.end.tolist() == [1, 3, 4, 6, 7]


def test_our_own_words_keep_their_places_when_asked_to():
    words, tokens = TokenReader("raw").read_side(["It's  so."], keep_spans=True)
    assert words == [["It", "'s", "so", "."]] and tokens.first is None
    assert tokens.spans == [[(0, 2), (2, 4), (6, 8), (8, 9)]]
    assert TokenReader("raw").read_side(["It's so."])[1] is None
    words, tokens = TokenReader().read_side([" a b"], keep_spans=True)
    assert tokens.spans == [[(1, 2), (3, 4)]]


@pytest.fixture(scope="module")
def piece_model(tmp_path_factory):
    """A SentencePiece model of a few words."""
    import sentencepiece

    folder = tmp_path_factory.mktemp("pieces")
    (folder / "text").write_text("the small house is very small .\nthis house is no home\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=280,
        byte_fallback=True,
        character_coverage=1.0, minloglevel=2,
    )  # fmt: skip
    return str(folder / "m.model")


def test_a_model_cuts_raw_lines_into_its_pieces(piece_model):
    import sentencepiece

    line = "The small  house’s home."
    words, tokens = TokenReader("words", is_raw=True, model=piece_model).read_side([line])
    assert words == [["The", "small", "house", "’s", "home", "."]]
    pieces = sentencepiece.SentencePieceProcessor(model_file=piece_model).encode(line, out_type=str)
    assert tokens.tokens == [pieces]
    assert tokens.texts == [line]
    # Each word lies on the pieces that spell it.
    for word, first, end in zip(words[0], tokens.first, tokens.end, strict=True):
        places = tokens.spans[0][first:end]
        covered = line[places[0][0] : places[-1][1]]
        assert word in covered and first < end


def test_bytes_of_a_character_all_spell_it(piece_model):
    row = PieceReader(piece_model)("a 鬱ßb")
    spelled = [row.text[start:end] for start, end in row.spans]
    assert "".join(dict.fromkeys(part for part in spelled if part)) == "a鬱ßb"
    assert spelled.count("鬱") == 3 and spelled.count("ß") == 2


def test_readers_travel_to_other_processes(piece_model):
    reader = pickle.loads(pickle.dumps(PieceReader(piece_model)))
    assert reader("the house").tokens == PieceReader(piece_model)("the house").tokens


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "m").write_bytes(b"no model")
    for name, told in (("m", "is not a SentencePiece model"), ("n", "cannot read")):
        with pytest.raises(InputError, match=told):
            PieceReader(str(tmp_path / name))

import io
import os
import random
import subprocess
import sys

import pytest
import sentencepiece

from ....engine.errors import InputError, MxError
from ....engine.text.pieces import PieceTokenizer
from ....trainer.data import vocabulary as vocab
from ....trainer.data.vocabulary import learn_vocabulary


def lines(n: int = 400) -> list[str]:
    rng = random.Random(3)
    stems = ["haus", "katze", "laufen", "schnell", "über", "Straße", "sehen", "Kind"]
    return [
        " ".join(rng.choice(stems) + rng.choice(["", "e", "en", "t", "lich"]) for _ in range(8))
        for _ in range(n)
    ]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_size_specials_and_repeatability(tmp_path, model_type):
    for name in ("a", "b"):
        learn_vocabulary(lines(), tmp_path / name, size=300, model_type=model_type)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    tok = PieceTokenizer(tmp_path / "a")
    assert tok.vocab_size == 300
    assert (tok._model.pad_id(), tok._model.unk_id()) == (0, 1)
    assert tok._model.bos_id() == tok._model.eos_id() == -1
    assert min(tok.encode(["Haus", "中", "😀", "\0"])[0]) > 1
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize(
    "text", [["a"], ["a b c"], ["hello world"] * 3, ["中国 人民"], ["\0"], ["", "x", ""]]
)
def test_small_text_lowers_the_size(tmp_path, model_type, text):
    learn_vocabulary(text, tmp_path / "v", size=8000, model_type=model_type)
    assert 258 < PieceTokenizer(tmp_path / "v").vocab_size < 320


def test_no_text(tmp_path):
    with pytest.raises(InputError, match="no words"):
        learn_vocabulary(["", " \t ", "\r", " \r"], tmp_path / "v", size=1000)
    with pytest.raises(MxError, match="too small"):
        learn_vocabulary(["a"], tmp_path / "v", size=200)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_more_characters_than_room(tmp_path, model_type):
    text = [" ".join(chr(0x4E00 + n) * 2 for n in range(k, k + 40)) for k in range(900)]
    learn_vocabulary(text, tmp_path / "v", size=300, model_type=model_type)
    assert PieceTokenizer(tmp_path / "v").vocab_size <= 300


def test_pieces_are_lowercase_when_asked(tmp_path):
    learn_vocabulary(["HELLO World"] * 5, tmp_path / "v", size=300, lowercase=True)
    tok = PieceTokenizer(tmp_path / "v", lowercase=True)
    assert len(tok.encode(["Hello"])[0]) == 1


def test_long_lines_and_reserved_characters_count(tmp_path):
    long = "übermorgen " * 3000 + "y" * 9000 + " \u2585 ende"
    learn_vocabulary([long, "\u2585"], tmp_path / "v", size=300)
    tok = PieceTokenizer(tmp_path / "v")
    assert len(tok.encode(["übermorgen"])[0]) == 1
    assert not vocab._count_words(["\u2585 \r"], False)


def test_words_are_counted_as_seen():
    counts = vocab._count_words(["The the\r", "\tTHE  cat ", "z" * 2500], True)
    assert counts == {"the": 3, "cat": 1, "z" * 1000: 2, "z" * 500: 1}


def test_same_pieces_as_from_sentences(tmp_path):
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=written, model_type="bpe", vocab_size=310,
        normalization_rule_name="identity", byte_fallback=True, pad_id=0, unk_id=1, bos_id=-1,
        eos_id=-1, minloglevel=2,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    learn_vocabulary(lines(), tmp_path / "v", size=310)
    ours = PieceTokenizer(tmp_path / "v")._model
    assert [ours.id_to_piece(n) for n in range(310)] == [model.id_to_piece(n) for n in range(310)]


def test_hostile_text(tmp_path):
    text = ["\ud800 x", "a\rb\r", "\ufeff \u200b", "▁ ▁▁", "\u3000", "a\u2028b", "<unk> <0x41>"]
    learn_vocabulary(text * 3, tmp_path / "v", size=400)
    ids, words = PieceTokenizer(tmp_path / "v").encode(["<unk>", "\ud800", "▁"])
    assert sorted(set(words)) == [0, 1, 2] and 1 not in ids


def test_sample_is_even_and_repeatable():
    assert vocab._sample_lines(["a", "b"], 5, 1) == ["a", "b"]
    assert vocab._sample_lines([], 5, 1) == []
    source = [str(n) for n in range(1000)]
    kept = vocab._sample_lines(source, 100, 1)
    assert len(set(kept)) == 100 and kept == vocab._sample_lines(iter(source), 100, 1)
    assert kept != vocab._sample_lines(source, 100, 2)
    hits = [0] * 1000
    for seed in range(400):
        for line in vocab._sample_lines(source, 100, seed):
            hits[int(line)] += 1
    for part in range(10):  # 4,000 expected in each tenth
        assert 3700 < sum(hits[100 * part : 100 * part + 100]) < 4300


def test_quiet(tmp_path):
    code = (
        "import sys; from pathlib import Path; "
        "from mx_align.trainer.data.vocabulary import learn_vocabulary; "
        "learn_vocabulary(['hello world'] * 9, Path(sys.argv[1]), size=8000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "v")], capture_output=True, check=True
    )
    assert done.stdout == done.stderr == b""

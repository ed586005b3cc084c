import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.errors import BundleError, InputError
from ....engine.text import pieces
from ....engine.text.pieces import PieceTokenizer

HOSTILE = [
    "\u200b", "\ufeff", "\0", "▁", "▁▁", "a▁b", "\r", "a\r", "\r\r", "\u0301", "e\u0301", "\ufffd",
    "\u3000", "\xa0", "\u2028", "\x85", "\u2585", "\ud800", "x\udfffy", "😀", "中文", "<pad>",
    "<unk>", "<0x41>", "|||", "\U0010ffff", "ß", "İ", "w" * 5000,
]  # fmt: skip


@pytest.fixture(scope="module")
def proto() -> bytes:
    written = io.BytesIO()
    lines = ["the cat sat on the mat", "die Katze saß auf der Matte", "The Cat said hello"] * 5
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, model_type="bpe", vocab_size=320,
        normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True,
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


@pytest.fixture(scope="module")
def tok(proto) -> PieceTokenizer:
    return PieceTokenizer(proto)


def test_every_word_has_its_own_pieces(tok):
    ids, words = tok.encode(HOSTILE)
    assert sorted(set(words)) == list(range(len(HOSTILE)))
    assert words == sorted(words)
    assert all(0 < i < tok.vocab_size for i in ids)
    for n, word in enumerate(HOSTILE):
        assert tok.encode([word])[0] == [i for i, w in zip(ids, words, strict=True) if w == n]


def test_pieces_spell_the_word(tok, proto):
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    for word in ["cat", "Katze", "saß", "中文", "\u200b", "e\u0301", "\0"]:
        assert model.decode(tok.encode([word])[0]) == word


def test_nothing_gives_nothing(tok):
    assert tok.encode([]) == ([], [])
    pieces = tok.encode_many([])
    assert pieces.offsets.tolist() == [0] and len(pieces.ids) == len(pieces.n_words) == 0


def test_a_word_without_pieces_is_unknown(proto, monkeypatch):
    tok = PieceTokenizer(proto)

    class Mute:
        def encode(self, words, num_threads=1):
            return [[] for _ in words] if isinstance(words, list) else []

    monkeypatch.setattr(tok, "_model", Mute())
    assert tok.encode(["a", "b", "a"]) == ([1, 1, 1], [0, 1, 2])
    assert tok.encode([f"w{n}" for n in range(99)])[0] == [1] * 99


def test_carriage_return_is_not_seen(tok):
    assert tok.encode(["the", "cat\r"]) == tok.encode(["the", "cat"])
    assert len(tok.encode(["\r"])[0]) >= 1


def test_lowercase_is_for_the_model_only(proto, tok):
    lower = PieceTokenizer(proto, lowercase=True)
    assert lower.encode(["The", "CAT"]) == tok.encode(["the", "cat"])
    assert tok.encode(["The", "CAT"]) != tok.encode(["the", "cat"])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.lists(st.sampled_from([*HOSTILE, "the", "cat"]) | st.text(min_size=1, max_size=6)),
        max_size=6,
    )
)
def test_many_equals_one_by_one(tok, sentences):
    pieces = tok.encode_many(sentences)
    assert pieces.n_words.tolist() == [len(words) for words in sentences]
    for n, words in enumerate(sentences):
        place = slice(pieces.offsets[n], pieces.offsets[n + 1])
        fresh = PieceTokenizer(tok.proto).encode(words) if n == 0 else tok.encode(words)
        assert (pieces.ids[place].tolist(), pieces.words[place].tolist()) == fresh


@pytest.mark.parametrize("bound", ["MAX_KNOWN_WORDS", "MAX_KNOWN_PIECES"])
def test_memory_is_bounded_and_results_stay(proto, monkeypatch, bound):
    monkeypatch.setattr(pieces, bound, 50)
    bounded, free = PieceTokenizer(proto), PieceTokenizer(proto)
    sentences = [[f"w{n}", f"v{n % 7}", "cat"] for n in range(1000)]
    together = free.encode_many(sentences)
    for n, words in enumerate(sentences):
        place = slice(together.offsets[n], together.offsets[n + 1])
        assert bounded.encode(words)[0] == together.ids[place].tolist()
        assert len(bounded._known) <= 54


def test_an_interrupted_call_leaves_no_trace(proto, tok):
    fresh = PieceTokenizer(proto)
    with pytest.raises(TypeError):
        fresh.encode(["cat", "mat", ["not a word"]])
    assert fresh.encode(["mat", "cat"]) == tok.encode(["mat", "cat"])


def test_threads_share_one(proto):
    shared, alone = PieceTokenizer(proto), PieceTokenizer(proto)
    work = [[[f"{a}x{b}" for b in range(40)] for a in range(k, k + 60)] for k in range(16)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(shared.encode_many, work))
    for sentences, found in zip(work, results, strict=True):
        np.testing.assert_array_equal(found.ids, alone.encode_many(sentences).ids)


def test_pickle(proto):
    copy = pickle.loads(pickle.dumps(PieceTokenizer(proto, lowercase=True)))
    assert copy.lowercase and copy.encode(["CAT"])[0] == copy.encode(["cat"])[0]


def test_load_errors(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*no\.spm"):
        PieceTokenizer(tmp_path / "no.spm")
    for data in (b"", b"no model"):
        (tmp_path / "bad.spm").write_bytes(data)
        with pytest.raises(BundleError, match=r"bad\.spm is not a SentencePiece model"):
            PieceTokenizer(tmp_path / "bad.spm")


@pytest.mark.parametrize("suffix", [False, True])
def test_word_starts(suffix):
    """All pieces count where the mark stands behind words."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the house", "a house", "houses"] * 9), model_writer=model,
        vocab_size=30, hard_vocab_limit=False, treat_whitespace_as_suffix=suffix, minloglevel=2,
    )  # fmt: skip
    starts = PieceTokenizer(model.getvalue()).word_starts()
    ids, words = PieceTokenizer(model.getvalue()).encode(["the", "houses"])
    first = [k for k in range(len(ids)) if k == 0 or words[k] != words[k - 1]]
    assert all(starts[ids[k]] for k in first)
    assert suffix == bool(starts.all())

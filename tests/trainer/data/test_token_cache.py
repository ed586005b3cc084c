import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ....engine.errors import MxError
from ....engine.text.pieces import PieceTokenizer
from ....engine.text.words import split_words
from ....trainer.data import token_cache as cache
from ....trainer.data.token_cache import CacheCounts, TokenCache, build_token_cache
from ....trainer.data.vocabulary import learn_vocabulary

KEY = {"vocab": "abc", "max_length": 40}
WORDS = ["the", "cat", "mats", "Katze", "\u200b", "▁", "中文", "😀", "\r", "\u3000", "x" * 30]


@pytest.fixture(scope="module")
def tok(tmp_path_factory) -> PieceTokenizer:
    path = tmp_path_factory.mktemp("vocab") / "v.spm"
    learn_vocabulary(["the cat sat on the mats", "die Katze saß auf"] * 5, path, size=300)
    return PieceTokenizer(path)


def make(pairs, tok, folder, **options) -> CacheCounts:
    settings = {"max_length": 40, "max_ratio": 3.0, "key": KEY, **options}
    return build_token_cache(pairs, folder, tokenizers=(tok, tok), **settings)


def check_equals_direct(kept: TokenCache, pairs, tok):
    for n, line in enumerate(kept.lines):
        for side, stored in enumerate((kept.src, kept.tgt)):
            ids, words = tok.encode(split_words(pairs[line][side]))
            assert stored.pieces(n).tolist() == ids
            assert stored.words(n).tolist() == words


line = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=8)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(line, line), max_size=25), st.sampled_from([1, 4, 8192]))
def test_content_equals_direct_tokenisation(tok, pairs, block):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_CHUNK", block)
        folder = Path(name) / "cache"
        counts = make(pairs, tok, folder)
        kept = TokenCache.open(folder, KEY)
        assert len(kept) == counts.kept
        assert counts.read == len(pairs)
        expected = CacheCounts(read=len(pairs))
        lines = []
        for n, pair in enumerate(pairs):
            a, b = sorted(len(tok.encode(split_words(text))[0]) for text in pair)
            if a == 0:
                expected.empty += 1
            elif a == 1:
                expected.one_piece += 1
            elif b > 40:
                expected.too_long += 1
            elif b > cache.RATIO_FROM and b > 3 * a:
                expected.ratio += 1
            else:
                expected.kept += 1
                lines.append(n)
        assert counts == expected == kept.counts
        assert kept.lines.tolist() == lines
        check_equals_direct(kept, pairs, tok)


@pytest.fixture
def kept(tok, tmp_path) -> TokenCache:
    rng = np.random.default_rng(0)
    pairs = [
        tuple(" ".join(rng.choice(WORDS[:8], rng.integers(2, 9))) for _ in range(2))
        for _ in range(50)
    ]
    make(pairs, tok, tmp_path / "cache", max_length=500, max_ratio=99)
    found = TokenCache.open(tmp_path / "cache", KEY)
    assert found is not None and len(found) == 50
    return found


@pytest.mark.parametrize("rows", [[], [3], [7, 0, 49, 7], list(range(50))])
def test_padded_rows(kept, rows):
    indices = np.array(rows, np.int64)
    for side in (kept.src, kept.tgt):
        ids, lengths = side.padded_pieces(indices)
        words = side.padded_words(indices)
        assert ids.dtype == words.dtype == lengths.dtype == np.int64
        assert ids.shape == words.shape == (len(rows), max(lengths, default=0))
        assert lengths.tolist() == side.lengths(indices).tolist()
        for n, row in enumerate(rows):
            length = lengths[n]
            assert length == len(side.pieces(row))
            assert ids[n, :length].tolist() == side.pieces(row).tolist()
            assert words[n, :length].tolist() == side.words(row).tolist()
            assert not ids[n, length:].any() and (words[n, length:] == -1).all()


def test_large_vocabularies_use_four_bytes(tok, tmp_path, monkeypatch):
    monkeypatch.setattr(tok, "vocab_size", 40_000)
    pairs = [("the cat", "die Katze 😀")] * 3
    make(pairs, tok, tmp_path / "c")
    meta = json.loads((tmp_path / "c" / "meta.json").read_text())
    assert meta["src"]["dtype"] == "<u4" and meta["n"] == 3
    check_equals_direct(TokenCache.open(tmp_path / "c"), pairs, tok)


def test_an_empty_cache_opens(tok, tmp_path):
    assert make([("", "a b"), ("a b", " ")], tok, tmp_path / "c") == CacheCounts(read=2, empty=2)
    assert len(TokenCache.open(tmp_path / "c", KEY)) == 0


def test_key_decides(tok, tmp_path):
    assert TokenCache.open(tmp_path / "c", KEY) is None
    key = {"paths": ("a", "b"), "n": 1}
    make([("the cat", "the cat")], tok, tmp_path / "c", key=key)
    assert TokenCache.open(tmp_path / "c", key) is not None
    assert TokenCache.open(tmp_path / "c", None) is not None
    assert TokenCache.open(tmp_path / "c", {**key, "n": 2}) is None


def test_building_again_replaces_and_a_failure_leaves_the_old(tok, tmp_path):
    folder = tmp_path / "deep" / "c"
    make([("the cat", "the cat")], tok, folder)
    make([("the cat", "the cat")] * 2, tok, folder)

    def broken():
        yield "the cat", "the cat"
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        make(broken(), tok, folder)
    assert len(TokenCache.open(folder, KEY)) == 2
    assert os.listdir(folder.parent) == ["c"]


def test_damage_is_named(tok, tmp_path):
    make([("the cat", "the cat")], tok, tmp_path / "c")
    with open(tmp_path / "c" / "tgt.ids.bin", "ab") as file:
        file.write(b"x")
    with pytest.raises(MxError, match=r"damaged: tgt\.ids\.bin has .* delete it"):
        TokenCache.open(tmp_path / "c", KEY)
    (tmp_path / "c" / "meta.json").write_text("{")
    with pytest.raises(MxError, match=r"meta\.json cannot be read"):
        TokenCache.open(tmp_path / "c", KEY)
    (tmp_path / "c" / "meta.json").write_text('{"format": 1, "key": {}}')
    with pytest.raises(MxError, match=r"meta\.json is incomplete"):
        TokenCache.open(tmp_path / "c", {})


@pytest.mark.slow
def test_progress_is_told(tok, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_CHUNK", 2)
    seen = []
    make([("the cat", "the cat")] * 5, tok, tmp_path / "c", progress=lambda c: seen.append(c.read))
    assert seen == [2, 4, 5]

"""First embeddings: translations close, others not, whatever the vocabularies."""

import numpy as np
import pytest

from ....trainer.data.teacher_links import TeacherLinks, write_links
from ....trainer.data.token_cache import TokenCache, build_token_cache
from ....trainer.teachers.lexicon import count_translations, lexicon_embeddings


class Words:
    """One piece per word: the number that the word is."""

    vocab_size = 40

    def encode_many(self, sentences):
        from ....engine.types import Pieces

        counts = np.array([len(s) for s in sentences], np.int32)
        flat = np.array([int(w) for s in sentences for w in s], np.int32)
        places = np.concatenate([np.arange(n) for n in counts]).astype(np.int32)
        return Pieces(flat, places, np.concatenate([[0], np.cumsum(counts)]), counts)


@pytest.fixture
def linked(tmp_path):
    """Source words 2..9, target word = source word + 20, always linked; word 15 is never linked."""
    rng = np.random.default_rng(0)
    rows = [rng.permutation(np.arange(2, 10))[:4].tolist() for _ in range(60)]
    pairs = [
        (" ".join(map(str, [*row, 15])), " ".join(str(w + 20) for w in reversed(row)))
        for row in rows
    ]
    options = {"tokenizers": (Words(), Words()), "max_length": 50, "max_ratio": 9, "key": {}}
    build_token_cache(pairs, tmp_path / "train", **options)
    folder = tmp_path / "links"
    write_links(folder, [[(i, 3 - i, 1.0) for i in range(4)] for _ in rows])
    return TokenCache.open(tmp_path / "train"), TeacherLinks(folder)


def test_shares_add_up_and_follow_the_links(linked):
    rows, columns, shares = count_translations(*linked, 40, 40)
    assert sorted(set(zip(rows.tolist(), columns.tolist(), strict=True))) == sorted(
        [(w, w + 20) for w in range(2, 10)] + [(w + 20, w) for w in range(2, 10)]
    )
    assert np.allclose(shares, 1.0)


@pytest.mark.parametrize("separate", [False, True])
def test_translations_start_close_and_others_apart(linked, separate):
    vectors = lexicon_embeddings(*linked, 50, 40 if separate else 0, 64, seed=1)
    assert vectors.shape == (90 if separate else 50, 64)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    offset = 50 if separate else 0
    for w in range(2, 10):
        assert vectors[w] @ vectors[w + 20 + offset] > 0.99
        assert abs(vectors[w] @ vectors[15]) < 0.6

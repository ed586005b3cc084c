"""What an alignment says of itself."""

import json

import numpy as np

from ...engine.alignment import Alignment, SoftAlignment


def make_alignment(n: int) -> Alignment:
    words = tuple(f"w{k}" for k in range(n))
    return Alignment(words, words[::-1], [(k, k) for k in range(n)], [0.5] * n, 0.25)


def test_it_shows_words():
    found = make_alignment(2)
    assert found.word_pairs() == [("w0", "w1"), ("w1", "w0")]
    assert repr(found) == "<Alignment 2 links, score 0.250: w0-w1, w1-w0>"
    assert str(found) == "0-0 1-1" and len(found) == 2 and list(found) == found.links
    assert repr(make_alignment(20)).endswith("w7-w12, ...>")


def test_it_becomes_json():
    found = make_alignment(1)
    assert json.loads(json.dumps(found.to_dict())) == {
        "src": ["w0"], "tgt": ["w0"], "links": [[0, 0]], "scores": [0.5], "score": 0.25,
    }  # fmt: skip
    cells = np.full((1, 2), 0.5, np.float32)
    soft = SoftAlignment(("a",), ("b", "c"), cells, cells, cells, cells[:, 0], cells[0])
    assert json.loads(json.dumps(soft.to_dict()))["fwd"] == [[0.5, 0.5]]
    assert repr(soft) == "<SoftAlignment of 1 and 2 words>"

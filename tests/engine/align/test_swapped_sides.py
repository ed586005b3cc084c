"""A model for de-en serves en-de: the sides change places, the links change back."""

from pathlib import Path

import numpy as np
import pytest

from ....engine.aligner import Aligner
from ....engine.types import Pairs
from ...support.bundles import write_toy

SRC = ["die Katze saß auf der Matte", "", "The Cat", "a\tb  c ", "hello"]
TGT = ["the cat sat on the mat", "the", "die Katze", "d", "x y z"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy") / "toy.mx").path  # of de-en


@pytest.mark.parametrize(
    ("mode", "other"),
    [("soft", "soft"), ("forward", "backward"), ("backward", "forward"), ("union", "union")],
)
def test_links_are_those_of_the_changed_sides(bundle, mode, other):
    swapped = Aligner.load(bundle, langs="en-de", symmetrize=mode, nulls=True)
    plain = Aligner.load(bundle, langs="de-en", symmetrize=other, nulls=True)
    assert swapped.swapped and not plain.swapped
    found, wanted = swapped.align_batch(SRC, TGT), plain.align_batch(TGT, SRC)
    for one, two in zip(found, wanted, strict=True):
        assert one.links == sorted((i, j) for j, i in two.links)
        scores = dict(zip(two.links, two.scores, strict=True))
        assert one.scores == [scores[j, i] for i, j in one.links]
        assert (one.src, one.tgt) == (two.tgt, two.src)
        assert (one.src_null, one.tgt_null) == (two.tgt_null, two.src_null)
    assert any(one.links for one in found)
    assert "|turned|" in swapped.signature() and "turned" not in plain.signature()


def test_the_matrix_is_swapped_too(bundle):
    swapped, plain = Aligner.load(bundle, langs="en-de"), Aligner.load(bundle)
    one, two = swapped.soft(SRC[0], TGT[0]), plain.soft(TGT[0], SRC[0])
    assert one.scores.shape == (6, 6) and one.src == two.tgt
    np.testing.assert_array_equal(one.scores, two.scores.T)
    np.testing.assert_array_equal(one.fwd, two.bwd.T)
    np.testing.assert_array_equal(one.src_null, two.tgt_null)


def test_directions_are_those_of_the_users_sides(bundle):
    swapped = Aligner.load(bundle, langs="en-de")
    pairs = Pairs(0, [SRC[0].split()], [TGT[0].split()])
    for direction in ("forward", "backward"):
        (links,) = swapped.best_partners(pairs, direction)
        directed = Aligner.load(bundle, langs="en-de", symmetrize=direction)
        assert links and links == directed.align_pair(SRC[0], TGT[0]).links

"""The source of symmetrize, interpreted, against its twin: equal to the last bit."""

import numpy as np
import pytest

from ......engine.runtime.reference import symmetrize
from ......export.kernels import list_variants
from .....support.kernel_cases import SIDES, symmetrize_inputs
from .....support.triton_interpreter import run_symmetrize


def check(interpreter, inputs, threshold=0.1, **options):
    fwd, bwd, src_words, tgt_words, _ = inputs
    wanted = symmetrize(fwd, bwd, src_words, tgt_words, threshold)
    found = interpreter(run_symmetrize, *inputs, threshold, **options)
    assert found["counts"].tolist() == wanted.counts.tolist()
    for b in range(len(fwd)):
        here = slice(found["starts"][b], found["starts"][b] + found["counts"][b])
        there = slice(wanted.starts[b], wanted.starts[b] + wanted.counts[b])
        links = found["links"][here]
        assert (links >> 16).tolist() == wanted.src[there].tolist()
        assert (links & 0xFFFF).tolist() == wanted.tgt[there].tolist()
        assert found["scores"][here].tolist() == wanted.scores[there].tolist()
    assert (found["behind"] == -1).all()  # nothing is written behind the list
    np.testing.assert_allclose(found["sentence"], wanted.sentence, atol=1e-6)
    return wanted


@pytest.mark.slow
@pytest.mark.parametrize("longest", [1, 3])
@pytest.mark.parametrize("name", SIDES)
def test_every_shape(name, longest, interpreter):
    check(interpreter, symmetrize_inputs(*SIDES[name], longest=longest))


@pytest.mark.slow
def test_weights_in_any_order_of_axes(interpreter):
    check(interpreter, symmetrize_inputs([(5, 9), (3, 2)], 5, 9), turned=True)


@pytest.mark.slow
def test_the_longest_sentence(interpreter):
    # The interpreter's time goes by tiles: few large ones.
    wanted = check(interpreter, symmetrize_inputs([(256, 256)], 256, 256), tile=(64, 128))
    assert wanted.counts[0] > 1000


@pytest.mark.slow
def test_real_tiles_on_and_off_their_sizes(interpreter):
    tile = dict(list_variants("sm_80")[0].constants)
    inputs = symmetrize_inputs([(8, 32), (17, 33)], 17, 33)
    check(interpreter, inputs, tile=(tile["SRC"], tile["TGT"]))


@pytest.mark.slow
def test_a_window_counts_only_what_it_owns(interpreter):
    fwd, bwd, src_words, tgt_words, spans = symmetrize_inputs([(12, 9)], 12, 9)
    src_words[0, :4] = src_words[0, 10:] = -1
    wanted = check(interpreter, (fwd, bwd, src_words, tgt_words, spans))
    assert wanted.counts[0] and wanted.src.min() >= 4 and wanted.src.max() < 10


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [1e-38, 0.999999])
def test_everything_and_nothing_is_linked(threshold, interpreter):
    wanted = check(interpreter, symmetrize_inputs([(6, 7)], 6, 7), threshold)
    assert (wanted.counts[0] > 0) == (threshold < 0.5)


def test_the_sentence_score_is_optional(interpreter):
    found = interpreter(
        run_symmetrize, *symmetrize_inputs([(3, 2)], 3, 2), 0.1, with_sentence=False
    )
    assert np.isnan(found["sentence"]).all()

"""The source of static_attention, interpreted, against its twin."""

import numpy as np
import pytest

from ......engine.runtime.reference import static_attention
from .....support.kernel_cases import LENGTHS, TOLERANCE, static_attention_inputs
from .....support.triton_interpreter import round_floats, run_static_attention


def check(interpreter, assert_close, inputs, heads, dtype, **options):
    q, k, v, lengths = inputs
    q, k, v = (round_floats(x, dtype) for x in (q, k, v))
    found = interpreter(run_static_attention, q, k, v, lengths, heads, dtype, **options)
    assert_close(found, static_attention(q, k, v, lengths, heads), TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", LENGTHS)
def test_every_shape_and_type(name, dtype, interpreter, assert_close):
    lengths, size = LENGTHS[name]
    check(interpreter, assert_close, static_attention_inputs(lengths, size, 64), 2, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("head", [20, 32, 48, 64, 96, 128])
def test_every_head_width(head, interpreter, assert_close):
    check(interpreter, assert_close, static_attention_inputs([9, 4], 9, 2 * head), 2, "fp32")


def test_one_query_for_all_pairs(interpreter, assert_close):
    inputs = static_attention_inputs([5, 1, 7], 7, 64, one_query=True)
    check(interpreter, assert_close, inputs, 2, "fp32")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_packed_without_a_copy(dtype, interpreter, assert_close):
    check(interpreter, assert_close, static_attention_inputs([5, 7], 7, 64), 2, dtype, packed=True)


@pytest.mark.slow
def test_the_longest_sentence_in_real_tiles(interpreter, assert_close):
    inputs = static_attention_inputs([256, 130], 256, 32)
    check(interpreter, assert_close, inputs, 1, "fp32", tile=(64, 32))


def test_large_scores_stay_finite(interpreter, assert_close):
    q, k, v, lengths = static_attention_inputs([6, 1], 6, 32)
    found = interpreter(run_static_attention, 100 * q, k, v, lengths, 1, "fp32")
    assert np.isfinite(found).all()
    assert_close(found, static_attention(100 * q, k, v, lengths, 1), 1e-4)

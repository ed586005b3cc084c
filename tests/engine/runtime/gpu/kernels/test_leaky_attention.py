"""The source of leaky_attention, interpreted, against its twin."""

import numpy as np
import pytest

from ......engine.runtime.reference import leaky_attention
from .....support.kernel_cases import SIDES, TOLERANCE, leaky_attention_inputs
from .....support.triton_interpreter import round_floats, run_leaky_attention


def check(interpreter, assert_close, inputs, heads, dtype, **options):
    q, k, null_key, mask = inputs
    q, k, null_key = (round_floats(x, dtype) for x in (q, k, null_key))
    weights, null = interpreter(run_leaky_attention, q, k, null_key, mask, heads, dtype, **options)
    wanted = leaky_attention(q, k, null_key, mask, heads)
    # Weights leave in float32 whatever the inputs are.
    assert_close(weights, wanted[0], TOLERANCE["fp32"])
    assert_close(null, wanted[1], TOLERANCE["fp32"])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", SIDES)
def test_every_shape_and_type(name, dtype, interpreter, assert_close):
    check(interpreter, assert_close, leaky_attention_inputs(*SIDES[name], width=64), 2, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("head", "heads"), [(20, 3), (32, 4), (48, 1), (96, 2), (128, 5)])
def test_every_head_width_and_count(head, heads, interpreter, assert_close):
    inputs = leaky_attention_inputs([(9, 5), (3, 2)], 9, 5, heads * head)
    check(interpreter, assert_close, inputs, heads, "fp32")


@pytest.mark.slow
def test_the_longest_sentence_in_real_tiles(interpreter, assert_close):
    inputs = leaky_attention_inputs([(256, 256), (1, 256)], 256, 256, 64)
    check(interpreter, assert_close, inputs, 2, "fp32", tile=(32, 64))


@pytest.mark.slow
def test_null_is_optional(interpreter):
    inputs = leaky_attention_inputs([(3, 2)], 3, 2, 32)
    weights, null = interpreter(run_leaky_attention, *inputs, 1, "fp32", with_null=False)
    assert np.isfinite(weights).all() and np.isnan(null).all()

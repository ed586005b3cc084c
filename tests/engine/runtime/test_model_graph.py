"""Our ops in a graph, and their twins in NumPy in their place."""

import numpy as np
import pytest

from ....engine.runtime.model_graph import (
    INPUTS,
    OUTPUTS,
    link_outputs,
)
from ....engine.runtime.onnx_cpu import CPU, start_session
from ....engine.runtime.reference import leaky_attention, static_attention

OURS = ("StaticAttention", "LeakyAttention")


@pytest.fixture(scope="module")
def fused():
    pytest.importorskip("torch")
    from ...support.random_runs import SMALL, fuse_random

    return fuse_random(SMALL)


def test_the_twins_give_what_the_functions_give(fused):
    """The graph with our ops computed by the twins, against the one whose functions are inlined."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class StaticAttention(OpRun):
        op_domain = "mx"

        def _run(self, q, k, v, lengths, mask, heads=None):
            return (static_attention(q, k, v, lengths, heads or self.heads),)

    class LeakyAttention(OpRun):
        op_domain = "mx"

        def _run(self, q, k, null_key, mask, heads=None):
            return leaky_attention(q, k, null_key, mask[:, 0, 0], heads or self.heads)

    lengths = np.array([5, 1, 7, 0], np.int32), np.array([6, 1, 2, 3], np.int32)
    rng = np.random.default_rng(1)
    ids = [rng.integers(0, 50, (4, size)).astype(np.int32) for size in (7, 6)]
    feeds = dict(zip(INPUTS, (ids[0], lengths[0], ids[1], lengths[1]), strict=True))
    names = list(OUTPUTS)
    session = start_session(fused.SerializeToString(), [CPU], "plain")
    wanted = session.run(names, feeds)
    assert link_outputs(fused.SerializeToString()) == ("fwd", "bwd")
    model = type(fused)()
    model.CopyFrom(fused)
    kept = [f for f in model.functions if f.name not in OURS]
    del model.functions[:]
    model.functions.extend(kept)
    evaluator = ReferenceEvaluator(model, new_ops=[StaticAttention, LeakyAttention])
    for name, found, value in zip(names, evaluator.run(names, feeds), wanted, strict=True):
        np.testing.assert_allclose(found, value, atol=2e-5, err_msg=name)

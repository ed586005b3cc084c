"""Our ops in a graph: how they are marked for TensorRT, and the kernels' twins in their place."""

import numpy as np
import pytest

from ....engine.runtime.model_graph import (
    INPUTS,
    KERNEL_OF_OP,
    OUTPUTS,
    count_op,
    link_outputs,
    mark_plugins,
)
from ....engine.runtime.onnx_cpu import CPU, start_session
from ....engine.runtime.reference import leaky_attention, static_attention


@pytest.fixture(scope="module")
def fused():
    pytest.importorskip("torch")
    from ...support.random_runs import SMALL, fuse_random

    return fuse_random(SMALL)


def test_marking_changes_nothing_but_the_attribute(fused):
    import onnx

    data = fused.SerializeToString()
    ops = ("StaticAttention", "LeakyAttention")
    marked = onnx.ModelProto.FromString(mark_plugins(data, ops, "mx_1"))
    found = 0
    for node in marked.graph.node:
        extra = [a for a in node.attribute if a.name == "plugin_namespace"]
        assert bool(extra) == (node.op_type in ops and node.domain == "mx")
        for attribute in extra:
            assert onnx.helper.get_attribute_value(attribute) == b"mx_1"
            node.attribute.remove(attribute)
            found += 1
    assert found == sum(count_op(data, op) for op in ops) == 6
    assert marked.SerializeToString(deterministic=True) == fused.SerializeToString(
        deterministic=True
    )
    assert mark_plugins(data, (), "mx_1") == data


def test_the_kernels_twins_give_what_the_functions_give(fused):
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
    kept = [f for f in model.functions if f.name not in KERNEL_OF_OP]
    del model.functions[:]
    model.functions.extend(kept)
    evaluator = ReferenceEvaluator(model, new_ops=[StaticAttention, LeakyAttention])
    for name, found, value in zip(names, evaluator.run(names, feeds), wanted, strict=True):
        np.testing.assert_allclose(found, value, atol=2e-5, err_msg=name)

"""ONNX Runtime on the CPU: numbers too small to count are zero while the graph runs."""

import platform
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from ....engine.runtime.onnx_cpu import OnnxCpu
from ...support.bundles import write_toy


def count_subnormals() -> bool:
    """Tell whether numbers below 1e-38 are more than zero in this thread."""
    return bool((np.full(1, 1e-39, np.float32) * np.float32(0.5)).any())


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="for x86-64 Linux"
)
@pytest.mark.parametrize("fails", [False, True])
def test_subnormals_are_zero_while_the_graph_runs_and_no_longer(tmp_path, fails):
    seen = []

    class Session:
        def run(self, names, feeds):
            seen.append(count_subnormals())
            if fails:
                raise RuntimeError
            return [np.zeros((2, 1, 1), np.float32)]

    backend = OnnxCpu(write_toy(tmp_path / "toy.mx"), None, 1)
    backend._session = Session()
    one = np.ones((2, 1), np.int64)
    batch = SimpleNamespace(src=one, src_lengths=one[:, 0], tgt=one, tgt_lengths=one[:, 0])
    with pytest.raises(RuntimeError) if fails else nullcontext():
        backend.run(batch, ["scores"])
    assert seen == [False] and count_subnormals()

"""Taking the posterior out of a graph: the prior is left, and nothing that only it needed."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from ....engine.bundle.read_out import read_prior
from ....engine.runtime.model_graph import OUTPUTS
from ....export.check.probe import make_feeds, open_session
from ....export.check.readings import read_network
from ....export.check.verification import run_network
from ....export.graph.dtypes import convert_to_fp16
from ....trainer.config import ModelConfig
from ...support.random_runs import SMALL, fuse_random, random_model


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, leaky=False)], ids=["leaky", "plain"])
def test_the_rest_computes_the_prior(config: ModelConfig) -> None:
    whole = fuse_random(config)
    graph = onnx.load_model_from_string(read_prior(whole.SerializeToString()))
    onnx.checker.check_model(graph, full_check=True)
    batch = make_feeds([np.array([5, 6, 7], np.int32)], [np.array([8, 9], np.int32)])
    wanted = run_network(read_network(random_model(config), "prior"), batch)
    found = dict(zip(OUTPUTS, open_session(graph).run(list(OUTPUTS), batch), strict=True))
    for name in OUTPUTS:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-5)
    left = {tensor.name for tensor in graph.graph.initializer}
    assert not [name for name in left if "update" in name or ".back." in name]
    assert {node.op_type for node in graph.graph.node}.isdisjoint({"LeakyPosterior", "Posterior"})


def test_a_graph_without_a_posterior_stays_the_same() -> None:
    prior = read_prior(convert_to_fp16(fuse_random(SMALL)).SerializeToString())
    assert read_prior(prior) == prior

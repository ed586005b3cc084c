"""Weights that went into a student's graph come back out of it."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from ....engine.errors import MxError
from ....export.graph import dtypes
from ....export.graph.dtypes import convert_to_fp16
from ....export.graph.fusion import fuse_attention
from ....export.graph.plain import build_plain_graph, collect_weights
from ....trainer.networks.weights import make_network
from ....trainer.run.initial_weights import read_tensors, student_weights
from ...support.random_runs import SMALL, random_model

STUDENTS = {
    "joint": {},
    "separate vocabularies": {"joint_vocab": False},
    "no correction, one layer": {"refine": 0, "encoder_layers": 1},
    "no diagonal": {"diagonal": False},
}


def student(**options):
    return replace(SMALL, kind="student", **options)


def graph_of(model):
    return fuse_attention(build_plain_graph(model.config, collect_weights(model)), model.config)[0]


@pytest.mark.parametrize("name", STUDENTS)
def test_fp32_gives_the_very_weights(name):
    """Where the scales are powers of two; see below for others."""
    model = random_model(student(**STUDENTS[name]))
    found = student_weights(graph_of(model).SerializeToString(), model, "it")
    wanted = dict(model.named_parameters())
    assert set(found) == set(wanted)
    for key, tensor in found.items():
        assert tensor.dtype == torch.float32 and torch.equal(tensor, wanted[key]), key


def test_other_scales_cost_the_last_bit_at_most():
    model = random_model(student(width=24))
    found = student_weights(graph_of(model).SerializeToString(), model, "it")
    for key, wanted in model.named_parameters():
        np.testing.assert_array_max_ulp(found[key].numpy(), wanted.detach().numpy(), 1)


def test_fp16_gives_them_to_eleven_bits():
    model = random_model(student())
    graph = convert_to_fp16(graph_of(model)).SerializeToString()
    found = student_weights(graph, model, "it")
    wanted = {key: parameter.detach().numpy() for key, parameter in model.named_parameters()}
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=2**-11, atol=1e-7)
    for key in ("diagonal", "correction.look.weight"):  # which stay fp32
        np.testing.assert_array_equal(found[key], wanted[key])


def test_large_embeddings_come_back_from_8_bits(monkeypatch):
    monkeypatch.setattr(dtypes, "_LARGE_TABLE", 20)
    model = random_model(student())
    found = student_weights(convert_to_fp16(graph_of(model)).SerializeToString(), model, "it")
    wanted = model.src_embedding.weight.detach()
    steps = wanted.abs().amax(1, keepdim=True) / 127
    assert ((found["src_embedding.weight"] - wanted).abs() <= 0.55 * steps).all()


def test_a_graph_without_a_weight_is_refused():
    model = random_model(student())
    deeper = make_network(replace(model.config, encoder_layers=3))
    with pytest.raises(MxError, match=r"it: its graph lacks layers\.2\.norm\.weight; export"):
        student_weights(graph_of(model).SerializeToString(), deeper, "it")


def test_onnx_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MxError, match=r'pip install "mx-align\[export\]"'):
        read_tensors(b"")

"""Muon: updates are orthogonal in fp32 and bf16, and fused matrices are taken apart."""

import pytest
import torch

from ....trainer.config import resolve_config
from ....trainer.loop.optimizer import Muon, make_optimizer, orthogonalize, set_rate


@pytest.mark.parametrize("work", [torch.float32, torch.bfloat16])
def test_all_directions_of_an_update_are_about_equally_long(work):
    x = torch.randn(3, 16, 40, generator=torch.Generator().manual_seed(1))
    x[:, 0] *= 100  # one direction much stronger than the others
    found = torch.linalg.svdvals(orthogonalize(x, work).float())
    assert found.min() > 0.5 and found.max() < 1.5
    assert torch.linalg.svdvals(x).amax() > 50 * torch.linalg.svdvals(x).amin()


def test_a_fused_matrix_moves_as_its_parts_do():
    generator = torch.Generator().manual_seed(2)
    gradient = torch.randn(24, 8, generator=generator)
    fused = torch.nn.Parameter(torch.zeros(24, 8))
    parts = [torch.nn.Parameter(torch.zeros(8, 8)) for _ in range(3)]
    for parameters, gradients in (([fused], [gradient]), (parts, gradient.split(8))):
        optimizer = Muon(parameters, [], width=8, decay=0.0, scale=5.0)
        set_rate(optimizer, 1e-2)
        for parameter, one in zip(parameters, gradients, strict=True):
            parameter.grad = one.clone()
        optimizer.step()
    assert torch.allclose(fused, torch.cat(parts), atol=1e-6)
    assert fused.abs().max() > 1e-3


@pytest.mark.parametrize(("dtype", "work"), [("fp32", "float32"), ("bf16", "bfloat16")])
def test_products_of_the_optimizer_have_the_dtype_of_the_run(dtype, work, monkeypatch):
    seen = []

    def spy(x, kind):
        seen.append(kind)
        return orthogonalize(x, kind)

    monkeypatch.setattr("mx_align.trainer.loop.optimizer.orthogonalize", spy)
    layer = torch.nn.Linear(8, 8)
    layer.weight.grad, layer.bias.grad = torch.ones(8, 8), torch.ones(8)
    before = layer.weight.detach().clone()
    optimizer = make_optimizer(layer, 8, resolve_config("tiny", {"dtype": dtype}).train)
    set_rate(optimizer, 1e-2)
    optimizer.step()
    assert seen == [getattr(torch, work)]
    assert layer.weight.dtype == torch.float32 and not torch.equal(layer.weight, before)

"""Every term of the loss against a few lines of plain Python."""

import math

import pytest
import torch

from ....trainer.config import ModelConfig, TrainConfig
from ....trainer.data.batches import Totals, TrainingBatch
from ....trainer.networks import losses as loss
from ....trainer.networks.losses import MaskAlignLoss
from ....trainer.networks.mask_align import MaskAlign

LENGTHS = [(3, 2), (1, 4), (5, 5)]  # source, target


@pytest.fixture
def weights():
    """W of both directions as nested lists, one matrix per pair, and as padded tensors."""
    torch.manual_seed(3)
    size = max(s for s, _ in LENGTHS), max(t for _, t in LENGTHS)
    fwd = torch.zeros(len(LENGTHS), size[1], size[0])
    bwd = torch.zeros(len(LENGTHS), size[0], size[1])
    lists = []
    for b, (s, t) in enumerate(LENGTHS):
        fwd[b, :t, :s] = torch.rand(t, s + 1).softmax(-1)[:, 1:]
        bwd[b, :s, :t] = torch.rand(s, t + 1).softmax(-1)[:, 1:]
        lists.append((fwd[b, :t, :s].tolist(), bwd[b, :s, :t].tolist()))
    return fwd, bwd, lists


@pytest.mark.slow
def test_prediction_and_its_gradient(monkeypatch):
    monkeypatch.setattr(loss, "CHUNK", 3)  # several chunks
    torch.manual_seed(0)
    hidden, table = torch.randn(7, 4).requires_grad_(), torch.randn(9, 4).requires_grad_()
    targets = torch.randint(9, (7,))
    for smoothing in (0.0, 0.1):
        wanted = 0.0
        for h, y in zip(hidden.tolist(), targets.tolist(), strict=True):
            logits = [sum(a * b for a, b in zip(h, e, strict=True)) for e in table.tolist()]
            log_sum = math.log(sum(math.exp(x) for x in logits))
            logs = [x - log_sum for x in logits]
            wanted -= (1 - smoothing) * logs[y] + smoothing * sum(logs) / len(logs)
        made = loss.prediction_loss(hidden, table, targets, smoothing)
        assert made.item() == pytest.approx(wanted, rel=1e-5)
        plain = torch.nn.functional.cross_entropy(
            hidden @ table.T, targets, reduction="sum", label_smoothing=smoothing
        )
        ours = torch.autograd.grad(3 * made, (hidden, table))
        theirs = torch.autograd.grad(3 * plain, (hidden, table))
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_prediction_of_nothing_is_zero():
    table = torch.randn(9, 4).requires_grad_()
    made = loss.prediction_loss(torch.zeros(0, 4), table, torch.zeros(0, dtype=torch.long), 0.1)
    made.backward()
    assert made == 0 and not table.grad.any()


def test_agreement(weights):
    fwd, bwd, lists = weights
    wanted = 0.0
    for (s, t), (one, other) in zip(LENGTHS, lists, strict=True):
        wanted += sum((one[i][j] - other[j][i]) ** 2 for i in range(t) for j in range(s))
    assert loss.agreement_loss(fwd, bwd).item() == pytest.approx(wanted, rel=1e-5)


def test_entropy(weights):
    fwd, _, lists = weights
    cells = torch.zeros_like(fwd, dtype=torch.bool)
    wanted = 0.0
    for b, ((s, t), (matrix, _)) in enumerate(zip(LENGTHS, lists, strict=True)):
        cells[b, :t, :s] = True
        for row in matrix:
            lifted = [w + 0.05 for w in row]
            shares = [x / sum(lifted) for x in lifted]
            wanted -= sum(p * math.log(p) for p in shares)
    assert loss.entropy_loss(fwd, cells, 0.05).item() == pytest.approx(wanted, rel=1e-5)


def test_entropy_of_zero_weights_without_lambda_has_a_finite_gradient():
    weights = torch.zeros(1, 2, 3).requires_grad_()
    loss.entropy_loss(weights, torch.ones(1, 2, 3, dtype=torch.bool), 0.0).backward()
    assert weights.grad.isfinite().all()


def test_guidance(weights):
    fwd, _, lists = weights
    links = torch.zeros_like(fwd, dtype=torch.bool)
    chosen = {0: [(0, 0), (0, 2)], 1: [(3, 0)], 2: [(1, 1), (4, 0)]}  # target, source
    wanted = 0.0
    for b, places in chosen.items():
        rows: dict[int, float] = {}
        for i, j in places:
            links[b, i, j] = True
            rows[i] = rows.get(i, 0.0) + lists[b][0][i][j]
        wanted -= sum(math.log(weight) for weight in rows.values())
    assert loss.guidance_loss(fwd, links).item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("norm", ["cells", "rows"])
def test_the_objective_is_the_sum_of_the_terms_in_the_spec(norm):
    torch.manual_seed(5)
    shape = {"width": 16, "ff": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    model = MaskAlign(ModelConfig(**shape, src_vocab=20, tgt_vocab=20, dropout=0.0))
    config = TrainConfig(alpha=5.0, beta=2.0, entropy_norm=norm, label_smoothing=0.0)
    s, t = (torch.tensor(side) for side in zip(*LENGTHS, strict=True))
    src, tgt = torch.randint(20, (3, 5)), torch.randint(20, (3, 5))
    totals = Totals(int(s.sum()), int(t.sum()), int((s * t).sum()))
    values = MaskAlignLoss(model, config)(TrainingBatch(src, s, tgt, t), totals, 0.0)
    made = dict(zip(MaskAlignLoss.terms, values.tolist(), strict=True))
    fwd, bwd = model(src, s, tgt, t, read="prior")

    def nll(output, ids, lengths, table):
        logs = (output.hidden @ table.T).log_softmax(-1)
        places = [(b, i) for b, n in enumerate(lengths.tolist()) for i in range(n)]
        return -sum(logs[b, i, ids[b, i]].item() for b, i in places) / len(places)

    def entropy(output, rows, columns):
        total = 0.0
        for b in range(3):
            for i in range(rows[b]):
                lifted = output.weights[b, i, : columns[b]] + config.entropy_lambda
                shares = lifted / lifted.sum()
                total -= (shares * shares.log()).sum().item()
        return total / (totals.cells if norm == "cells" else int(rows.sum()))

    gap = (fwd.weights - bwd.weights.transpose(1, 2)).square().sum().item() / totals.cells
    assert made["nll_fwd"] == pytest.approx(nll(fwd, tgt, t, model.table(1)), rel=1e-4)
    assert made["nll_bwd"] == pytest.approx(nll(bwd, src, s, model.table(0)), rel=1e-4)
    assert made["agreement"] == pytest.approx(gap, rel=1e-4)
    assert made["entropy"] == pytest.approx(entropy(fwd, t, s) + entropy(bwd, s, t), rel=1e-4)
    half = (made["nll_fwd"] + made["nll_bwd"]) / 2
    assert made["loss"] == pytest.approx(
        half + 5 * made["agreement"] + 2 * made["entropy"], rel=1e-4
    )

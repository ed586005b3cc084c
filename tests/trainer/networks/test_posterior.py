"""The posterior: Bayes' rule over the weights, exact and in closed form."""

from dataclasses import replace

import pytest
import torch

from ....engine.errors import MxError
from ....trainer.config import ModelConfig, resolve_config
from ....trainer.data.batches import Totals, TrainingBatch
from ....trainer.networks import posterior
from ....trainer.networks.losses import MaskAlignLoss
from ....trainer.networks.mask_align import MaskAlign

PAIRS = [(5, 4), (1, 3), (3, 1), (1, 1), (6, 6)]


def make_model(**options) -> MaskAlign:
    torch.manual_seed(3)
    config = ModelConfig(
        width=16, ff=24, heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0,
        src_vocab=30, tgt_vocab=25,
    )  # fmt: skip
    model = MaskAlign(replace(config, **options)).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def make_batch() -> list[torch.Tensor]:
    torch.manual_seed(4)
    s, t = (torch.tensor(side) for side in zip(*PAIRS, strict=True))
    return [torch.randint(25, (5, 6)), s, torch.randint(25, (5, 7)), t]


def read(model: MaskAlign, how: str):
    with torch.inference_mode():
        return model(*make_batch(), read=how)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_gradient_is_that_of_autograd(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior, "RAMP", 1e-9)  # the slope of a ReLU, and no ramp
    decoder = make_model(norm=norm).fwd.decoder
    before, wanted = torch.randn(2, 3, 5, 16).double()
    mixed = torch.randn(3, 5, 16).double().requires_grad_()
    cross, feed_forward = decoder.cross[decoder.last_layer], decoder.feed_forward[-1]
    hidden = decoder.norm(feed_forward(cross.add_residual(before, mixed)))
    (expected,) = torch.autograd.grad((hidden * wanted).sum(), mixed)
    # The closed form computes in float32 wherever the network may be in bf16.
    single = decoder.float()
    found = posterior.likelihood_gradient(single, before.float(), mixed.float(), wanted.float())
    torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_exact_posterior_is_bayes_rule_cell_by_cell(norm: str) -> None:
    model = make_model(norm=norm, joint_vocab=False).float()
    src, s, tgt, t = make_batch()
    prior, exact = (read(model, how)[0] for how in ("prior", "exact"))
    decoder, kept = model.fwd.decoder, {}
    cross = decoder.cross[decoder.last_layer]
    cross.register_forward_pre_hook(lambda _, given: kept.update(h=given[0], source=given[1]))
    read(model, "prior")
    model(src, s, tgt, t)  # the second direction has the hook of its own decoder only
    with torch.inference_mode():
        source = model.encode(src, s, 0)
        for b, i in ((0, 2), (4, 5), (1, 0)):
            joint = []
            values = [cross.null_value, *cross.value(source)[b, : s[b]]]
            weights = [prior.null[b, i], *prior.weights[b, i, : s[b]]]
            for weight, value in zip(weights, values, strict=True):
                x = cross.add_residual(kept["h"][b, i], cross.out(value))
                logits = decoder.norm(decoder.feed_forward[-1](x)) @ model.table(1).T
                joint.append(weight * logits.softmax(-1)[tgt[b, i]])
            shares = torch.stack(joint) / sum(joint)
            torch.testing.assert_close(exact.null[b, i], shares[0], rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(
                exact.weights[b, i, : s[b]], shares[1:], rtol=1e-3, atol=1e-5
            )


def test_small_updates_make_the_closed_form_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior, "STRENGTH", 1.0)  # below 1 for large updates
    model = make_model(norm="pre").float()
    with torch.no_grad():
        for direction in (model.fwd, model.bwd):
            cross = direction.decoder.cross["1"]
            cross.out.weight.mul_(0.02)
            direction.decoder.feed_forward[-1].up.bias.add_(3.0)  # far from the kinks
        # The mean of the vocabulary stands for its softmax: here all words are nearly equal ...
        model.tgt_embedding.weight.mul_(0.05)
    closed, exact, prior = (read(model, how)[0].weights for how in ("posterior", "exact", "prior"))
    assert (closed - exact).abs().max() < 0.05 * (exact - prior).abs().max()


@pytest.mark.parametrize("leaky", [True, False])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("how", ["posterior", "exact"])
def test_shares_of_each_word_sum_to_one(leaky: bool, masked: bool, how: str) -> None:
    model = make_model(leaky=leaky, masked=masked, tied=True).float()
    _, s, _, t = make_batch()
    for found, rows, columns in zip(read(model, how), (t, s), (s, t), strict=True):
        for b in range(len(PAIRS)):
            total = found.weights[b].sum(-1) + found.null[b]
            torch.testing.assert_close(total[: rows[b]], torch.ones(rows[b]))
            assert not total[rows[b] :].any() and not found.weights[b, :, columns[b] :].any()


def test_layers_and_rows_of_an_ordinary_decoder() -> None:
    model = make_model(masked=False, leaky=False, cross="all").float()
    _, _, _, t = make_batch()
    last, before = (read(model, how)[0].weights for how in ("layer=-1", "layer=-2"))
    assert torch.equal(last, read(model, "prior")[0].weights)
    assert not torch.allclose(last, before)
    shifted = read(model, "shift")[0]
    for b in range(len(PAIRS)):  # row i is what the ordinary reading has in row i + 1
        n = int(t[b]) - 1
        torch.testing.assert_close(shifted.weights[b, :n], last[b, 1 : n + 1])
        assert shifted.weights[b, n].sum() == pytest.approx(1, rel=1e-5)
        assert not shifted.weights[b, n + 1 :].any()
    with pytest.raises(MxError, match="there are 2 layers"):
        read(model, "layer=-3")


def test_impossible_readings_are_refused() -> None:
    with pytest.raises(MxError, match="read must be one of prior, posterior"):
        resolve_config("tiny", {"read": "guess"})
    with pytest.raises(MxError, match="a masked decoder never reads"):
        resolve_config("tiny", {"read": "shift"})


def test_agreement_and_links_can_act_on_the_posterior() -> None:
    model = make_model(norm="pre").float()
    src, s, tgt, t = make_batch()
    totals = Totals(int(s.sum()), int(t.sum()), int((s * t).sum()))
    links = torch.zeros(5, 7, 6)
    links[0, 1, 2] = links[4, 3, 3] = 1.0
    terms = {}
    for learn_on in ("prior", "posterior"):
        config = resolve_config("tiny", {"learn_on": learn_on}).train
        batch = TrainingBatch(src, s, tgt, t, links)
        values = MaskAlignLoss(model, config)(batch, totals, 1.0)
        terms[learn_on] = dict(zip(MaskAlignLoss.terms, values, strict=True))
    fwd, bwd = read(model, "posterior")
    gap = (fwd.weights - bwd.weights.mT).square().sum() / totals.cells
    torch.testing.assert_close(terms["posterior"]["agreement"].detach(), gap)
    for same in ("nll_fwd", "nll_bwd", "entropy"):
        torch.testing.assert_close(terms["posterior"][same], terms["prior"][same])
    terms["posterior"]["guidance"].backward()
    value = model.fwd.decoder.cross["1"].value.weight.grad
    assert value is not None and value.abs().sum() > 0  # what only the word's own likelihood needs

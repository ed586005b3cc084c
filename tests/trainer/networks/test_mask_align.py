"""What the network promises, for random weights, shapes and options."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ....trainer.config import ModelConfig
from ....trainer.networks import losses as loss
from ....trainer.networks.mask_align import MaskAlign, harmonic_mean, valid_places

VOCAB = 30


@st.composite
def models(draw, **fixed):
    options = {
        "norm": draw(st.sampled_from(["post", "pre"])),
        "masked": draw(st.booleans()),
        "leaky": draw(st.booleans()),
        "cross": draw(st.sampled_from(["last", "all"])),
        "tied": draw(st.booleans()),
        "joint_vocab": draw(st.booleans()),
        "encoder_layers": draw(st.integers(1, 2)),
        "decoder_layers": draw(st.integers(1, 3)),
        "read": draw(st.sampled_from(["prior", "posterior"])),
    }
    torch.manual_seed(draw(st.integers(0, 1000)))
    return build(**{**options, **fixed})


def build(**options):
    config = ModelConfig(width=16, ff=12, heads=2, dropout=0.0, src_vocab=VOCAB, tgt_vocab=VOCAB)
    model = MaskAlign(dataclasses.replace(config, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms are no special case either
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@st.composite
def batches(draw, least=1):
    pairs = draw(st.lists(st.tuples(*[st.integers(least, 7)] * 2), min_size=1, max_size=4))
    extra = draw(st.tuples(*[st.integers(0, 3)] * 2))
    return make_batch(pairs, extra, draw(st.integers(0, 1000)))


def make_batch(pairs, extra=(0, 0), seed=0):
    """Random ids, also in the padding, which nothing may depend on."""
    torch.manual_seed(seed)
    sides = []
    for side in (0, 1):
        lengths = torch.tensor([pair[side] for pair in pairs])
        sides += [torch.randint(VOCAB, (len(pairs), int(lengths.max()) + extra[side])), lengths]
    return sides


many = settings(max_examples=25, deadline=None, derandomize=True)


def close(a, b, message=""):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5, msg=message or None)


@pytest.mark.slow
@many
@given(models(masked=True, read="prior"), batches(), st.data())
def test_a_row_never_sees_its_own_piece(model, batch, data):
    src, src_lengths, tgt, tgt_lengths = batch
    row = data.draw(st.integers(0, len(tgt) - 1))
    place = data.draw(st.integers(0, int(tgt_lengths[row]) - 1))
    changed = tgt.clone()
    changed[row, place] = (tgt[row, place] + 1 + data.draw(st.integers(0, VOCAB - 2))) % VOCAB
    before = model(src, src_lengths, tgt, tgt_lengths)[0]
    after = model(src, src_lengths, changed, tgt_lengths)[0]
    for other in range(int(tgt_lengths[row])):
        assert other == place or not torch.equal(
            before.hidden[row, other], after.hidden[row, other]
        )
    close(before.weights[row, place], after.weights[row, place])
    close(before.null[row, place], after.null[row, place])
    close(before.hidden[row, place], after.hidden[row, place])


@many
@given(models(masked=False), batches(), st.data())
def test_autoregressive_rows_see_the_pieces_before(model, batch, data):
    src, src_lengths, tgt, tgt_lengths = batch
    place = data.draw(st.integers(0, int(tgt_lengths[0]) - 1))
    changed = tgt.clone()
    changed[0, place] = (tgt[0, place] + 1) % VOCAB
    before = model(src, src_lengths, tgt, tgt_lengths)[0].hidden[0, : tgt_lengths[0]]
    after = model(src, src_lengths, changed, tgt_lengths)[0].hidden[0, : tgt_lengths[0]]
    close(before[: place + 1], after[: place + 1])
    assert (before[place + 1 :] != after[place + 1 :]).any(-1).all()


@pytest.mark.slow
@many
@given(models(), batches(least=0))
def test_padding_changes_nothing(model, batch):
    src, src_lengths, tgt, tgt_lengths = batch
    together = model(src, src_lengths, tgt, tgt_lengths)
    for row, (s, t) in enumerate(zip(src_lengths.tolist(), tgt_lengths.tolist(), strict=True)):
        one = slice(row, row + 1)
        alone = model(src[one, :s], src_lengths[one], tgt[one, :t], tgt_lengths[one])
        for many, single, rows, columns in zip(together, alone, (t, s), (s, t), strict=True):
            close(many.weights[row, :rows, :columns], single.weights[0])
            close(many.null[row, :rows], single.null[0])
            close(many.hidden[row, :rows], single.hidden[0])
            assert (
                many.weights[row, rows:].eq(0).all() and many.weights[row, :, columns:].eq(0).all()
            )


@pytest.mark.slow
@many
@given(models(), batches())
def test_weights_are_a_distribution_with_null(model, batch):
    src, src_lengths, tgt, tgt_lengths = batch
    outputs = model(src, src_lengths, tgt, tgt_lengths)
    for output, lengths in zip(outputs, (tgt_lengths, src_lengths), strict=True):
        rows = valid_places(lengths, output.weights.shape[1])
        sums = output.weights.sum(-1)[rows]
        assert (output.weights >= 0).all() and (sums <= 1 + 1e-5).all()
        close(sums + output.null[rows], torch.ones_like(sums))
        assert model.config.leaky or not output.null.any()


@pytest.mark.slow
@many
@given(models(), st.data())
def test_short_and_empty_sides_are_finite(model, data):
    lengths = st.lists(st.tuples(*[st.integers(0, 2)] * 2), min_size=1, max_size=3)
    extra = data.draw(st.tuples(*[st.integers(0, 1)] * 2))
    src, src_lengths, tgt, tgt_lengths = make_batch(data.draw(lengths), extra)
    fwd, bwd = model(src, src_lengths, tgt, tgt_lengths)
    reals = valid_places(tgt_lengths, tgt.shape[1]), valid_places(src_lengths, src.shape[1])
    cells = reals[0][:, :, None] & reals[1][:, None, :]
    total = loss.agreement_loss(fwd.weights, bwd.weights)
    total = total + loss.entropy_loss(fwd.weights, cells, 0.05)
    total = total + loss.entropy_loss(bwd.weights, cells.transpose(1, 2), 0.05)
    for output, ids, real, side in ((fwd, tgt, reals[0], 1), (bwd, src, reals[1], 0)):
        total = total + loss.prediction_loss(output.hidden[real], model.table(side), ids[real], 0.1)
    total.backward()
    assert total.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.slow
@many
@given(models(), batches())
def test_swapping_the_languages_swaps_the_directions(model, batch):
    src, src_lengths, tgt, tgt_lengths = batch
    fwd, bwd = model(src, src_lengths, tgt, tgt_lengths)
    config = model.config
    if config.tied:
        model.side.data = model.side.data.flip(0)
    else:
        model.fwd, model.bwd = model.bwd, model.fwd
    if not config.joint_vocab:
        model.src_embedding, model.tgt_embedding = model.tgt_embedding, model.src_embedding
    swapped_fwd, swapped_bwd = model(tgt, tgt_lengths, src, src_lengths)
    for one, other in ((fwd, swapped_bwd), (bwd, swapped_fwd)):
        close(one.weights, other.weights)
        close(one.hidden, other.hidden)
    close(
        harmonic_mean(fwd.weights, bwd.weights),
        harmonic_mean(swapped_fwd.weights, swapped_bwd.weights).transpose(1, 2),
    )


@torch.no_grad()
def test_static_attention_against_a_loop():
    """One post-norm decoder layer, written out row by row and head by head."""
    model = build(encoder_layers=1, decoder_layers=1, cross="last", read="prior")
    src, src_lengths, tgt, tgt_lengths = make_batch([(5, 4)])
    decoder = model.fwd.decoder
    words, start = model.embed(tgt, 1)
    read, read_start = model.embed(src, 0)
    source = model.fwd.encoder(read + read_start, src_lengths)[0]
    keys, values = decoder.key_value(words + start)[0].chunk(2, -1)
    attention, cross, head = decoder.attention[0], decoder.cross["0"], 8

    def mix(scores, vectors):
        shares = [math.exp(score) for score in scores]
        total = sum(shares)
        shares = [share / total for share in shares]
        return sum(s * v for s, v in zip(shares, vectors, strict=True)), shares

    def heads(query, rows_k, rows_v):
        parts = []
        for h in range(2):
            part = slice(head * h, head * (h + 1))
            scores = [(query[part] @ k[part]).item() / math.sqrt(head) for k in rows_k]
            parts.append(mix(scores, [v[part] for v in rows_v]))
        return torch.cat([mixed for mixed, _ in parts]), [shares for _, shares in parts]

    result = model(src, src_lengths, tgt, tgt_lengths)[0]
    for i in range(4):
        others = [j for j in range(4) if j != i]
        mixed, _ = heads(attention.query(start[i]), keys[others], values[others])
        h = attention.norm(start[i] + attention.out(mixed))
        ks = [cross.null_key, *cross.key(source)]
        vs = [cross.null_value, *cross.value(source)]
        mixed, shares = heads(cross.query(h), ks, vs)
        mean = (torch.tensor(shares[0]) + torch.tensor(shares[1])) / 2
        close(result.null[0, i], mean[0])
        close(result.weights[0, i], mean[1:])
        h = decoder.feed_forward[0](cross.norm(h + cross.out(mixed)))
        close(result.hidden[0, i], h)


def test_symmetrize_is_the_harmonic_mean_and_zero_where_both_are():
    fwd, bwd = torch.tensor([[[0.5, 0.0], [1.0, 0.0]]]), torch.tensor([[[0.25, 0.0], [0.5, 0.0]]])
    wanted = torch.tensor([[[2 * 0.5 * 0.25 / 0.75, 0.0], [0.0, 0.0]]])
    close(harmonic_mean(fwd, bwd), wanted)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_autocast_is_close(kind):
    model, batch = build(), make_batch([(5, 4), (2, 6)])
    with torch.autocast("cpu", dtype=kind):
        low = model(*batch)
    for one, other in zip(low, model(*batch), strict=True):
        assert (one.weights - other.weights).abs().max() < 0.1


def test_joint_vocabulary_and_tied_directions_share_weights():
    names = {
        name.split(".")[0] for name, _ in build(tied=True, joint_vocab=True).named_parameters()
    }
    assert names == {"src_embedding", "fwd", "side"}
    names = {name.split(".")[0] for name, _ in build(joint_vocab=False).named_parameters()}
    assert names == {"src_embedding", "tgt_embedding", "fwd", "bwd"}

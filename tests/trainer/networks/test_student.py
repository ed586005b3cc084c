"""What the student promises, for random weights and shapes, and how it learns from a teacher."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from ....engine.errors import MxError
from ....trainer.config import ModelConfig
from ....trainer.data.batches import make_batch
from ....trainer.data.teacher_links import TeacherLinks
from ....trainer.loop.state import TrainingState
from ....trainer.loop.train import train_network
from ....trainer.networks import losses as loss
from ....trainer.networks import weights
from ....trainer.networks.losses import StudentLoss
from ....trainer.networks.mask_align import harmonic_mean, valid_places
from ....trainer.networks.student import Student
from ....trainer.networks.word_scores import word_links

VOCAB = 30
many = settings(max_examples=25, deadline=None, derandomize=True)


def build(seed=0, **options):
    torch.manual_seed(seed)
    shape = {"kind": "student", "width": 16, "ff": 12, "heads": 2, "encoder_layers": 2}
    sizes = {"src_vocab": VOCAB, "tgt_vocab": VOCAB}
    model = Student(ModelConfig(**{**shape, "dropout": 0.0, "refine": 3, **sizes, **options}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_starts"):
                parameter.copy_(torch.rand_like(parameter) < 0.7)
            else:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@st.composite
def students(draw):
    return build(
        draw(st.integers(0, 1000)),
        joint_vocab=draw(st.booleans()),
        refine=draw(st.sampled_from([0, 3])),
        diagonal=draw(st.booleans()),
        encoder_layers=draw(st.integers(1, 3)),
    )


@st.composite
def batches(draw, least=0):
    pairs = draw(st.lists(st.tuples(*[st.integers(least, 7)] * 2), min_size=1, max_size=4))
    extra = draw(st.tuples(*[st.integers(0, 3)] * 2))
    torch.manual_seed(draw(st.integers(0, 1000)))
    sides = []
    for side in (0, 1):
        lengths = torch.tensor([pair[side] for pair in pairs])
        width = max(1, int(lengths.max())) + extra[side]
        sides += [torch.randint(VOCAB, (len(pairs), width)), lengths]
    return sides


@many
@given(students(), batches())
def test_padding_and_neighbours_in_the_batch_change_nothing(model, batch):
    src, n_src, tgt, n_tgt = batch
    together = model(*batch)
    for k in range(len(src)):
        s, t = max(1, int(n_src[k])), max(1, int(n_tgt[k]))
        alone = model(src[k : k + 1, :s], n_src[k : k + 1], tgt[k : k + 1, :t], n_tgt[k : k + 1])
        shapes = ((t, s), (s, t))
        for one, many_, (rows, columns) in zip(alone, together, shapes, strict=True):
            torch.testing.assert_close(one.weights[0], many_.weights[k, :rows, :columns])
            torch.testing.assert_close(one.null[0], many_.null[k, :rows])
            assert not many_.weights[k, rows:].any() and not many_.weights[k, :, columns:].any()


@many
@given(students(), batches())
def test_weights_and_null_add_up_to_one_where_there_is_something_to_link(model, batch):
    _, n_src, _, n_tgt = batch
    for output, lengths, others in zip(model(*batch), (n_tgt, n_src), (n_src, n_tgt), strict=True):
        rows = valid_places(lengths, output.null.shape[1]) & (others > 0)[:, None]
        total = output.weights.sum(-1) + output.null
        torch.testing.assert_close(total, rows.float())


@many
@given(students(), batches())
def test_only_first_pieces_are_linked(model, batch):
    src, n_src, tgt, n_tgt = batch
    fwd, bwd = model(*batch)
    for output, ids, other, side in ((fwd, tgt, src, 1), (bwd, src, tgt, 0)):
        inside = model.starting_pieces(side)[ids] == 0
        assert not output.weights[inside].any()
        assert not output.weights.transpose(1, 2)[model.starting_pieces(1 - side)[other] == 0].any()
        lengths, others = (n_tgt, n_src) if side else (n_src, n_tgt)
        rows = valid_places(lengths, ids.shape[1]) & (others > 0)[:, None]
        assert (output.null[inside & rows] == 1).all()


@many
@given(students(), batches())
def test_everything_stays_finite(model, batch):
    src, n_src, tgt, n_tgt = batch
    links = torch.rand(len(src), tgt.shape[1], src.shape[1])
    fwd, bwd = model(*batch)
    total = loss.link_loss(fwd.weights, links, model.word_starts(tgt, n_tgt, 1))
    total = total + loss.null_loss(
        bwd.null, links.transpose(1, 2) * 0, model.word_starts(src, n_src, 0)
    )
    total.backward()
    assert total.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_an_untrained_correction_corrects_nothing():
    torch.manual_seed(0)
    config = ModelConfig(kind="student", width=16, ff=12, heads=2, src_vocab=VOCAB, refine=3)
    model = Student(config).eval()
    ids, lengths = torch.randint(VOCAB, (2, 5)), torch.tensor([5, 3])
    with_it = model(ids, lengths, ids, lengths)[0].weights
    object.__setattr__(model.config, "refine", 0)
    assert (model(ids, lengths, ids, lengths)[0].weights == with_it).all()


def test_a_long_line_is_read_like_its_parts():
    """Far from the ends of a part the vectors are the same, wherever the part stands."""
    model = build()
    ids = torch.randint(VOCAB, (1, 9))
    twice = torch.cat([ids, ids], 1)
    alone = model.encode(ids, torch.tensor([9]), 0)
    joined = model.encode(twice, torch.tensor([18]), 0)
    torch.testing.assert_close(joined[:, 11:18], alone[:, 2:])


def test_the_loss_is_what_it_says():
    weights = torch.tensor([[[0.6, 0.3], [0.1, 0.2], [0.4, 0.5]]])
    null = torch.tensor([[0.1, 0.7, 0.1]])
    links = torch.tensor([[[0.5, 0.0], [0.0, 0.0], [0.9, 0.3]]])
    words = torch.tensor([[True, True, True]])
    wanted = -0.5 * math.log(0.6) - 0.9 * math.log(0.9)
    assert loss.link_loss(weights, links, words).item() == pytest.approx(wanted)
    assert loss.null_loss(null, links, words).item() == pytest.approx(-math.log(0.7))
    words = torch.tensor([[False, False, True]])
    assert loss.link_loss(weights, links, words).item() == pytest.approx(-0.9 * math.log(0.9))
    assert loss.null_loss(null, links, words).item() == 0


def test_soft_targets_are_shares_of_the_confidence():
    weights = torch.tensor([[[0.6, 0.3], [0.1, 0.2], [0.4, 0.5]]])
    links = torch.tensor([[[0.5, 0.0], [0.0, 0.0], [0.9, 0.3]]])
    words = torch.tensor([[True, True, True]])
    wanted = -0.5 * math.log(0.6) - 0.9 * (0.75 * math.log(0.4) + 0.25 * math.log(0.5))
    assert loss.soft_link_loss(weights, links, words).item() == pytest.approx(wanted)
    words = torch.tensor([[True, True, False]])
    assert loss.soft_link_loss(weights, links, words).item() == pytest.approx(-0.5 * math.log(0.6))


def test_without_a_diagonal_places_do_not_matter():
    """Swapped target words swap their scores, once nothing else looks around."""
    ids, lengths = torch.tensor([[3, 4, 5, 6]]), torch.tensor([4])
    for diagonal in (False, True):
        model = build(refine=0, diagonal=diagonal)
        model.layers = torch.nn.ModuleList()  # which look at neighbours
        model.src_starts.fill_(1)
        there = model(ids, lengths, ids, lengths)[0].weights
        back = model(ids, lengths, ids.flip(1), lengths)[0].weights
        assert torch.allclose(back.flip(1), there) != diagonal


# ---- learning ----

STUDENT = {
    "kind": "student", "warm_start": "statistical", "refine": 4, "joins": 0.5, "lr": 0.01,
    "steps": 30, "eval_every": 10, "save_every": 5,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"soft_targets": True}, {"diagonal": False}])
def test_a_student_learns_what_its_teacher_knows(changes, start, tmp_path, read_log):
    arguments = start(tmp_path / "run", {"valid_last": 10}, **STUDENT, **changes)
    assert train_network(*arguments) == 0
    found = [line["accuracy"] for line in read_log(tmp_path / "run") if "accuracy" in line]
    assert found[-1] > 0.6 and found[-1] > found[0]
    terms = [line for line in read_log(tmp_path / "run") if "links" in line]
    assert set(StudentLoss.terms) <= set(terms[0])


@pytest.mark.slow
def test_word_starts_are_kept_with_the_weights(start, tmp_path):
    config, run, *rest = start(tmp_path / "run", **STUDENT)
    trainer = TrainingState(config, run, *rest[:2])
    wanted = trainer.tokenizers[0].word_starts()
    assert 0 < wanted.sum() < len(wanted)
    train_network(config, run, *rest)
    kept = load_file(run / weights.MODEL)["src_starts"].numpy()
    assert (kept == wanted).all()


@pytest.mark.slow
def test_rounds_mix_own_links_and_resume_bit_for_bit(start, train_until, tmp_path):
    settings = {**STUDENT, "rounds": 3}
    whole = tmp_path / "whole"
    train_network(*start(whole, **settings))
    assert (whole / "cache" / "round-2" / "offsets.bin").exists()
    first, own = (TeacherLinks(whole / "cache" / name) for name in ("links/train", "round-1"))
    assert len(first.offsets) == len(own.offsets) and len(own.links)
    assert not np.array_equal(first.links, own.links)

    broken = tmp_path / "broken"
    for last in (7, 18):  # in the first round and in the second
        train_until(last, *start(broken, **settings))
    train_network(*start(broken, **settings))
    one, other = (load_file(folder / weights.MODEL) for folder in (whole, broken))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_links_of_another_try_are_not_taken(start, tmp_path):
    arguments = start(tmp_path / "run", **{**STUDENT, "rounds": 2})
    stale = tmp_path / "run" / "cache" / "round-1"
    stale.mkdir()
    (stale / "offsets.bin").write_bytes(b"")
    train_network(*arguments)
    assert (stale / "links.bin").exists()


def test_a_student_without_null_is_refused(small_config):
    with pytest.raises(MxError, match="always has NULL"):
        small_config(kind="student", leaky=False)


def test_links_of_a_cache_are_those_of_its_words(start, tmp_path):
    config, run, data, world, _ = start(tmp_path / "run", **STUDENT)
    trainer = TrainingState(config, run, data, world)
    trainer.model.eval()
    found = list(word_links(trainer.model, data.train, 0.1, world.device))
    assert len(found) == len(data.train)
    batch = make_batch(trainer.data.train, np.array([3]))
    fwd, bwd = trainer.model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
    scores = harmonic_mean(fwd.weights, bwd.weights)[0].detach().numpy()
    src, tgt = data.train.src.words(3), data.train.tgt.words(3)
    wanted = {(int(src[s]), int(tgt[t])) for t, s in np.argwhere(scores >= 0.1)}
    assert {(i, j) for i, j, _ in found[3]} == wanted

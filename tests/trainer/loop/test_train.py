"""The loop: schedules, accumulation, early stopping, and going on as if nothing had happened."""

import dataclasses
import itertools
import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from ....engine.errors import MxError
from ....trainer.config import TrainConfig, resolve_config
from ....trainer.loop.progress import Progress
from ....trainer.loop.schedules import batch_budget, fit_schedule, guidance_weight, learning_rate
from ....trainer.loop.state import TrainingState
from ....trainer.loop.train import train_network
from ....trainer.networks import weights
from ....trainer.run import checkpoint
from ....trainer.teachers.lexicon import lexicon_embeddings

# ---- schedules ----


def test_learning_rates():
    config = TrainConfig(lr=2.0, warmup=10, steps=110)
    rates = {
        kind: [learning_rate(dataclasses.replace(config, schedule=kind), k) for k in range(111)]
        for kind in ("rsqrt", "cosine", "linear")
    }
    for found in rates.values():
        assert found[:10] == pytest.approx([0.2 * (k + 1) for k in range(10)])
        assert all(a >= b > -1e-9 for a, b in pairwise(found[10:]))
    assert rates["rsqrt"][39] == pytest.approx(2.0 * math.sqrt(10 / 40))
    assert rates["cosine"][60] == pytest.approx(1.0)
    assert rates["linear"][85] == pytest.approx(0.5)
    assert rates["cosine"][110] == pytest.approx(0) == rates["linear"][110]


def test_no_warmup():
    config = TrainConfig(lr=2.0, warmup=0, schedule="linear", steps=10)
    assert learning_rate(config, 0) == 2.0


def test_batches_grow_and_guidance_fades():
    config = TrainConfig(
        batch_tokens=1000, batch_tokens_start=200, batch_growth_until=0.5, steps=100
    )
    assert [batch_budget(config, k) for k in (0, 25, 50, 99)] == [200, 600, 1000, 1000]
    config = TrainConfig(
        warm_start="statistical", guidance_weight=2.0, guidance_until=0.5, steps=100
    )
    assert [guidance_weight(config, k) for k in (0, 25, 50, 99)] == [2.0, 1.0, 0.0, 0.0]
    assert guidance_weight(TrainConfig(warm_start="none"), 0) == 0


# ---- which weights are best ----


def test_the_best_is_the_first_of_equals():
    results = [{"step": k, "accuracy": a, "aer": e} for k, a, e in
               ((1, 0.5, 0.3), (2, 0.7, 0.2), (3, 0.7, 0.2), (4, 0.6, 0.1))]  # fmt: skip
    progress = Progress(results=results)
    assert progress.best(3, "accuracy") == [2, 3, 4]
    assert progress.best(2, "aer") == [4, 2]


def test_without_measurements_the_latest_is_the_best():
    assert Progress(results=[{"step": 1}, {"step": 2}]).best(1, "accuracy") == [2]


# ---- steps ----


@pytest.fixture
def first_step(start, read_log, monkeypatch):
    """Takes one step in micro-batches of a size; gives its logged terms and its gradients."""

    def train_once(run, micro, **settings):
        found = {}

        class Recorder(torch.optim.SGD):
            def step(self, closure=None):
                found.update({n: p.grad.clone() for n, p in self.named})

        def make_recorder(model, width, config):
            recorder = Recorder(model.parameters(), lr=0.0)
            recorder.named = list(model.named_parameters())
            return recorder

        monkeypatch.setattr("mx_align.trainer.loop.state.make_optimizer", make_recorder)
        sizes = {"batch_tokens": 400, "batch_tokens_start": 0, "micro_tokens": micro, "steps": 1}
        train_network(*start(run, dropout=0.0, clip=0.0, **sizes, **settings))
        return read_log(run)[0], found

    return train_once


@pytest.mark.parametrize("norm", ["cells", "rows"])
def test_accumulation_equals_one_big_batch(first_step, tmp_path, norm):
    terms, whole = first_step(tmp_path / "one", 400, entropy_norm=norm)
    parts_terms, parts = first_step(tmp_path / "many", 60, entropy_norm=norm)
    assert parts_terms == pytest.approx(terms, rel=1e-4, abs=1e-5)
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-3, atol=1e-5, msg=name)
    assert any(gradient.any() for gradient in whole.values())


OPTIONS = {
    "plain": {"warm_start": "statistical", "guidance_until": 1.0},
    "averaged": {"ema": 0.9, "optimizer": "adamw", "average": 2, "tied": False},
    "muon": {
        "optimizer": "muon",
        "warm_start": "statistical",
        "norm": "post",
        "joint_vocab": False,
        "vocab_size": 640,
    },
    "autoregressive": {"masked": False, "leaky": False, "cross": "all", "norm": "post"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_a_resumed_run_is_the_same_bit_for_bit(start, train_until, tmp_path, read_log, name):
    settings = {"dropout": 0.2, **OPTIONS[name]}
    assert train_network(*start(tmp_path / "whole", **settings)) == 0
    train_until(5, *start(tmp_path / "broken", **settings))  # step 4 was saved
    torch.randn(5)  # another process has other random numbers
    assert train_network(*start(tmp_path / "broken", **settings)) == 0
    logs = [read_log(tmp_path / run) for run in ("whole", "broken")]
    assert logs[0][-6:] == logs[1][-6:]
    for file in ("model.safetensors", "checkpoints/step-00000012/optimizer.safetensors"):
        one, other = (tmp_path / run / file for run in ("whole", "broken"))
        assert one.read_bytes() == other.read_bytes()


def test_links_give_the_first_embeddings(start, tmp_path):
    trainer = TrainingState(*start(tmp_path / "run", warm_start="statistical")[:4])
    config = trainer.config.model
    expected = lexicon_embeddings(
        trainer.data.train, trainer.data.links, config.src_vocab, 0, config.width, 1
    )
    assert torch.equal(trainer.model.table(0).detach(), torch.from_numpy(expected))


@pytest.mark.slow
def test_it_learns(start, tmp_path, read_log):
    train_network(*start(tmp_path, steps=60, lr=0.02, eval_every=60, save_every=60))
    losses = [line["loss"] for line in read_log(tmp_path) if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]


# ---- validation, stopping, keeping ----


@pytest.mark.slow
def test_early_stopping_and_what_is_kept(start, tmp_path, monkeypatch, read_log):
    accuracies = iter([0.1, 0.3, 0.3, 0.2, 0.9])
    monkeypatch.setattr(
        TrainingState,
        "validate",
        lambda self: {"step": self.progress.step, "accuracy": next(accuracies)},
    )
    settings = {"steps": 50, "eval_every": 2, "save_every": 1, "patience": 2, "keep": 2}
    prepared = start(tmp_path, **settings)
    assert train_network(*prepared) == 0
    steps = [int(folder.name[5:]) for folder in checkpoint.list_checkpoints(tmp_path)]
    assert steps == [4, 7, 8]  # the best, and the last two
    best = load_file(tmp_path / "checkpoints/step-00000004/averaged.safetensors")
    kept = load_file(tmp_path / "model.safetensors")
    assert all(kept[name].equal(best[name]) for name in best)
    log = read_log(tmp_path)
    assert train_network(*start(tmp_path, **settings)) == 0  # has nothing left to do
    assert read_log(tmp_path) == log


def test_the_best_are_averaged_in_the_end(start, tmp_path, monkeypatch):
    accuracies = iter([0.1, 0.3, 0.2])
    monkeypatch.setattr(
        TrainingState,
        "validate",
        lambda self: {"step": self.progress.step, "accuracy": next(accuracies)},
    )
    train_network(*start(tmp_path, steps=6, eval_every=2, average=2, ema=0.0))
    one, two = (
        load_file(tmp_path / f"checkpoints/step-0000000{k}/model.safetensors") for k in (4, 6)
    )
    for name, value in load_file(tmp_path / "model.safetensors").items():
        torch.testing.assert_close(value, (one[name] + two[name]) / 2)


def test_gold_links_are_scored(start, corpus, tmp_path, read_log):
    lines = corpus[0].read_text("utf-8").split("\n")[:20]
    links = [" ".join(f"{k}-{k}" for k in range(len(line.split(" ")))) for line in lines]
    texts = {"gold_src": tmp_path / "s", "gold_tgt": tmp_path / "t", "gold": tmp_path / "g"}
    contents = lines, corpus[1].read_text("utf-8").split("\n")[:20], links
    for file, content in zip(texts.values(), contents, strict=True):
        file.write_text("".join(f"{line}\n" for line in content), "utf-8")
    run = tmp_path / "run"
    train_network(*start(run, texts={k: str(v) for k, v in texts.items()}, select="aer", steps=6))
    (result,) = [line for line in read_log(run) if "aer" in line]
    assert 0 <= result["best_aer"] <= result["aer"] <= 1
    model, _ = weights.load_network(run)
    assert not model.training


def test_weights_that_are_not_finite_are_never_saved(start, tmp_path):
    prepared = start(tmp_path, lr=1e30, log_every=100)
    with pytest.raises(MxError, match="not a finite number at step"):
        train_network(*prepared)
    for folder in checkpoint.list_checkpoints(tmp_path):
        weights = load_file(folder / "model.safetensors")
        assert all(tensor.isfinite().all() for tensor in weights.values())


# ---- a time budget ----


def test_schedules_end_with_the_time():
    config = resolve_config("tiny", {"steps": 10_000, "minutes": 10.0}).train
    assert fit_schedule(config, 0, 0.0) == config  # nothing is known yet
    plan = fit_schedule(config, 300, 60.0)
    assert plan.steps == 3000 and plan.warmup == 200
    assert fit_schedule(config, 30, 60.0).warmup == 60  # of 300 steps
    assert fit_schedule(config, 9000, 60.0).steps == 10_000
    assert fit_schedule(config, 2999, 600.0).steps == 2999
    assert learning_rate(fit_schedule(config, 3000, 600.0), 3000) == pytest.approx(0, abs=1e-9)
    unlimited = resolve_config("tiny", {"steps": 10_000}).train
    assert fit_schedule(unlimited, 300, 60.0) == unlimited


@pytest.mark.slow
def test_the_run_ends_when_its_time_is_up(start, tmp_path, read_log, monkeypatch):
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 10)
    monkeypatch.setattr("mx_align.trainer.loop.train.time", clock)
    settings = {"steps": 100_000, "minutes": 0.05, "eval_every": 100_000, "save_every": 100_000}
    assert train_network(*start(tmp_path, **settings)) == 0
    log = read_log(tmp_path)
    last = max(line["step"] for line in log)
    assert 25 < last <= 30 and (tmp_path / "model.safetensors").exists()
    rates = [line["lr"] for line in log if "lr" in line]
    assert rates[-1] < 0.3 * max(rates)
    train_network(*start(tmp_path, **settings))  # has nothing left to do
    assert read_log(tmp_path) == log

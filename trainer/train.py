"""The training loop: batch, loss, step, log, validate, save.

Knows when things happen. The network is in `model.py`, the text in `corpus.py`, the folder in
`checkpoint.py`; devices and processes are in `distributed.py`.
"""

import contextlib
import math
import signal
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mx.engine.errors import MxError
from mx.trainer import checkpoint, loss
from mx.trainer.config import RunConfig, TrainConfig
from mx.trainer.corpus import Prepared, tokenizers
from mx.trainer.data import Batch, Batches, Position, prefetch
from mx.trainer.distributed import World
from mx.trainer.evaluate import align_gold, predict
from mx.trainer.lexicon import embeddings
from mx.trainer.model import MaskAlign, valid
from mx.trainer.optimizer import make_optimizer, set_rate
from mx.trainer.progress import Monitor

TERMS = ("loss", "nll_fwd", "nll_bwd", "agreement", "entropy", "seeds")


class Objective(nn.Module):
    """The loss of a micro-batch, as its share of the whole step's loss."""

    def __init__(self, model: MaskAlign, config: TrainConfig) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, batch: Batch, totals: loss.Totals, seed_weight: float) -> Tensor:
        """The values of TERMS, (6,); the first is what is minimised."""
        config = self.config
        fwd, bwd = self.model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
        src = valid(batch.src_lengths, batch.src.shape[1])
        tgt = valid(batch.tgt_lengths, batch.tgt.shape[1])
        smoothing = config.label_smoothing
        nll_fwd = loss.prediction(fwd.hidden[tgt], self.model.table(1), batch.tgt[tgt], smoothing)
        nll_bwd = loss.prediction(bwd.hidden[src], self.model.table(0), batch.src[src], smoothing)
        nll_fwd, nll_bwd = nll_fwd / totals.tgt_pieces, nll_bwd / totals.src_pieces
        agreement = loss.agreement(fwd.weights, bwd.weights) / totals.cells
        cells = tgt[:, :, None] & src[:, None, :]
        by_cells = config.entropy_norm == "cells"
        entropy = loss.entropy(fwd.weights, cells, config.entropy_lambda) / (
            totals.cells if by_cells else totals.tgt_pieces
        ) + loss.entropy(bwd.weights, cells.transpose(1, 2), config.entropy_lambda) / (
            totals.cells if by_cells else totals.src_pieces
        )
        seeds = torch.zeros_like(nll_fwd)
        if batch.links is not None:
            links = batch.links
            seeds = loss.seeds(fwd.weights, links) / (2 * totals.tgt_pieces) + loss.seeds(
                bwd.weights, links.transpose(1, 2)
            ) / (2 * totals.src_pieces)
        total = 0.5 * (nll_fwd + nll_bwd) + config.alpha * agreement + config.beta * entropy
        total = total + seed_weight * seeds
        return torch.stack([total, nll_fwd, nll_bwd, agreement, entropy, seeds])


# ---- schedules ----


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of optimizer step `step`, counted from 0."""
    warm = min(1.0, (step + 1) / max(config.warmup, 1))
    if config.schedule == "rsqrt":
        return config.lr * min(warm, math.sqrt(max(config.warmup, 1) / max(step + 1, 1)))
    done = (step - config.warmup) / max(config.steps - config.warmup, 1)
    done = min(max(done, 0.0), 1.0)
    left = 0.5 * (1 + math.cos(math.pi * done)) if config.schedule == "cosine" else 1 - done
    return config.lr * warm * left


def batch_budget(config: TrainConfig, step: int) -> int:
    """Pieces per optimizer step, growing linearly from `batch_tokens_start`."""
    if not config.batch_tokens_start:
        return config.batch_tokens
    done = min(1.0, step / max(config.steps * config.batch_growth_until, 1))
    start = config.batch_tokens_start
    return round(start + (config.batch_tokens - start) * done)


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """Dropout is a function of step and device, so that a resumed run goes on the same."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)


def seed_weight(config: TrainConfig, step: int) -> float:
    """Weight of the seed links: linearly down to zero."""
    if config.warm_start == "none":
        return 0.0
    return config.seed_weight * max(0.0, 1 - step / max(config.steps * config.seed_until, 1))


# ---- state ----


@dataclass
class Progress:
    """What a checkpoint remembers besides tensors."""

    step: int = 0
    pieces: int = 0  # of both sides, seen so far
    seconds: float = 0.0  # spent training, over all starts
    position: Position = field(default_factory=Position)
    waited: int = 0  # validations since the last improvement
    results: list[dict[str, Any]] = field(default_factory=list)  # one per validation
    scaler: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Progress":
        return cls(**{**values, "position": Position(**values["position"])})

    def best(self, n: int, select: str) -> list[int]:
        """The steps of the n best validations, best first; the latest where none was measured."""
        measured = [r for r in self.results if select in r] or self.results
        sign = -1 if select == "aer" else 1
        # Of equals the first one measured wins: staying level is no improvement.
        ranked = sorted(
            measured,
            key=lambda r: (sign * r[select], -r["step"]) if select in r else (0, r["step"]),
            reverse=True,
        )
        return [r["step"] for r in ranked[:n]]


class Trainer:
    """A run in progress: model, optimizer, averaged weights, progress."""

    def __init__(self, config: RunConfig, run: Path, data: Prepared, world: World) -> None:
        self.config, self.run, self.data, self.world = config, run, data, world
        train = config.train
        torch.manual_seed(train.seed)
        self.model = MaskAlign(config.model).to(world.device)
        self.tokenizers = tokenizers(run, config)
        self.optimizer = make_optimizer(self.model, config.model.width, train)
        self.progress = Progress()
        self.averaged: dict[str, Tensor] | None = None
        self.autocast, self.scaler = world.precision(train.precision)
        found = checkpoint.folders(run)
        if found:
            state, self.averaged = checkpoint.load(found[-1], self.model, self.optimizer)
            self.progress = Progress.from_json(state)
            if self.progress.scaler:  # empty if the precision was another one before
                self.scaler.load_state_dict(self.progress.scaler)
        elif data.links is not None:
            start_from_lexicon(self.model, data, train.seed)
        if train.ema and self.averaged is None:
            self.averaged = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        elif self.averaged is not None:
            # In the order of the parameters, which is not that of the file.
            names = [name for name, _ in self.model.named_parameters()]
            self.averaged = {name: self.averaged[name].to(world.device) for name in names}
        objective: nn.Module = Objective(self.model, train)
        if train.compile:
            self.model.compile(dynamic=True)
        self.objective = world.wrap(objective)

    def steps(self) -> Generator[Tensor, None, None]:
        """Runs one optimizer step after another; yields the terms of each."""
        train, progress, world = self.config.train, self.progress, self.world
        batches = Batches(
            self.data.train,
            seed=train.seed,
            budget=lambda step: batch_budget(train, step),
            micro=train.micro_tokens,
            rank=world.rank,
            world=world.size,
            links=self.data.links,
            want_links=lambda step: seed_weight(train, step) > 0,
        )
        for step in prefetch(batches.steps(progress.position, progress.step)):
            terms = self.update(step.batches, step.totals)
            progress.position = step.after
            progress.pieces += step.totals.src_pieces + step.totals.tgt_pieces
            yield terms

    def update(self, batches: list[Batch], totals: loss.Totals) -> Tensor:
        """One optimizer step; returns the step's terms as this device sees them."""
        train, world, step = self.config.train, self.world, self.progress.step
        self.model.train()
        torch.manual_seed(dropout_seed(train.seed, step, world.rank))
        set_rate(self.optimizer, learning_rate(train, step))
        terms = torch.zeros(len(TERMS), device=world.device)
        for k, batch in enumerate(batches):
            last = k + 1 == len(batches)
            with world.sync(self.objective, last), self.autocast():
                values = self.objective(batch.to(world.device), totals, seed_weight(train, step))
            # Gradients are averaged over devices, losses add up: hence the factor.
            self.scaler.scale(values[0] * world.size).backward()
            terms += values.detach()
        self.scaler.unscale_(self.optimizer)
        if train.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.progress.step += 1
        if self.averaged is not None:
            self.average()
        return terms

    @torch.no_grad()
    def average(self) -> None:
        """Move the averaged weights; the decay is lower at first, so that they keep up."""
        assert self.averaged is not None
        step = self.progress.step
        decay = min(self.config.train.ema, (1 + step) / (10 + step))
        now = [p.detach() for p in self.model.parameters()]
        torch._foreach_lerp_(list(self.averaged.values()), now, 1 - decay)

    @contextlib.contextmanager
    def evaluated_weights(self) -> Iterator[None]:
        """Inside, the model has the averaged weights, if there are any."""
        if self.averaged is None:
            yield
            return
        own = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        checkpoint.assign(self.model, self.averaged)
        try:
            yield
        finally:
            checkpoint.assign(self.model, own)

    def validate(self) -> dict[str, Any]:
        """Accuracy on the validation text and AER on the gold set, as far as there are any."""
        result: dict[str, Any] = {"step": self.progress.step}
        self.model.eval()
        with self.evaluated_weights(), self.autocast():
            if self.data.valid is not None:
                result.update(asdict(predict(self.model, self.data.valid, self.world.device)))
            if self.data.gold is not None:
                threshold, device = self.config.train.threshold, self.world.device
                result.update(
                    align_gold(self.model, self.data.gold, self.tokenizers, threshold, device)
                )
        return result

    def save(self) -> None:
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise diverged("a weight", self.progress.step)
        self.progress.scaler = self.scaler.state_dict()
        state = asdict(self.progress)
        step, run, train = self.progress.step, self.run, self.config.train
        checkpoint.save(run, step, self.model, self.averaged, self.optimizer, state)
        checkpoint.prune(run, train.keep, set(self.progress.best(train.average, train.select)))


def start_from_lexicon(model: MaskAlign, data: Prepared, seed: int) -> None:
    """Give the embeddings of an untrained model the vectors that the seed links suggest."""
    config = model.config
    assert data.links is not None
    tgt_vocab = 0 if config.joint_vocab else config.tgt_vocab
    vectors = torch.from_numpy(
        embeddings(data.train, data.links, config.src_vocab, tgt_vocab, config.width, seed)
    )
    with torch.no_grad():
        model.table(0).copy_(vectors[: config.src_vocab])
        if tgt_vocab:
            model.table(1).copy_(vectors[config.src_vocab :])


# ---- the loop ----


def train(config: RunConfig, run: Path, data: Prepared, world: World, monitor: Monitor) -> int:
    """Train until the last step, early stopping or a signal.

    Gives 0 if the run is finished, else the signal that stopped it, after saving.
    """
    trainer = Trainer(config, run, data, world)
    progress, settings = trainer.progress, config.train
    monitor.start(progress, settings.steps)
    done = progress.step >= settings.steps or stalled(progress, settings)
    stop = False
    began = time.monotonic() - progress.seconds
    with stop_signals() as asked, contextlib.closing(trainer.steps()) as steps:
        while not (done or stop):
            terms = next(steps)
            progress.seconds = time.monotonic() - began
            step = progress.step
            done = step >= settings.steps
            if step % settings.log_every == 0 or done:
                log(trainer, terms, monitor)
            due = step % settings.eval_every == 0 or done
            if due and world.rank == 0:
                validate(trainer, monitor)
                done = done or stalled(progress, settings)
            if world.size == 1:
                stop = bool(asked)
            elif due or step % 10 == 0:  # every process stops at the same step
                done, stop = world.any(done), world.any(bool(asked))
            if world.rank == 0 and (due or step % settings.save_every == 0 or done or stop):
                trainer.save()
    if done and world.rank == 0:
        finish(trainer, monitor)
    elif world.rank == 0:
        monitor.note(f"stopped at step {progress.step}; the same command again goes on from there")
    return 0 if done else asked[0] if asked else signal.SIGTERM  # asked of another process


def stalled(progress: Progress, settings: TrainConfig) -> bool:
    return bool(settings.patience) and progress.waited >= settings.patience


def log(trainer: Trainer, terms: Tensor, monitor: Monitor) -> None:
    """Report the step's terms; a loss that is not a number ends the run."""
    progress, settings = trainer.progress, trainer.config.train
    values = dict(zip(TERMS, trainer.world.sum(terms).tolist(), strict=True))
    monitor.step(progress, values, learning_rate(settings, progress.step - 1))
    if not math.isfinite(values["loss"]):
        raise diverged("the loss", progress.step)


def diverged(what: str, step: int) -> MxError:
    return MxError(
        f"{what} is not a finite number at step {step}: the last checkpoint is still good; "
        "start anew with a lower --lr or a longer --warmup"
    )


def validate(trainer: Trainer, monitor: Monitor) -> None:
    """Measure, report, and publish the weights if they are the best so far."""
    progress, select = trainer.progress, trainer.config.train.select
    result = trainer.validate()
    progress.results.append(result)
    better = progress.best(1, select) == [progress.step]
    progress.waited = 0 if better else progress.waited + 1
    monitor.validation(progress, result, better)
    if better:
        checkpoint.publish(trainer.run, trainer.averaged or dict(trainer.model.named_parameters()))


def finish(trainer: Trainer, monitor: Monitor) -> None:
    """Average the best checkpoints if asked to, and say where the model is."""
    settings, progress, run = trainer.config.train, trainer.progress, trainer.run
    best = progress.best(settings.average, settings.select)
    # A changed --select or --average may want checkpoints that were not kept.
    kept = [step for step in best if checkpoint.place(run, step).exists()]
    if kept:
        checkpoint.publish(run, checkpoint.mean([checkpoint.place(run, step) for step in kept]))
        monitor.note(f"finished; the weights of step {', '.join(map(str, kept))} are in {run}")
    else:
        monitor.note(f"finished; the best weights so far are in {run}")


@contextlib.contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The signals that asked the run to stop since; one more, seconds later, stops at once.

    Sooner it may be the same Ctrl-C: a launcher passes on what the terminal has sent already.
    """
    asked: list[int] = []
    first = 0.0

    def remember(number: int, frame: Any) -> None:
        nonlocal first
        if asked and time.monotonic() > first + 2:
            raise KeyboardInterrupt
        first = first if asked else time.monotonic()
        asked.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""The training loop: batch, loss, step, log, validate, save.

Knows when things happen. The networks are in `model.py` and `student.py`, their losses in
`objective.py`, the text in `corpus.py`, the folder in `checkpoint.py`; devices and processes are in
`distributed.py`.
"""

import contextlib
import math
import shutil
import signal
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...engine.errors import MxError
from ..config import RunConfig, TrainConfig
from ..data.batches import Batch, Batches, Position, TeacherLinks, prefetch
from ..data.corpus import Prepared, tokenizers, write_links
from ..data.token_cache import TokenCache
from ..networks import losses as loss
from ..networks.student import Student
from ..run import checkpoint
from ..teachers.lexicon import embeddings
from ..teachers.teachers import mixed
from .devices import World, compiling
from .evaluate import align_gold, follow, predict, word_links
from .objective import Network, make_network, make_objective
from .optimizer import make_optimizer, set_rate
from .progress import Monitor

OWN = 0.5  # the lowest score of a link that a student teaches itself

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


def scheduled(config: TrainConfig, step: int, seconds: float) -> TrainConfig:
    """The settings with as many steps as fit into `minutes`, going by the first `step` of them.

    So the share of steps done is the share of time used, and schedules that go by steps end in
    time. A warm-up of more than a fifth of the run is cut to that.
    """
    if not (config.minutes and step and seconds):
        return config
    steps = min(config.steps, max(step, math.ceil(step * 60 * config.minutes / seconds)))
    return replace(config, steps=steps, warmup=min(config.warmup, max(1, steps // 5)))


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
    round: int = 0  # of self-training

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
        self.model = make_network(config.model).to(world.device)
        self.tokenizers = tokenizers(run, config)
        self.optimizer = make_optimizer(self.model, config.model.width, train)
        self.progress = Progress()
        self.note: Callable[[str], None] = lambda text: None
        self.averaged: dict[str, Tensor] | None = None
        self.autocast, self.scaler = world.precision(train.precision)
        found = checkpoint.folders(run)
        if world.rank == 0 and not found:
            drop_rounds(run, 0)
        if found:
            state, self.averaged = checkpoint.load(found[-1], self.model, self.optimizer)
            self.progress = Progress.from_json(state)
            if world.rank == 0:
                drop_rounds(run, self.progress.round)
            if self.progress.scaler:  # empty if the precision was another one before
                self.scaler.load_state_dict(self.progress.scaler)
        else:
            self.begin()
        if train.ema and self.averaged is None:
            self.averaged = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        elif self.averaged is not None:
            # In the order of the parameters, which is not that of the file.
            names = [name for name, _ in self.model.named_parameters()]
            self.averaged = {name: self.averaged[name].to(world.device) for name in names}
        objective = make_objective(self.model, train)
        self.terms = objective.terms
        if train.compile:
            world.compile(self.model)
        self.objective = world.wrap(objective)

    def begin(self) -> None:
        """What an untrained network is given: all weights of another one, or which pieces begin
        words, and a lexicon."""
        if (self.run / checkpoint.START).exists():
            checkpoint.load_weights(self.run / checkpoint.START, self.model)
            return
        if isinstance(self.model, Student):
            for side, tokenizer in enumerate(self.tokenizers):
                self.model.starts(side).data.copy_(torch.from_numpy(tokenizer.word_starts()))
        if self.data.links is not None:
            start_from_lexicon(self.model, self.data, self.config.train.seed)

    def steps(self) -> Generator[Tensor, None, None]:
        """Runs one optimizer step after another; yields the terms of each."""
        progress = self.progress
        while True:
            steps = self.batches(self.links()).steps(progress.position, progress.step)
            with contextlib.closing(prefetch(steps)) as ready:
                for step in ready:
                    if progress.round < self.round():
                        if self.world.rank == 0:
                            self.save()  # finding links takes long
                        progress.round += 1
                        break  # the steps ahead have links of the round before
                    terms = self.update(step.batches, step.totals)
                    progress.position = step.after
                    progress.pieces += step.totals.src_pieces + step.totals.tgt_pieces
                    yield terms

    def batches(self, links: TeacherLinks | None) -> Batches:
        train = self.config.train
        return Batches(
            self.data.train,
            seed=train.seed,
            budget=lambda step: batch_budget(self.plan(), step),
            micro=train.micro_tokens,
            rank=self.world.rank,
            world=self.world.size,
            links=links,
            want_links=lambda step: self.link_weight(self.plan(), step) > 0,
            joins=train.joins,
            longest=train.max_length,
        )

    def link_weight(self, config: TrainConfig, step: int) -> float:
        """The weight of links: all that a student has, and annealed away for Mask-Align."""
        return 1.0 if isinstance(self.model, Student) else seed_weight(config, step)

    def round(self) -> int:
        """Which round of self-training the next step belongs to, counted from 0."""
        plan = self.plan()
        return min(plan.rounds - 1, plan.rounds * self.progress.step // max(plan.steps, 1))

    def links(self) -> TeacherLinks | None:
        """The links of the present round: the teacher's, later mixed with the network's own."""
        number = self.progress.round
        if not number or self.data.links is None:
            return self.data.links
        folder = self.run / "cache" / f"round-{number}"
        if self.world.rank == 0 and not (folder / "key.json").exists():
            self.note(f"round {number + 1}: finding the network's own links to learn from")
            self.model.eval()
            with self.evaluated_weights(), self.autocast():
                own = word_links(self.model, self.data.train, OWN, self.world.device)
                taught = self.data.links.of_pairs()
                write_links(folder, mixed([taught, own]), {"step": self.progress.step})
        self.world.any(False)  # the others wait here
        return TeacherLinks(folder)

    def plan(self) -> TrainConfig:
        """The settings, with the steps that the time allows."""
        return scheduled(self.config.train, self.progress.step, self.progress.seconds)

    def update(self, batches: list[Batch], totals: loss.Totals) -> Tensor:
        """One optimizer step; returns the step's terms as this device sees them."""
        train, world, step = self.plan(), self.world, self.progress.step
        self.model.train()
        torch.manual_seed(dropout_seed(train.seed, step, world.rank))
        set_rate(self.optimizer, learning_rate(train, step))
        terms = torch.zeros(len(self.terms), device=world.device)
        for k, batch in enumerate(batches):
            last = k + 1 == len(batches)
            with world.sync(self.objective, last), self.autocast():
                values = self.objective(
                    batch.to(world.device), totals, self.link_weight(train, step)
                )
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
                result.update(self.accuracy(self.data.valid))
            if self.data.gold is not None:
                threshold, device = self.config.train.threshold, self.world.device
                result.update(
                    align_gold(self.model, self.data.gold, self.tokenizers, threshold, device)
                )
        return result

    def accuracy(self, text: TokenCache) -> dict[str, float]:
        """Of predictions, or a student's: how often it links a word as its teacher does."""
        if isinstance(self.model, Student):
            if self.data.valid_links is None:
                return {}
            return asdict(follow(self.model, text, self.data.valid_links, self.world.device))
        return asdict(predict(self.model, text, self.world.device))

    def save(self) -> None:
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise diverged("a weight", self.progress.step)
        self.progress.scaler = self.scaler.state_dict()
        state = asdict(self.progress)
        step, run, train = self.progress.step, self.run, self.config.train
        checkpoint.save(run, step, self.model, self.averaged, self.optimizer, state)
        checkpoint.prune(run, train.keep, set(self.progress.best(train.average, train.select)))


def drop_rounds(run: Path, reached: int) -> None:
    """Delete links of rounds that the run has not reached: they were another try's."""
    for folder in (run / "cache").glob("round-*"):
        if int(folder.name.removeprefix("round-")) > reached:
            shutil.rmtree(folder)


def start_from_lexicon(model: Network, data: Prepared, seed: int) -> None:
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
    if config.train.minutes and world.size > 1:
        raise MxError("--minutes is for one process: clocks differ between many; give --steps")
    trainer = Trainer(config, run, data, world)
    progress, settings = trainer.progress, config.train
    trainer.note = monitor.note
    monitor.start(progress, settings.steps)
    done = ended(progress, settings) or stalled(progress, settings)
    stop = False
    began = time.monotonic() - progress.seconds
    with stop_signals() as asked, compiling(), contextlib.closing(trainer.steps()) as steps:
        while not (done or stop):
            terms = next(steps)
            progress.seconds = time.monotonic() - began
            step = progress.step
            done = ended(progress, settings)
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


def ended(progress: Progress, settings: TrainConfig) -> bool:
    """Whether all steps are done, or the time is up."""
    timed_out = bool(settings.minutes) and progress.seconds >= 60 * settings.minutes
    return progress.step >= settings.steps or timed_out


def stalled(progress: Progress, settings: TrainConfig) -> bool:
    return bool(settings.patience) and progress.waited >= settings.patience


def log(trainer: Trainer, terms: Tensor, monitor: Monitor) -> None:
    """Report the step's terms; a loss that is not a number ends the run."""
    progress, settings = trainer.progress, trainer.plan()
    monitor.steps = settings.steps
    values = dict(zip(trainer.terms, trainer.world.sum(terms).tolist(), strict=True))
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

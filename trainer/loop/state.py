"""The state of a run in progress: network, optimizer, averaged weights, what is read next.

New, or put back from the last checkpoint. Does not know when things happen: `train.py` does.
"""

import contextlib
import shutil
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...engine.errors import MxError
from ..config import RunConfig, TrainConfig
from ..data.batches import Batches, Step, prefetch_steps
from ..data.teacher_links import TeacherLinks, write_links
from ..data.vocabulary import load_tokenizers
from ..networks.losses import make_loss
from ..networks.mask_align import MaskAlign
from ..networks.student import Student
from ..networks.weights import assign_weights, load_weights, make_network
from ..networks.word_scores import word_links
from ..run.checkpoint import (
    START,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from ..run.training_data import TrainingData
from ..teachers.lexicon import lexicon_embeddings
from ..teachers.teachers import average_teachers
from .devices import World
from .evaluate import compare_with_teacher, measure_prediction, score_gold_pairs
from .optimizer import make_optimizer
from .progress import Monitor, Progress
from .schedules import batch_budget, fit_schedule, guidance_weight

OWN = 0.5  # the lowest score of a link that a student teaches itself: its usual threshold


class TrainingState:
    """A run in progress."""

    def __init__(self, config: RunConfig, run: Path, data: TrainingData, world: World) -> None:
        self.config, self.run, self.data, self.world = config, run, data, world
        train = config.train
        torch.manual_seed(train.seed)
        self.model = make_network(config.model).to(world.device)
        self.tokenizers = load_tokenizers(run, config)
        self.optimizer = make_optimizer(self.model, config.model.width, train)
        self.progress = Progress()
        self.averaged: dict[str, Tensor] | None = None
        self.autocast, self.scaler = world.make_autocast(train.dtype)
        found = list_checkpoints(run)
        if found:
            state, self.averaged = load_checkpoint(found[-1], self.model, self.optimizer)
            self.progress = Progress.from_json(state)
            if self.progress.scaler:  # empty if the dtype was another one before
                self.scaler.load_state_dict(self.progress.scaler)
        else:
            self.initialize_weights()
        for folder in (run / "cache").glob("round-*") if world.rank == 0 else ():
            # Links of rounds that the run has not reached were another try's.
            if int(folder.name.removeprefix("round-")) > self.progress.round:
                shutil.rmtree(folder)
        if train.ema and self.averaged is None:
            self.averaged = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        # The network lives inside its loss, so that devices exchange the gradients of one module.
        loss = make_loss(self.model, train)
        self.terms = loss.terms
        if train.compile:
            world.compile(self.model)
        self.loss = world.wrap(loss)

    def initialize_weights(self) -> None:
        """Give an untrained network the weights of another one, or a lexicon from links.

        A student is also told which pieces begin words.
        """
        if (self.run / START).exists():
            load_weights(self.run / START, self.model)
            return
        if isinstance(self.model, Student):
            for side, tokenizer in enumerate(self.tokenizers):
                starts = torch.from_numpy(tokenizer.word_starts())
                self.model.starting_pieces(side).data.copy_(starts)
        if self.data.links is not None:
            config, seed = self.config.model, self.config.train.seed
            tgt_vocab = 0 if config.joint_vocab else config.tgt_vocab
            sizes = config.src_vocab, tgt_vocab, config.width
            vectors = lexicon_embeddings(self.data.train, self.data.links, *sizes, seed)
            with torch.no_grad():
                self.model.table(0).copy_(torch.from_numpy(vectors[: config.src_vocab]))
                if tgt_vocab:
                    self.model.table(1).copy_(torch.from_numpy(vectors[config.src_vocab :]))

    # ---- what is read next ----

    def plan(self) -> TrainConfig:
        """Return the settings, with the steps that the time allows."""
        return fit_schedule(self.config.train, self.progress.step, self.progress.seconds)

    def link_weight(self, plan: TrainConfig, step: int) -> float:
        """Return the weight of links: all that a student has, and faded out for Mask-Align."""
        return 1.0 if isinstance(self.model, Student) else guidance_weight(plan, step)

    def read_steps(self, monitor: Monitor) -> Generator[Step, None, None]:
        """Yield the batches of one step after another, from where the progress stands.

        The caller moves the progress on. A student's later rounds have links of its own.
        """
        progress, train = self.progress, self.config.train
        while True:
            batches = Batches(
                self.data.train,
                seed=train.seed,
                budget=lambda step: batch_budget(self.plan(), step),
                micro=train.micro_tokens,
                rank=self.world.rank,
                world=self.world.size,
                links=self.round_links(monitor),
                want_links=lambda step: self.link_weight(self.plan(), step) > 0,
                joins=train.joins,
                longest=train.max_length,
            )
            steps = batches.steps(progress.position, progress.step)
            with contextlib.closing(prefetch_steps(steps)) as ready:
                for step in ready:
                    plan = self.plan()
                    now = plan.rounds * progress.step // max(plan.steps, 1)
                    if progress.round < min(plan.rounds - 1, now):
                        if self.world.rank == 0:
                            self.save()  # finding links takes long
                        progress.round += 1
                        break  # the steps ahead have links of the round before
                    yield step

    def round_links(self, monitor: Monitor) -> TeacherLinks | None:
        """Return the links of this round: the teacher's, later averaged with the network's own."""
        number = self.progress.round
        if not number or self.data.links is None:
            return self.data.links
        folder = self.run / "cache" / f"round-{number}"
        if self.world.rank == 0 and not (folder / "offsets.bin").exists():
            monitor.note(f"round {number + 1}: finding the network's own links to learn from")
            with self.use_averaged_weights():
                own = word_links(self.model, self.data.train, OWN, self.world.device)
                both = average_teachers([self.data.links.iterate_pairs(), own])
                write_links(folder, both)
        self.world.any(False)  # the others wait here
        return TeacherLinks(folder)

    # ---- weights ----

    @torch.no_grad()
    def average_weights(self) -> None:
        """Move the averaged weights, if there are any, towards the present ones."""
        if self.averaged is None:
            return
        step = self.progress.step
        # The decay is lower at first, so that the average keeps up with fast changes.
        decay = min(self.config.train.ema, (1 + step) / (10 + step))
        now = [p.detach() for p in self.model.parameters()]
        torch._foreach_lerp_(list(self.averaged.values()), now, 1 - decay)

    @contextlib.contextmanager
    def use_averaged_weights(self) -> Iterator[None]:
        """Give the network the averaged weights inside the block, if there are any; no dropout."""
        own = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        assign_weights(self.model, self.averaged or own)
        self.model.eval()
        try:
            with self.autocast():
                yield
        finally:
            assign_weights(self.model, own)

    def validate(self) -> dict[str, Any]:
        """Measure accuracy on the validation text and AER on the gold set, if there are any.

        Accuracy is that of predictions, or a student's: how often it links as its teacher does.
        """
        result: dict[str, Any] = {"step": self.progress.step}
        model, device, data = self.model, self.world.device, self.data
        with self.use_averaged_weights():
            if data.valid and isinstance(model, MaskAlign):
                result |= measure_prediction(model, data.valid, device)
            elif data.valid and data.valid_links and isinstance(model, Student):
                result |= compare_with_teacher(model, data.valid, data.valid_links, device)
            if data.gold:
                threshold = self.config.train.threshold
                result |= score_gold_pairs(model, data.gold, self.tokenizers, threshold, device)
        return result

    def save(self) -> None:
        """Write a checkpoint and delete those that are no longer wanted."""
        # A checkpoint with NaN would spoil every later start; the one before stays the last.
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise divergence_error("a weight", self.progress.step)
        self.progress.scaler = self.scaler.state_dict()
        state, step, train = asdict(self.progress), self.progress.step, self.config.train
        save_checkpoint(self.run, step, self.model, self.averaged, self.optimizer, state)
        best = self.progress.best(train.average, train.select)
        prune_checkpoints(self.run, train.keep, set(best))


def divergence_error(what: str, step: int) -> MxError:
    """Return the error of a run whose numbers are no longer finite."""
    return MxError(
        f"{what} is not a finite number at step {step}: the last checkpoint is still good; "
        "start anew with a lower --lr or a longer --warmup"
    )

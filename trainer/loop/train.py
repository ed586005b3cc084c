"""The training loop: batch, loss, step, log, validate, save, in one function.

What is trained is in `state.py`; the loss in `networks/losses.py`; batches in `data/batches.py`.
"""

import contextlib
import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...engine.errors import MxError
from ..config import RunConfig, TrainConfig
from ..networks.weights import publish_weights
from ..run.checkpoint import average_checkpoints, checkpoint_folder
from ..run.training_data import TrainingData
from .devices import World, explain_compiler_errors
from .optimizer import set_rate
from .progress import Monitor, Progress
from .schedules import dropout_seed, learning_rate
from .state import TrainingState, divergence_error


def train_network(
    config: RunConfig, run: Path, data: TrainingData, world: World, monitor: Monitor
) -> int:
    """Train until the last step, early stopping or a signal.

    Returns 0 if the run is finished, else the signal that stopped it, after saving.
    """
    train = config.train
    if train.minutes and world.size > 1:
        raise MxError("--minutes is for one process: clocks differ between many; give --steps")
    state = TrainingState(config, run, data, world)
    model, optimizer, scaler = state.model, state.optimizer, state.scaler
    progress = state.progress
    monitor.start(progress)
    done, stop = is_finished(progress, train) or has_stalled(progress, train), False
    began = time.monotonic() - progress.seconds
    with (
        stop_signals() as signals,
        explain_compiler_errors(),
        contextlib.closing(state.read_steps(monitor)) as steps,
    ):
        while not (done or stop):
            # Batch. Dropout is a function of step and device, so a resumed run goes on the same.
            step, plan = next(steps), state.plan()
            model.train()
            torch.manual_seed(dropout_seed(train.seed, progress.step, world.rank))
            link_weight = state.link_weight(plan, progress.step)

            # Loss and gradients, micro-batch by micro-batch.
            terms = torch.zeros(len(state.terms), device=world.device)
            for k, batch in enumerate(step.batches):
                last = k + 1 == len(step.batches)
                with world.sync_gradients(state.loss, last), state.autocast():
                    values = state.loss(batch.to(world.device), step.totals, link_weight)
                # Gradients are averaged over devices, losses add up: hence the factor.
                scaler.scale(values[0] * world.size).backward()
                terms += values.detach()

            # Step.
            set_rate(optimizer, learning_rate(plan, progress.step))
            scaler.unscale_(optimizer)
            if train.clip:
                nn.utils.clip_grad_norm_(model.parameters(), train.clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            progress.step += 1
            state.average_weights()
            progress.position = step.after
            progress.pieces += step.totals.src_pieces + step.totals.tgt_pieces
            progress.seconds = time.monotonic() - began
            done = is_finished(progress, train)

            # Log. A loss that is not a number ends the run.
            if progress.step % train.log_every == 0 or done:
                plan = state.plan()
                named = dict(zip(state.terms, world.sum(terms).tolist(), strict=True))
                monitor.step(progress, named, learning_rate(plan, progress.step - 1), plan.steps)
                if not math.isfinite(named["loss"]):
                    raise divergence_error("the loss", progress.step)

            # Validate, and publish the weights if they are the best so far.
            due = progress.step % train.eval_every == 0 or done
            if due and world.rank == 0:
                progress.results.append(state.validate())
                better = progress.best(1, train.select) == [progress.step]
                progress.waited = 0 if better else progress.waited + 1
                monitor.validation(progress, progress.results[-1], better)
                if better:
                    publish_weights(run, state.averaged or dict(model.named_parameters()))
                done = done or has_stalled(progress, train)

            # Save. All processes stop at the same step, so they ask each other now and then.
            if world.size == 1:
                stop = bool(signals)
            elif due or progress.step % 10 == 0:
                done, stop = world.any(done), world.any(bool(signals))
            saved = due or progress.step % train.save_every == 0 or done or stop
            if saved and world.rank == 0:
                state.save()
    if world.rank == 0:
        finish_run(state, monitor, done)
    return 0 if done else signals[0] if signals else signal.SIGTERM  # sent to another process


def is_finished(progress: Progress, train: TrainConfig) -> bool:
    """Tell whether all steps are done, or the time is up."""
    timed_out = bool(train.minutes) and progress.seconds >= 60 * train.minutes
    return progress.step >= train.steps or timed_out


def has_stalled(progress: Progress, train: TrainConfig) -> bool:
    """Tell whether too many validations brought no improvement."""
    return bool(train.patience) and progress.waited >= train.patience


def finish_run(state: TrainingState, monitor: Monitor, done: bool) -> None:
    """Average the best checkpoints if asked to, and say where the model is."""
    train, progress, run = state.config.train, state.progress, state.run
    if not done:
        monitor.note(f"stopped at step {progress.step}; the same command again goes on from there")
        return
    best = progress.best(train.average, train.select)
    # A changed --select or --average may want checkpoints that were not kept.
    kept = [step for step in best if checkpoint_folder(run, step).exists()]
    if kept:
        publish_weights(run, average_checkpoints([checkpoint_folder(run, step) for step in kept]))
        monitor.note(f"finished; the weights of step {', '.join(map(str, kept))} are in {run}")
    else:
        monitor.note(f"finished; the best weights so far are in {run}")


@contextlib.contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect the signals that ask the run to stop; one more, seconds later, stops at once.

    Sooner it may be the same Ctrl-C: a launcher passes on what the terminal has sent already.
    """
    received: list[int] = []
    first = 0.0

    def remember_signal(number: int, frame: Any) -> None:
        nonlocal first
        if received and time.monotonic() > first + 2:
            raise KeyboardInterrupt
        first = first if received else time.monotonic()
        received.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, remember_signal) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""What changes from step to step: learning rate, batch size, weight of guiding links, dropout."""

import math
from dataclasses import replace

import numpy as np

from ..config import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the rate of optimizer step `step`, counted from 0."""
    # Step 0 already moves: (step + 1) / warmup. rsqrt is at its peak where warm-up ends.
    warm = min(1.0, (step + 1) / max(config.warmup, 1))
    if config.schedule == "rsqrt":
        return config.lr * min(warm, math.sqrt(max(config.warmup, 1) / max(step + 1, 1)))
    done = (step - config.warmup) / max(config.steps - config.warmup, 1)
    done = min(max(done, 0.0), 1.0)
    left = 0.5 * (1 + math.cos(math.pi * done)) if config.schedule == "cosine" else 1 - done
    return config.lr * warm * left


def batch_budget(config: TrainConfig, step: int) -> int:
    """Return the pieces of an optimizer step, growing linearly from `batch_tokens_start`."""
    # Small batches at first: in more steps the same text teaches more (docs/decisions.md).
    if not config.batch_tokens_start:
        return config.batch_tokens
    done = min(1.0, step / max(config.steps * config.batch_growth_until, 1))
    start = config.batch_tokens_start
    return round(start + (config.batch_tokens - start) * done)


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """Return the seed of a step's dropout on a device."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)


def fit_schedule(config: TrainConfig, step: int, seconds: float) -> TrainConfig:
    """Return the settings with the steps that fit into `minutes` if `step` of them took `seconds`.

    So the share of steps done is the share of time used, and schedules that go by steps end in
    time. A warm-up of more than a fifth of the run is cut to that.
    """
    if not (config.minutes and step and seconds):
        return config
    steps = min(config.steps, max(step, math.ceil(step * 60 * config.minutes / seconds)))
    return replace(config, steps=steps, warmup=min(config.warmup, max(1, steps // 5)))


def guidance_weight(config: TrainConfig, step: int) -> float:
    """Return the weight of the guiding links: linearly down to zero."""
    if config.warm_start == "none":
        return 0.0
    return config.guidance_weight * max(
        0.0, 1 - step / max(config.steps * config.guidance_until, 1)
    )

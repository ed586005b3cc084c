"""What a model and a training run are made of, as plain data: dataclasses, presets, JSON.

Knows no torch and no files but `config.json`; the flags of `mx-train` are made from the fields.
"""

import dataclasses
import json
import logging
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..engine.errors import MxError

log = logging.getLogger(__name__)


def option(default: Any, text: str) -> Any:
    """A dataclass field with the help line of its flag."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the network; vocabulary sizes are filled in once the vocabulary is known."""

    kind: Literal["mask-align", "student"] = option(
        "mask-align", "the network: two masked directions, or the symmetric student of a teacher"
    )
    width: int = option(512, "model width D")
    ff: int = option(1024, "feed-forward width")
    heads: int = option(4, "attention heads")
    encoder_layers: int = option(6, "encoder layers")
    decoder_layers: int = option(6, "static-KV decoder layers")
    norm: Literal["post", "pre"] = option("post", "layer norm after (paper) or before each block")
    masked: bool = option(True, "static-KV masked decoder; off: ordinary autoregressive decoder")
    leaky: bool = option(True, "NULL key and value in the cross-attention")
    cross: Literal["last", "all"] = option("last", "which decoder layers have cross-attention")
    tied: bool = option(False, "one set of weights for both directions, told apart by side vectors")
    joint_vocab: bool = option(True, "one vocabulary and one embedding for both languages")
    dropout: float = option(0.3, "residual dropout")
    refine: int = option(16, "student: channels that correct a score by those around it; 0: none")
    diagonal: bool = option(True, "student: scores lean towards the diagonal by a learned amount")
    src_vocab: int = 0
    tgt_vocab: int = 0


@dataclass(frozen=True)
class TrainConfig:
    """Text, losses, optimisation and bookkeeping of a run."""

    # text
    vocab_size: int = option(40000, "SentencePiece pieces (of both languages together if joint)")
    vocab_type: Literal["bpe", "unigram"] = option("bpe", "SentencePiece model type")
    lowercase: bool = option(False, "let the model see lowercased words; the user's words stay")
    fold_accents: bool = option(False, "let the model see letters without their accents")
    max_length: int = option(256, "pairs with more pieces on a side are skipped")
    max_ratio: float = option(9.0, "pairs with a larger ratio of piece counts are skipped")
    # losses
    alpha: float = option(5.0, "weight of the agreement of the two directions")
    beta: float = option(1.0, "weight of the entropy term")
    entropy_lambda: float = option(0.05, "lambda of the entropy term")
    entropy_norm: Literal["cells", "rows"] = option(
        "cells", "average the entropy over (i, j) cells (authors' code) or over rows (paper)"
    )
    label_smoothing: float = option(0.1, "label smoothing of the prediction loss")
    warm_start: Literal["none", "seed"] = option(
        "none", "seed: links of the statistical aligner supervise the attention at first"
    )
    seed_weight: float = option(1.0, "weight of the seed links at step 0")
    seed_until: float = option(0.6, "share of the run at which the seed links' weight reaches zero")
    null_weight: float = option(
        0.1, "student: how much it counts that words without a link have none"
    )
    soft_targets: bool = option(
        False,
        "student: each of a word's links gets its share of the teacher's confidence; "
        "off: only what they get together counts",
    )
    joins: float = option(
        0.0, "share of the pairs that are joined, up to sixteen at a time, to learn long lines"
    )
    rounds: int = option(
        1, "student: from the second round on its own links are mixed with those of the teacher"
    )
    # optimisation
    steps: int = option(50000, "optimizer steps")
    minutes: float = option(
        0.0, "training time, if shorter than the steps take: schedules end with it; 0: no limit"
    )
    batch_tokens: int = option(36000, "pieces of the longer side per optimizer step, all devices")
    batch_tokens_start: int = option(0, "batch size at step 0, growing linearly; 0: no growth")
    batch_growth_until: float = option(0.5, "share of the run at which the batch is fully grown")
    micro_tokens: int = option(36000, "pieces of the longer side per forward pass on one device")
    optimizer: Literal["adam", "adamw", "muon"] = option(
        "adam", "optimizer; muon: for matrices, with Adam for embeddings, norms and biases"
    )
    lr: float = option(5e-4, "peak learning rate")
    matrix_lr: float = option(0.02, "peak learning rate of the matrices (muon)")
    warmup: int = option(4000, "steps of linear warm-up")
    schedule: Literal["rsqrt", "cosine", "linear"] = option("rsqrt", "learning rate after warm-up")
    weight_decay: float = option(0.0, "decoupled weight decay (adamw)")
    clip: float = option(1.0, "gradient norm limit; 0: none")
    ema: float = option(0.0, "decay of the averaged weights that are evaluated and kept; 0: off")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option(
        "auto",
        "what products are computed in (auto: on CUDA bf16 where supported, else fp16; on a CPU "
        "fp32, but bf16 is faster on one with instructions for it)",
    )
    compile: bool = option(False, "torch.compile the network")
    seed: int = option(1, "random seed")
    # bookkeeping
    eval_every: int = option(1000, "steps between validations")
    save_every: int = option(1000, "steps between checkpoints")
    log_every: int = option(50, "steps between log lines")
    keep: int = option(2, "checkpoints kept besides the best one")
    average: int = option(1, "average the weights of this many best checkpoints at the end")
    patience: int = option(20, "stop after this many validations without better accuracy; 0: never")
    select: Literal["accuracy", "aer"] = option(
        "accuracy", "what the best weights and early stopping go by (aer needs --gold)"
    )
    threshold: float = option(0.2, "link threshold tau for AER during training")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result besides the text itself; saved as `config.json`."""

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


# What makes small models learn on a CPU; docs/decisions.md has the measurements behind each value.
_SMALL: dict[str, Any] = {
    "norm": "pre",
    "tied": True,
    "dropout": 0.0,
    "optimizer": "muon",
    "lr": 4e-3,
    "matrix_lr": 0.02,
    "warmup": 200,
    "schedule": "cosine",
    "ema": 0.999,
    "warm_start": "seed",
    "seed_until": 1.0,
}

# `paper`: Chen, Sun and Liu (2021) with the constants of the authors' code; the others are ours.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "compact": {
        "width": 256,
        "ff": 512,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "vocab_size": 8000,
        "batch_tokens": 4000,
        "batch_tokens_start": 1000,
        "micro_tokens": 4000,
        "steps": 30000,
        **_SMALL,
        "lr": 2e-3,
        "matrix_lr": 0.01,
    },
    "tiny": {
        "width": 128,
        "ff": 512,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "vocab_size": 4000,
        "batch_tokens": 2000,
        "batch_tokens_start": 1000,
        "micro_tokens": 4000,
        "steps": 20000,
        **_SMALL,
    },
    "student": {
        "kind": "student",
        "width": 128,
        "ff": 256,
        "encoder_layers": 2,
        "vocab_size": 16000,
        "batch_tokens": 4000,
        "batch_tokens_start": 1000,
        "micro_tokens": 8000,
        "steps": 3000,
        "eval_every": 250,
        "patience": 8,
        **_SMALL,
        "joins": 0.25,
        "threshold": 0.5,
    },
}


def field_types(cls: type) -> dict[str, Any]:
    return {f.name: f.type for f in dataclasses.fields(cls)}


def resolve(preset: str, *overrides: dict[str, Any]) -> RunConfig:
    """Defaults, then the preset, then each override in turn; later wins, unknown keys raise."""
    if preset not in PRESETS:
        raise MxError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    values: dict[str, Any] = {}
    for layer in (PRESETS[preset], *overrides):
        values.update(layer)
    model_fields, train_fields = field_types(ModelConfig), field_types(TrainConfig)
    unknown = sorted(set(values) - set(model_fields) - set(train_fields))
    if unknown:
        raise MxError(f"unknown settings {', '.join(unknown)}; `mx-train --help` lists them all")
    model = ModelConfig(**{k: v for k, v in values.items() if k in model_fields})
    train = TrainConfig(**{k: v for k, v in values.items() if k in train_fields})
    return check(RunConfig(model, train))


_AT_LEAST_1 = (
    "steps", "batch_tokens", "micro_tokens", "eval_every", "save_every", "log_every", "keep",
    "average", "max_ratio", "rounds",
)  # fmt: skip
_NOT_NEGATIVE = (
    "minutes", "seed", "patience", "warmup", "alpha", "beta", "entropy_lambda", "seed_weight",
    "seed_until",
    "batch_tokens_start", "batch_growth_until", "weight_decay", "clip", "null_weight",
)  # fmt: skip


def check(config: RunConfig) -> RunConfig:
    """The same config, or an error that names every impossible value at once."""
    model, train = config.model, config.train
    problems = []
    for part in (model, train):
        for f in dataclasses.fields(part):
            value, allowed = getattr(part, f.name), getattr(f.type, "__args__", None)
            if allowed and value not in allowed:
                problems.append(f"{f.name} must be one of {', '.join(map(str, allowed))}")
            elif not allowed and not fits(value, f.type):
                name = getattr(f.type, "__name__", f.type)
                problems.append(f"{f.name} must be of type {name}, not {value!r}")
    if problems:
        raise MxError("impossible settings: " + "; ".join(problems))
    if model.kind == "student" and not model.leaky:
        problems.append("a student always has NULL: leaky cannot be off")
    if model.kind != "student":
        rounds, off = train.rounds > 1, not model.diagonal
        given = {"soft_targets": train.soft_targets, "rounds": rounds, "no diagonal": off}
        problems += [f"{name}: for students only" for name, odd in given.items() if odd]
    if model.kind != "student" and model.width % (2 * model.heads):
        problems.append(
            f"width {model.width} must be a multiple of twice the heads ({model.heads})"
        )
    for name in ("encoder_layers", "decoder_layers", "heads", "width", "ff"):
        if getattr(model, name) < 1:
            problems.append(f"{name} must be at least 1")
    for name in _AT_LEAST_1:
        if not getattr(train, name) >= 1:  # so that NaN is refused as well
            problems.append(f"{name} must be at least 1")
    for name in ("lr", "matrix_lr"):
        if not 0 < getattr(train, name) < math.inf:
            problems.append(f"{name} must be positive")
    for name in _NOT_NEGATIVE:
        if not 0 <= getattr(train, name) < math.inf:
            problems.append(f"{name} must not be negative or infinite")
    if train.max_length < 2:
        problems.append("max_length must be at least 2")
    for name in ("label_smoothing", "ema"):
        if not 0 <= getattr(train, name) < 1:
            problems.append(f"{name} must be in [0, 1)")
    if not 0 <= train.joins <= 1:
        problems.append("joins must be in [0, 1]")
    if model.refine < 0:
        problems.append("refine must not be negative")
    if train.rounds > train.steps:
        problems.append("there must be a step for each of the rounds")
    if not 0 <= model.dropout < 1:
        problems.append("dropout must be in [0, 1)")
    if problems:
        raise MxError("impossible settings: " + "; ".join(problems))
    return config


def fits(value: Any, kind: Any) -> bool:
    """Whether a value has the type of a field; a whole number may stand for a float."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind


def to_json(config: RunConfig) -> str:
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise MxError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise MxError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise MxError(f"{path} does not hold a JSON object of settings")
    return data


def from_json(path: Path) -> RunConfig:
    """The config saved in a run folder; unknown keys are errors that name them."""
    return parsed(read_object(path), path)


def parsed(data: dict[str, Any], path: Path) -> RunConfig:
    """The same of what was read from `path`."""
    parts = {"model": ModelConfig, "train": TrainConfig}
    if set(data) != set(parts) or not all(isinstance(data[name], dict) for name in parts):
        raise MxError(f"{path}: not the config of a run, which has the parts model and train")
    odd = [
        f"{name}.{key}" for name in parts for key in set(data[name]) - set(field_types(parts[name]))
    ]
    if odd:
        raise MxError(f"{path}: not a config of this version; unknown: {', '.join(sorted(odd))}")
    model, train = (fill(data[name], parts[name], path) for name in parts)
    return check(RunConfig(ModelConfig(**model), TrainConfig(**train)))


def fill(values: dict[str, Any], part: type, path: Path) -> dict[str, Any]:
    """The values with defaults for the settings that are newer than the file; logs which."""
    missing = {f.name: f.default for f in dataclasses.fields(part) if f.name not in values}
    if missing:
        log.warning("%s is of an older version; taken as default: %s", path, missing)
    return {**missing, **values}

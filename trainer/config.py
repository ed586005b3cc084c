"""The settings of a model and of a training run: dataclasses, presets, `config.json`.

The flags of `mx-train` are made from the fields. Does not import torch.
"""

import dataclasses
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_origin

from ..engine.errors import MxError
from ..engine.options import broken_limits, flag

log = logging.getLogger(__name__)

STATISTICAL = "statistical"  # the name of the statistical aligner, among teachers

READ = re.compile(r"prior|posterior|exact|layer=-?\d+|shift(=-?\d+)?")
READ_CHOICES = "prior, posterior, exact, layer=N, shift, shift=N"

# A resumed run may change what decides how long, how often and how fast, not what is learned.
_model = partial(flag, group="Model", changes_output=True)
_text = partial(flag, group="Text", changes_output=True)
_loss = partial(flag, group="Losses", changes_output=True)
_weight = partial(_loss, minimum=0)
_optimisation = partial(flag, group="Optimisation", changes_output=True)
_pace = partial(flag, group="Optimisation")
_bookkeeping = partial(flag, group="Bookkeeping")
_BELOW_1: dict[str, Any] = {"minimum": 0, "maximum": 1, "below": True}


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the network; vocabulary sizes are filled in once the vocabulary is known."""

    kind: Literal["mask-align", "student"] = _model(
        "mask-align", "the network: two masked directions, or the symmetric student of a teacher"
    )
    width: int = _model(512, "model width D", minimum=1)
    ff: int = _model(1024, "feed-forward width", minimum=1)
    heads: int = _model(4, "attention heads", minimum=1)
    encoder_layers: int = _model(6, "encoder layers", minimum=1)
    decoder_layers: int = _model(6, "static-KV decoder layers", minimum=1)
    norm: Literal["post", "pre"] = _model("post", "layer norm after (paper) or before each block")
    masked: bool = _model(True, "static-KV masked decoder; off: ordinary autoregressive decoder")
    leaky: bool = _model(True, "NULL key and value in the cross-attention")
    cross: Literal["last", "all"] = _model("last", "which decoder layers have cross-attention")
    tied: bool = _model(False, "one set of weights for both directions, told apart by side vectors")
    joint_vocab: bool = _model(True, "one vocabulary and one embedding for both languages")
    dropout: float = _model(0.3, "residual dropout", **_BELOW_1)
    read: str = flag(
        "posterior",
        "what is read as alignment: prior (the paper's W), posterior (W when the word is known), "
        "exact (the same by the whole vocabulary, slow), layer=N or shift[=N] (attention of a "
        "decoder with --cross all, or one row later)",
        group="Model",
        metavar="WHAT",
    )
    refine: int = _model(
        16, "student: channels that correct a score by those around it; 0: none", minimum=0
    )
    diagonal: bool = _model(True, "student: scores lean towards the diagonal by a learned amount")
    src_vocab: int = 0
    tgt_vocab: int = 0


@dataclass(frozen=True)
class TrainConfig:
    """Text, losses, optimisation and bookkeeping of a run."""

    vocab_size: int = _text(40000, "SentencePiece pieces (of both languages together if joint)")
    vocab_type: Literal["bpe", "unigram"] = _text("bpe", "SentencePiece model type")
    lowercase: bool = _text(False, "let the model see lowercased words; the user's words stay")
    fold_accents: bool = _text(False, "let the model see letters without their accents")
    max_length: int = _text(256, "pairs with more pieces on a side are skipped", minimum=2)
    max_ratio: float = _text(
        9.0, "pairs with a larger ratio of piece counts are skipped", minimum=1
    )

    alpha: float = _weight(5.0, "weight of the agreement of the two directions")
    beta: float = _weight(1.0, "weight of the entropy term")
    entropy_lambda: float = _weight(0.05, "lambda of the entropy term")
    entropy_norm: Literal["cells", "rows"] = _loss(
        "cells", "average the entropy over (i, j) cells (authors' code) or over rows (paper)"
    )
    label_smoothing: float = _loss(0.1, "label smoothing of the prediction loss", **_BELOW_1)
    warm_start: Literal["none", "statistical"] = _loss(
        "none", "statistical: links of the statistical aligner guide the attention at first"
    )
    learn_on: Literal["prior", "posterior"] = _loss(
        "prior", "the weights that agreement and guiding links act on"
    )
    guidance_weight: float = _weight(1.0, "weight of the guiding links at step 0")
    guidance_until: float = _weight(
        0.6, "share of the run at which the guiding links' weight reaches zero"
    )
    null_weight: float = _weight(
        0.1, "student: how much it counts that words without a link have none"
    )
    soft_targets: bool = _loss(
        False,
        "student: each of a word's links gets its share of the teacher's confidence; "
        "off: only what they get together counts",
    )
    joins: float = _loss(
        0.0,
        "share of the pairs that are joined, up to sixteen at a time, to learn long lines",
        minimum=0,
        maximum=1,
    )
    rounds: int = _loss(
        1,
        "student: from the second round on its own links are mixed with those of the teacher",
        minimum=1,
    )

    steps: int = _pace(50000, "optimizer steps", minimum=1)
    minutes: float = _pace(
        0.0,
        "training time, if shorter than the steps take: schedules end with it; 0: no limit",
        minimum=0,
    )
    batch_tokens: int = _optimisation(
        36000, "pieces of the longer side per optimizer step, all devices", minimum=1
    )
    batch_tokens_start: int = _optimisation(
        0, "batch size at step 0, growing linearly; 0: no growth", minimum=0
    )
    batch_growth_until: float = _optimisation(
        0.5, "share of the run at which the batch is fully grown", minimum=0
    )
    micro_tokens: int = _pace(
        # Half of `paper`'s step: all of it takes some 26 GB by the count of saved tensors, which
        # is more than a card of 16 GB has. The gradients are the same.
        18000,
        "pieces of the longer side per forward pass on one device",
        minimum=1,
    )
    optimizer: Literal["adam", "adamw", "muon"] = _optimisation(
        "adam", "optimizer; muon: for matrices, with Adam for embeddings, norms and biases"
    )
    lr: float = _optimisation(5e-4, "peak learning rate", minimum=0, above=True)
    matrix_lr: float = _optimisation(
        0.02, "peak learning rate of the matrices (muon)", minimum=0, above=True
    )
    warmup: int = _optimisation(4000, "steps of linear warm-up", minimum=0)
    schedule: Literal["rsqrt", "cosine", "linear"] = _optimisation(
        "rsqrt", "learning rate after warm-up"
    )
    weight_decay: float = _optimisation(0.0, "decoupled weight decay (adamw)", minimum=0)
    clip: float = _optimisation(1.0, "gradient norm limit; 0: none", minimum=0)
    ema: float = _optimisation(
        0.0, "decay of the averaged weights that are evaluated and kept; 0: off", **_BELOW_1
    )
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = _pace(
        "auto",
        "what products are computed in (auto: on CUDA bf16 where supported, else fp16; on a CPU "
        "fp32, but bf16 is faster on one with instructions for it)",
    )
    compile: bool = _pace(False, "torch.compile the network")
    seed: int = _optimisation(1, "random seed", minimum=0)

    eval_every: int = _bookkeeping(1000, "steps between validations", minimum=1)
    save_every: int = _bookkeeping(1000, "steps between checkpoints", minimum=1)
    log_every: int = _bookkeeping(50, "steps between log lines", minimum=1)
    keep: int = _bookkeeping(2, "checkpoints kept besides the best one", minimum=1)
    average: int = _bookkeeping(
        1, "average the weights of this many best checkpoints at the end", minimum=1
    )
    patience: int = _bookkeeping(
        20, "stop after this many validations without better accuracy; 0: never", minimum=0
    )
    select: Literal["accuracy", "aer"] = _bookkeeping(
        "accuracy", "what the best weights and early stopping go by (aer needs --gold)"
    )
    threshold: float = _bookkeeping(0.2, "link threshold tau for AER during training")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result besides the text itself; saved as `config.json`."""

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


# ---- presets ----

# What makes small models learn on a CPU. Chosen by accuracy on validation text and by AER on the
# 447 En-Fr test pairs, so figures on those flatter it; docs/decisions.md has the measurements.
_SMALL: dict[str, Any] = {
    "batch_tokens_start": 1000,  # with 2,000 at first the same text teaches `tiny` 7 points less
    "micro_tokens": 4000,
    "norm": "pre",
    "tied": True,  # two AER points after 500 steps, and a quarter less time
    "dropout": 0.0,  # a few passes over the text do not overfit
    "optimizer": "muon",  # the accuracy of AdamW's 800 steps in 400
    "lr": 4e-3,  # twice the rates: 37.8 instead of 36.6 AER after 250 steps
    "matrix_lr": 0.02,
    "warmup": 200,
    "schedule": "cosine",
    "ema": 0.999,  # matters while the rate is high, so for runs that are stopped early
    "warm_start": "statistical",
    # The best for the posterior was 0.40 to 0.50 on the En-Fr test pairs, 0.57 on the development
    # pairs; only AER while training depends on it, because mx-export chooses its own.
    "threshold": 0.45,
    "guidance_until": 1.0,  # to the end, but faded out: a network may pass its teacher
}

# `paper`: Chen, Sun and Liu (2021) with the constants of the authors' code; the others are ours.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"read": "prior", "clip": 0.0},
    "compact": {
        "width": 256,
        "ff": 512,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "vocab_size": 8000,
        "batch_tokens": 4000,
        "steps": 30000,
        **_SMALL,
        "lr": 2e-3,  # with the rates of `tiny` its accuracy stood still
        "matrix_lr": 0.01,
    },
    "tiny": {
        "width": 128,
        "ff": 512,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "vocab_size": 4000,
        "batch_tokens": 2000,
        "steps": 20000,
        **_SMALL,
    },
    "student": {
        "kind": "student",
        "width": 128,
        "ff": 256,
        "encoder_layers": 2,
        "vocab_size": 16000,  # 24,000: a third larger, 0.1 points better
        "batch_tokens": 4000,
        "steps": 3000,
        "eval_every": 250,
        "patience": 8,
        **_SMALL,
        "micro_tokens": 8000,
        "joins": 0.25,  # half: accuracy on Ja-En validation text was behind throughout
        "threshold": 0.5,
    },
}


def resolve_config(preset: str, *overrides: dict[str, Any]) -> RunConfig:
    """Take defaults, the preset and each override in turn; later wins, unknown keys raise."""
    if preset not in PRESETS:
        raise MxError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    # Names are unique over both parts, so that settings can be given flat, as flags are.
    values: dict[str, Any] = {}
    for layer in (PRESETS[preset], *overrides):
        values.update(layer)
    model, train = list_defaults(ModelConfig), list_defaults(TrainConfig)
    unknown = sorted(set(values) - set(model) - set(train))
    if unknown:
        raise MxError(f"unknown settings {', '.join(unknown)}; `mx-train --help` lists them all")
    config = RunConfig(
        ModelConfig(**{k: v for k, v in values.items() if k in model}),
        TrainConfig(**{k: v for k, v in values.items() if k in train}),
    )
    return check_config(config)


def list_defaults(part: type) -> dict[str, Any]:
    """Return the defaults of a part's settings, by name."""
    return {f.name: f.default for f in dataclasses.fields(part)}


# ---- checks ----


def check_config(config: RunConfig) -> RunConfig:
    """Return the config, or raise an error that names every impossible value at once."""
    model, train = config.model, config.train
    problems = [*wrong_types(model), *wrong_types(train)]
    if not problems:  # else limits could not be compared with
        problems += [*broken_limits(model), *broken_limits(train)]
    if not problems:
        if train.rounds > train.steps:
            problems.append("there must be a step for each of the rounds")
        if model.kind == "student" and not model.leaky:
            problems.append("a student always has NULL: leaky cannot be off")
        if model.kind != "student":
            # Left silently without effect, they would look like a failed experiment.
            rounds, off = train.rounds > 1, not model.diagonal
            given = {"soft_targets": train.soft_targets, "rounds": rounds, "no diagonal": off}
            problems += [f"{name}: for students only" for name, odd in given.items() if odd]
            if not READ.fullmatch(model.read):
                problems.append(f"read must be one of {READ_CHOICES}, not {model.read!r}")
            if model.read.startswith("shift") and model.masked:
                problems.append("read shift: a masked decoder never reads the piece it aligns")
            if model.width % (2 * model.heads):
                heads = f"twice the heads ({model.heads})"
                problems.append(f"width {model.width} must be a multiple of {heads}")
    if problems:
        raise MxError("impossible settings: " + "; ".join(problems))
    return config


def wrong_types(part: ModelConfig | TrainConfig) -> Iterator[str]:
    """Yield a line for each value of another type than its field's; an int may be a float."""
    for f in dataclasses.fields(part):
        value, kind = getattr(part, f.name), f.type
        if get_origin(kind) is Literal:
            continue  # its limits are its choices
        numeric = kind is float and type(value) is int
        if type(value) is not kind and not numeric:
            yield f"{f.name} must be of type {getattr(kind, '__name__', kind)}, not {value!r}"


# ---- config.json ----

# What earlier versions called settings; read from their files, never written.
OLD_NAMES = {"precision": "dtype", "seed_weight": "guidance_weight", "seed_until": "guidance_until"}


def rename_old_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings of an earlier version under today's names."""
    renamed = {OLD_NAMES.get(name, name): value for name, value in values.items()}
    if renamed.get("warm_start") == "seed":
        renamed["warm_start"] = STATISTICAL
    return renamed


def flat_settings(config: RunConfig) -> dict[str, Any]:
    """Return all settings by name; no name is in both parts."""
    return dataclasses.asdict(config.model) | dataclasses.asdict(config.train)


def format_config(config: RunConfig) -> str:
    """Return the text of `config.json`."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def read_json_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise MxError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise MxError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise MxError(f"{path} does not hold a JSON object of settings")
    return data


def read_config(path: Path) -> RunConfig:
    """Read the config of a run folder; unknown keys are errors that name them."""
    return parse_config(read_json_object(path), path)


def parse_config(data: dict[str, Any], path: Path) -> RunConfig:
    """Make a config of what was read from `path`; logs the settings that are newer than it."""
    parts = {"model": ModelConfig, "train": TrainConfig}
    if set(data) != set(parts) or not all(isinstance(data[name], dict) for name in parts):
        raise MxError(f"{path}: not the config of a run, which has the parts model and train")
    found = {name: rename_old_settings(data[name]) for name in parts}
    known = {name: list_defaults(part) for name, part in parts.items()}
    odd = sorted(f"{name}.{key}" for name in parts for key in found[name] if key not in known[name])
    if odd:
        raise MxError(f"{path}: not a config of this version; unknown: {', '.join(odd)}")
    for name in parts:  # a setting that is newer than the file takes its default
        missing = {key: value for key, value in known[name].items() if key not in found[name]}
        if missing:
            log.warning("%s is of an older version; taken as default: %s", path, missing)
    return check_config(RunConfig(ModelConfig(**found["model"]), TrainConfig(**found["train"])))

"""Where a new run may begin: with the weights, the vocabulary and the shape of a trained model.

Knows run folders and exported students, and what of the settings comes with the model. The life of
the run itself is the matter of `run.py`.
"""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...engine.bundle.bundle import Bundle
from ...engine.errors import MxError
from ...engine.text.files import atomic_write
from ...engine.text.words import Tokenizer
from ..config import PRESETS, ModelConfig, RunConfig, TrainConfig, parsed, resolve
from ..data.corpus import tokenizers
from ..loop.objective import Network, make_network
from .checkpoint import START, assign, load_model, publish
from .restore import student_weights

# What the weights are bound to; dropout they are not.
FIXED = {f.name for f in fields(ModelConfig)} - {"dropout", "src_vocab", "tgt_vocab"}
FIXED |= {"vocab_size", "vocab_type", "lowercase", "fold_accents"}
GENTLE = 4  # by which the rates of the presets are divided: those are for random weights


@dataclass(frozen=True)
class Start:
    """A trained model, opened: its settings, vocabularies (one if joint) and weights."""

    name: str
    config: RunConfig
    vocabularies: list[Tokenizer]
    model: Network

    def put_into(self, run: Path) -> None:
        """Leave weights and vocabularies in a run folder that has not been trained in."""
        for side, tokenizer in zip(("src", "tgt"), self.vocabularies, strict=False):
            with atomic_write(run / f"{side}.spm") as file:
                file.write(tokenizer.proto)
        weights: dict[str, Tensor] = dict(self.model.named_parameters())
        publish(run, weights, START)


def open_start(name: str, langs: str | None = None) -> Start:
    """The model in a run folder, or in a bundle that must not have the languages turned round."""
    path = Path(name)
    if not path.exists():
        raise MxError(f"--start {name}: there is no such run folder or bundle")
    found = from_run(path) if (path / "config.json").exists() else from_bundle(path, langs)
    model, sizes = found.config.model, [each.vocab_size for each in found.vocabularies]
    if sizes != ([model.src_vocab] if model.joint_vocab else [model.src_vocab, model.tgt_vocab]):
        raise MxError(f"--start {name}: its weights are for vocabularies of another size")
    return found


def from_run(run: Path) -> Start:
    model, config = load_model(run)
    return Start(str(run), config, list(dict.fromkeys(tokenizers(run, config))), model)


def from_bundle(path: Path, langs: str | None) -> Start:
    """A student from the widest of its float graphs."""
    bundle = Bundle.load(path)
    manifest = bundle.manifest
    if langs and bundle.order(langs) < 0:
        raise MxError(
            f"--start {path} is a model for {' and '.join(bundle.pairs)}, not for {langs}: change "
            "SRC and TGT over, and the languages with them"
        )
    if manifest.model.get("kind") != "student":
        raise MxError(
            f"--start {path} is a bundle of Mask-Align, which keeps only what aligning needs; "
            "give the run folder that it was exported from"
        )
    precision = next((p for p in ("fp32", "fp16") if p in manifest.graphs), None)
    if precision is None:
        raise MxError(
            f"--start {path} has an int8 graph only, which is too coarse to train on; "
            "give the run folder, or export it with --precision fp16 too"
        )
    settings = {"model": manifest.model, "train": manifest.training.get("settings")}
    config = parsed(settings, path)
    seen = manifest.tokenizer
    train = replace(config.train, lowercase=seen.lowercase, fold_accents=seen.fold_accents)
    weights = student_weights(bundle.graph(precision), config.model, str(path))
    model = make_network(config.model)
    assign(model, {name: torch.from_numpy(array) for name, array in weights.items()})
    vocabularies = list(dict.fromkeys(bundle.tokenizers()))
    return Start(str(path), RunConfig(config.model, train), vocabularies, model)


# ---- settings ----


def started(name: str, old: RunConfig, preset: str | None, *overrides: dict[str, Any]) -> RunConfig:
    """The settings of a run that begins with the model `name`, of which `old` are the settings."""
    kind = old.model.kind
    if preset and (meant := resolve(preset, *overrides).model.kind) != kind:
        raise MxError(f"--start {name} is a {kind} model, but --preset {preset} is for {meant}")
    preset = preset or ("student" if kind == "student" else "compact")
    known = asdict(old.model) | asdict(old.train)
    with_it = {key: known[key] for key in (*FIXED, "dropout")}
    return resolve(preset, with_it, gentle(preset), *overrides)


def gentle(preset: str) -> dict[str, float]:
    """Lower peak rates: what the model knows should not be gone before it learns anything new."""
    usual = TrainConfig(), PRESETS[preset]
    return {
        name: usual[1].get(name, getattr(usual[0], name)) / GENTLE for name in ("lr", "matrix_lr")
    }


def check_fits(start: Start, asked: RunConfig) -> None:
    """An error if the settings contradict the model, which only flags can bring about."""
    has, wanted = (asdict(c.model) | asdict(c.train) for c in (start.config, asked))
    odd = sorted(name for name in FIXED if has[name] != wanted[name])
    if odd:
        each = ", ".join(f"{name} {has[name]} (not {wanted[name]})" for name in odd)
        raise MxError(f"--start {start.name} has {each}; leave these settings to it")

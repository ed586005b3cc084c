"""Lets a new run begin with the weights, the vocabulary and the shape of a trained model.

That is a run folder or an exported student; some of the settings come with it.
"""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...engine.bundle.bundle import Bundle
from ...engine.errors import MxError
from ...engine.storage import atomic_write
from ...engine.text.pieces import PieceTokenizer
from ..config import ModelConfig, RunConfig, parse_config, resolve_config
from ..data.vocabulary import load_tokenizers
from ..networks.weights import Network, assign_weights, load_network, make_network, publish_weights
from .checkpoint import START
from .graph_weights import student_weights

# What the weights are bound to; dropout they are not.
FIXED = {f.name for f in fields(ModelConfig)} - {"dropout", "src_vocab", "tgt_vocab"}
FIXED |= {"vocab_size", "vocab_type", "lowercase", "fold_accents"}
# By which the rates of the presets are divided: those are for random weights. Judged, not measured.
GENTLE = 4


@dataclass(frozen=True)
class InitialModel:
    """A trained model, opened: its settings, vocabularies (one if joint) and weights."""

    name: str
    config: RunConfig
    vocabularies: list[PieceTokenizer]
    model: Network

    def write_to(self, run: Path) -> None:
        """Leave weights and vocabularies in a run folder that has not been trained in."""
        for side, tokenizer in zip(("src", "tgt"), self.vocabularies, strict=False):
            with atomic_write(run / f"{side}.spm") as file:
                file.write(tokenizer.proto)
        weights: dict[str, Tensor] = dict(self.model.named_parameters())
        publish_weights(run, weights, START)


def load_start(name: str, langs: str | None = None) -> InitialModel:
    """Load the model of a run folder, or of a bundle for languages in this order."""
    path = Path(name)
    if not path.exists():
        raise MxError(f"--start {name}: there is no such run folder or bundle")
    if (path / "config.json").exists():
        network, config = load_network(path)
        tokenizers = list(dict.fromkeys(load_tokenizers(path, config)))  # one if joint
        found = InitialModel(str(path), config, tokenizers, network)
    else:
        found = load_bundled_student(path, langs)
    model, sizes = found.config.model, [each.vocab_size for each in found.vocabularies]
    if sizes != ([model.src_vocab] if model.joint_vocab else [model.src_vocab, model.tgt_vocab]):
        raise MxError(f"--start {name}: its weights are for vocabularies of another size")
    return found


def load_bundled_student(path: Path, langs: str | None) -> InitialModel:
    """Load a student from the more exact of its float graphs."""
    bundle = Bundle.load(path)
    manifest = bundle.manifest
    if langs and bundle.language_order(langs) < 0:
        raise MxError(
            f"--start {path} is a model for {' and '.join(bundle.language_pairs)}, not for "
            f"{langs}: change SRC and TGT over, and the languages with them"
        )
    if manifest.model.get("kind") != "student":
        raise MxError(
            f"--start {path} is a bundle of Mask-Align, which keeps only what aligning needs; "
            "give the run folder that it was exported from"
        )
    dtype = next((d for d in ("fp32", "fp16") if d in manifest.graphs), None)
    if dtype is None:
        raise MxError(
            f"--start {path} has an int8 graph only, which is too coarse to train on; "
            "give the run folder, or export it with --dtype fp16 too"
        )
    settings = {"model": manifest.model, "train": manifest.training.get("settings")}
    config = parse_config(settings, path)
    # The settings in the manifest are those of the run; what the tokenizer does is what counts.
    seen = manifest.tokenizer
    train = replace(config.train, lowercase=seen.lowercase, fold_accents=seen.fold_accents)
    weights = student_weights(bundle.read_graph(dtype), config.model, str(path))
    model = make_network(config.model)
    assign_weights(model, {name: torch.from_numpy(array) for name, array in weights.items()})
    vocabularies = list(dict.fromkeys(bundle.tokenizers))
    return InitialModel(str(path), RunConfig(config.model, train), vocabularies, model)


# ---- settings ----


def start_settings(
    name: str, old: RunConfig, preset: str | None, *overrides: dict[str, Any]
) -> RunConfig:
    """Return the settings of a run that begins with the model `name`, whose own are `old`."""
    kind = old.model.kind
    if preset and (meant := resolve_config(preset, *overrides).model.kind) != kind:
        raise MxError(f"--start {name} is a {kind} model, but --preset {preset} is for {meant}")
    preset = preset or ("student" if kind == "student" else "compact")
    known = asdict(old.model) | asdict(old.train)
    with_it = {key: known[key] for key in (*FIXED, "dropout")}
    return resolve_config(preset, with_it, lower_rates(preset), *overrides)


def lower_rates(preset: str) -> dict[str, float]:
    """Return lower peak rates: what is known should not be gone before anything new is learned."""
    usual = resolve_config(preset).train
    return {"lr": usual.lr / GENTLE, "matrix_lr": usual.matrix_lr / GENTLE}


def check_fits(start: InitialModel, asked: RunConfig) -> None:
    """Raise an error if the settings contradict the model, which only flags can bring about."""
    has, wanted = (asdict(c.model) | asdict(c.train) for c in (start.config, asked))
    odd = sorted(name for name in FIXED if has[name] != wanted[name])
    if odd:
        each = ", ".join(f"{name} {has[name]} (not {wanted[name]})" for name in odd)
        raise MxError(f"--start {start.name} has {each}; leave these settings to it")

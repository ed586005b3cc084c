"""Lets a new run begin with the weights, the vocabulary and the shape of a trained model.

That is a run folder or an exported student; some of the settings come with it.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...engine.bundle.bundle import Bundle
from ...engine.errors import MxError
from ...engine.storage import replace_file
from ...engine.text.pieces import PieceTokenizer
from ..config import ModelConfig, RunConfig, flat_settings, parse_config, resolve_config
from ..data.vocabulary import load_tokenizers
from ..networks.weights import Network, assign_weights, load_network, make_network, publish_weights
from .checkpoint import START

# What the weights are bound to; dropout they are not.
FIXED = {f.name for f in fields(ModelConfig)} - {"dropout", "read", "src_vocab", "tgt_vocab"}
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
            replace_file(run / f"{side}.spm", tokenizer.proto)
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
            f"--start {path} is a model for {' and '.join(bundle.told_pairs)}, not for "
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
    model = make_network(config.model)
    assign_weights(model, student_weights(bundle.read_graph(dtype), model, str(path)))
    vocabularies = list(dict.fromkeys(bundle.tokenizers))
    return InitialModel(str(path), RunConfig(config.model, train), vocabularies, model)


# ---- the graph of a bundle ----


def student_weights(graph: bytes, model: Network, where: str) -> dict[str, Tensor]:
    """Return the parameters of a student in float32, from an fp32 or fp16 graph of it."""
    stored, width = widen_tables(read_tensors(graph)), model.config.width
    found = {}
    for name, _ in model.named_parameters():
        # The way of `export/graph/student.py` backwards: what stays fp32 whatever the graph's dtype
        # is called `tail.`, two vectors are two constants, and scales are folded into weights.
        key = name.replace("correction.", "tail.").replace("diagonal", "tail.diagonal")
        parts = [f"{key}.0", f"{key}.1"] if name in ("side", "diagonal") else [key]
        missing = [part for part in parts if part not in stored]
        if missing:
            raise MxError(f"{where}: its graph lacks {missing[0]}; export the model's run again")
        values = [stored[part].astype(np.float32) for part in parts]
        scale = width ** (0.5 if "embedding" in name else -0.5 if name.startswith("query.") else 0)
        array = (values[0] if len(parts) == 1 else np.stack(values)) / np.float32(scale)
        found[name] = torch.from_numpy(array)
    return found


def widen_tables(stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add the float tables of embeddings that are stored in 8 bits, with a scale for each row."""
    end = ".int8"
    wide = {
        name.removesuffix(end): rows * stored[name.removesuffix(end) + ".scale"].astype(np.float32)
        for name, rows in stored.items()
        if name.endswith(f"embedding.weight{end}")
    }
    return {**stored, **wide}


def read_tensors(graph: bytes) -> dict[str, np.ndarray]:
    """Return the tensors stored in an ONNX file, by name."""
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError:
        raise MxError(
            "to start from a bundle onnx is needed, which this install lacks: "
            'pip install "mx-align[export]"; a run folder needs none'
        ) from None
    model = onnx.load_model_from_string(graph)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


# ---- settings ----


def start_settings(
    name: str, old: RunConfig, preset: str | None, *overrides: dict[str, Any]
) -> RunConfig:
    """Return the settings of a run that begins with the model `name`, whose own are `old`."""
    kind = old.model.kind
    if preset and (meant := resolve_config(preset, *overrides).model.kind) != kind:
        raise MxError(f"--start {name} is a {kind} model, but --preset {preset} is for {meant}")
    preset = preset or ("student" if kind == "student" else "compact")
    known, usual = flat_settings(old), resolve_config(preset).train
    with_it = {key: known[key] for key in (*FIXED, "dropout", "read")}
    # Lower peak rates: what is known should not be gone before anything new is learned.
    rates = {"lr": usual.lr / GENTLE, "matrix_lr": usual.matrix_lr / GENTLE}
    return resolve_config(preset, with_it, rates, *overrides)


def check_fits(start: InitialModel, asked: RunConfig) -> None:
    """Raise an error if the settings contradict the model, which only flags can bring about."""
    has, wanted = flat_settings(start.config), flat_settings(asked)
    odd = sorted(name for name in FIXED if has[name] != wanted[name])
    if odd:
        each = ", ".join(f"{name} {has[name]} (not {wanted[name]})" for name in odd)
        raise MxError(f"--start {start.name} has {each}; leave these settings to it")

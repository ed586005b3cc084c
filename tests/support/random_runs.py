"""Random models of every kind, and run folders with one."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import sentencepiece
import torch

from ...engine.text.pieces import PieceTokenizer
from ...export.graph.fusion import fuse_attention
from ...export.graph.plain import build_plain_graph, collect_weights
from ...trainer.config import ModelConfig, format_config, resolve_config
from ...trainer.data import token_cache as cache
from ...trainer.networks import weights
from ...trainer.networks.weights import Network, make_network

SMALL = ModelConfig(
    width=16,
    ff=24,
    heads=2,
    encoder_layers=2,
    decoder_layers=2,
    norm="pre",
    tied=True,
    src_vocab=50,
    tgt_vocab=40,
)


def random_model(config: ModelConfig, sharp: float = 1.5) -> Network:
    """A network whose weights and biases are all different; larger weights, sharper attention."""
    torch.manual_seed(1)
    model = make_network(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.mul_(sharp)
        for name, parameter in model.named_parameters():
            if name.endswith("_starts"):
                parameter.copy_((torch.rand_like(parameter) < 0.7).float())
    return model


def fuse_random(config: ModelConfig) -> onnx.ModelProto:
    """The exported fp32 graph of a random model."""
    plain = build_plain_graph(config, collect_weights(random_model(config)))
    return fuse_attention(plain, config)[0]


def write_run(folder: Path, **settings: Any) -> Path:
    """A run folder as `mx-train` leaves it, with random weights and 60 pairs to validate on."""
    sides = [[f"{letter}{k} " * 3 + f"{letter}{k % 7}" for k in range(60)] for letter in "xy"]
    joint = settings.get("joint_vocab", True)
    spms = [train_spm([*sides[0], *sides[1]])] if joint else [train_spm(side) for side in sides]
    tokenizers = [PieceTokenizer(spm) for spm in spms]
    config = resolve_config(
        "tiny", {"width": 16, "ff": 24, "heads": 2, "vocab_size": 60, "max_length": 40}, settings
    )
    sizes = {"src_vocab": tokenizers[0].vocab_size, "tgt_vocab": tokenizers[-1].vocab_size}
    config = replace(config, model=replace(config.model, **sizes))
    folder.mkdir()
    (folder / "config.json").write_text(format_config(config), "utf-8")
    for name, spm in zip(("src.spm", "tgt.spm"), spms, strict=False):
        (folder / name).write_bytes(spm)
    model = random_model(config.model)
    weights.publish_weights(folder, {name: p.data for name, p in model.named_parameters()})
    cache.build_token_cache(
        zip(*sides, strict=True),
        folder / "cache" / "valid",
        tokenizers=(tokenizers[0], tokenizers[-1]),
        max_length=40,
        max_ratio=9,
        key={},
    )
    return folder


def train_spm(lines: list[str]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()

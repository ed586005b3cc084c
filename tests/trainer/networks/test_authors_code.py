"""Our network against what the authors' own code computed, in float64.

`tests/data/mask_align_authors.npz` has random weights of one direction under their names, a padded
batch, and what their code made of it: no dropout, no label smoothing.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ....trainer.config import ModelConfig, TrainConfig
from ....trainer.networks.losses import agreement_loss, entropy_loss
from ....trainer.networks.mask_align import MaskAlign, harmonic_mean, valid_places

FILE = Path(__file__).parents[2] / "data" / "mask_align_authors.npz"
# Their names of the parts of an attention or a feed-forward, and ours.
PARTS = {
    "q_transform": "query", "k_transform": "key", "v_transform": "value", "o_transform": "out",
    "input_transform": "up", "output_transform": "down", "layer_norm": "norm",
}  # fmt: skip


@pytest.fixture(scope="module")
def theirs() -> dict[str, torch.Tensor]:
    with np.load(FILE) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


@pytest.fixture(scope="module")
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def model(theirs: dict[str, torch.Tensor], double: None) -> MaskAlign:
    """A network of ours with their weights in the direction that predicts the target."""
    tables = theirs["source_embedding"], theirs["target_embedding"]
    config = ModelConfig(
        width=32, ff=64, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.0,
        joint_vocab=False, read="prior", src_vocab=len(tables[0]), tgt_vocab=len(tables[1]),
    )  # fmt: skip
    network = MaskAlign(config).eval()
    with torch.no_grad():
        network.src_embedding.weight.copy_(tables[0])
        network.tgt_embedding.weight.copy_(tables[1])
        fused: dict[str, dict[str, torch.Tensor]] = {}
        for name, value in theirs.items():
            if "layers." in name:
                place_weight(network, name, value, fused)
        for kind in ("weight", "bias"):
            for side, parts in (("encoder", "qkv"), ("decoder", "kv")):
                for layer in range(2):
                    rows = [fused[f"{side}.{layer}.{part}"][kind] for part in parts]
                    if side == "encoder":
                        target = getattr(network.fwd.encoder.attention[layer].qkv, kind)
                    else:
                        whole = getattr(network.fwd.decoder.key_value, kind)
                        target = whole[64 * layer : 64 * (layer + 1)]
                    target.copy_(torch.cat(rows))
    return network


def place_weight(network, name: str, value: torch.Tensor, fused) -> None:
    """Copy one of their weights to its place; what we fuse is collected."""
    found = re.fullmatch(r"(encoder|decoder)\.layers\.(\d)\.(\w+?)_?(attention)?\.(.*)", name)
    assert found, name
    side, layer, block, _, rest = found.groups()
    half = getattr(network.fwd, side)
    *path, kind = rest.removeprefix("attention.").removeprefix("ffn_layer.").split(".")
    if kind.startswith("leaky"):
        getattr(half.cross[layer], f"null_{'key' if kind[-1] == 'k' else 'value'}").copy_(
            value[0, 0]
        )
        return
    part = path[0]
    if block == "self" and (part[0] in "kv" or (side == "encoder" and part[0] == "q")):
        fused.setdefault(f"{side}.{layer}.{part[0]}", {})[kind] = value
        return
    blocks = {"self": "attention", "encdec": "cross", "feed_forward": "feed_forward"}
    rows = getattr(half, blocks[block])
    module = rows[layer] if block == "encdec" else rows[int(layer)]
    getattr(getattr(module, PARTS[part]), kind).copy_(value)


@pytest.fixture(scope="module")
def batch(theirs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    names = ("source", "source_lengths", "target", "target_lengths")
    return [theirs[name] for name in names]


def test_attention_and_prediction(model, theirs, batch) -> None:
    assert not theirs["bias"].any()  # of their embedding, which we do not have
    with torch.inference_mode():
        fwd, _ = model(*batch)
    assert (fwd.weights - theirs["weights_fwd"]).abs().max() < 1e-9
    rows = valid_places(batch[3], batch[2].shape[1])
    logits = fwd.hidden[rows] @ model.table(1).T
    nll = torch.nn.functional.cross_entropy(logits, batch[2][rows])
    assert nll.item() == pytest.approx(theirs["nll_fwd"].item(), rel=1e-9)


def test_losses_and_scores(theirs, batch) -> None:
    fwd, bwd = theirs["weights_fwd"], theirs["weights_bwd"]
    src, tgt = (valid_places(batch[k + 1], batch[k].shape[1]) for k in (0, 2))
    cells = tgt[:, :, None] & src[:, None, :]
    config, count = TrainConfig(), cells.sum()
    agreement = agreement_loss(fwd * cells, bwd * cells.mT) / count
    assert agreement.item() == pytest.approx(theirs["agreement"].item(), rel=1e-9)
    entropy = entropy_loss(fwd, cells, config.entropy_lambda)
    entropy = (entropy + entropy_loss(bwd, cells.mT, config.entropy_lambda)) / count
    assert entropy.item() == pytest.approx(theirs["entropy"].item(), rel=1e-6)
    total = (theirs["nll_fwd"] + theirs["nll_bwd"]) / 2
    total = total + config.alpha * agreement + config.beta * entropy
    assert total.item() == pytest.approx(theirs["loss"].item(), rel=1e-6)
    scores = harmonic_mean(fwd * cells, bwd * cells.mT)
    assert (scores - theirs["alignment_score"] * cells).abs().max() < 1e-9

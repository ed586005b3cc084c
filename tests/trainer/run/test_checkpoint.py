"""Checkpoints: whole or absent, complete, safetensors and JSON only."""

import errno
import json

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ....engine.errors import MxError
from ....trainer.config import ModelConfig, RunConfig, format_config
from ....trainer.networks import weights
from ....trainer.networks.mask_align import MaskAlign
from ....trainer.run import checkpoint


def make(seed=0, steps=2):
    torch.manual_seed(seed)
    shape = {"width": 8, "ff": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    model = MaskAlign(ModelConfig(**shape, src_vocab=12, tgt_vocab=12))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(steps):
        optimizer.zero_grad()
        sum(p.square().sum() for p in model.parameters()).backward()
        optimizer.step()
    return model, optimizer


def test_round_trip(tmp_path):
    model, optimizer = make()
    averaged = {n: p.detach() + 1 for n, p in model.named_parameters()}
    folder = checkpoint.save_checkpoint(tmp_path, 7, model, averaged, optimizer, {"step": 7})
    other, other_optimizer = make(seed=1, steps=0)
    state, other_averaged = checkpoint.load_checkpoint(folder, other, other_optimizer)
    assert state == {"step": 7}
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert one.equal(two) and other_averaged[name].equal(averaged[name])
        for key, value in optimizer.state[one].items():
            assert other_optimizer.state[two][key].equal(value), (name, key)


def test_files_are_plain_data_that_others_may_read(tmp_path):
    model, optimizer = make()
    folder = checkpoint.save_checkpoint(tmp_path, 1, model, None, optimizer, {})
    weights.publish_weights(tmp_path, dict(model.named_parameters()))
    files = [*folder.iterdir(), tmp_path / "model.safetensors"]
    assert {file.suffix for file in files} == {".safetensors", ".json"}
    plain = tmp_path / "plain"
    plain.touch()
    assert {file.stat().st_mode for file in files} == {plain.stat().st_mode}
    for file in files:
        load_file(file) if file.suffix == ".safetensors" else json.loads(file.read_text())


@pytest.mark.parametrize("failing", range(3))
@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("No space left on device")],
    ids=["system", "safetensors"],
)
def test_a_failed_save_leaves_the_one_before(tmp_path, monkeypatch, failing, error):
    model, optimizer = make()
    checkpoint.save_checkpoint(tmp_path, 1, model, None, optimizer, {"step": 1})
    calls = 0

    def save_file(tensors, path):
        nonlocal calls
        calls += 1
        path.write_bytes(b"half of")
        if calls > failing:
            raise error

    monkeypatch.setattr(weights, "save_file", save_file)
    averaged = dict(model.named_parameters())
    with pytest.raises(MxError, match=r"step-00000002: .*No space left.*resumed"):
        checkpoint.save_checkpoint(tmp_path, 2, model, averaged, optimizer, {})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    checkpoint.load_checkpoint(checkpoint.list_checkpoints(tmp_path)[-1], model, optimizer)


def test_a_failed_publication_leaves_the_old_weights(tmp_path, monkeypatch):
    model, _ = make()
    tensors = dict(model.named_parameters())
    weights.publish_weights(tmp_path, tensors)
    before = (tmp_path / "model.safetensors").read_bytes()

    def save_file(tensors, path):
        path.write_bytes(b"half of")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(weights, "save_file", save_file)
    with pytest.raises(MxError, match="No space left"):
        weights.publish_weights(tmp_path, tensors)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_prune_keeps_the_last_and_the_best(tmp_path):
    for step in range(1, 9):
        (tmp_path / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    checkpoint.prune_checkpoints(tmp_path, 2, {3, 5, 8})
    kept = [
        int(folder.name.removeprefix("step-")) for folder in checkpoint.list_checkpoints(tmp_path)
    ]
    assert kept == [3, 5, 7, 8]


def test_mean_prefers_averaged_weights(tmp_path):
    model, optimizer = make()
    folders = []
    for step, add in ((1, 1.0), (2, 4.0)):
        averaged = {n: p.detach() + add for n, p in model.named_parameters()}
        folders.append(checkpoint.save_checkpoint(tmp_path, step, model, averaged, optimizer, {}))
    for name, value in checkpoint.average_checkpoints(folders).items():
        wanted = dict(model.named_parameters())[name] + 2.5
        torch.testing.assert_close(value, wanted.detach())


def test_damaged_and_foreign_weights_are_named(tmp_path):
    model, optimizer = make()
    folder = checkpoint.save_checkpoint(tmp_path, 1, model, None, optimizer, {})
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-9])
    with pytest.raises(MxError, match="is damaged"):
        checkpoint.load_checkpoint(folder, model, optimizer)
    tensors = {n: p.detach() for n, p in model.named_parameters()}
    tensors["extra"] = tensors.pop("src_embedding.weight")
    with pytest.raises(MxError, match=r"missing or unknown: extra, src_embedding.weight"):
        weights.assign_weights(model, tensors)
    tensors["src_embedding.weight"] = tensors.pop("extra")[:5]
    with pytest.raises(MxError, match=r"src_embedding.weight is \[5, 8\], not \[12, 8\]"):
        weights.assign_weights(model, tensors)
    with pytest.raises(MxError, match="is it a run folder"):
        weights.load_network(tmp_path)
    (tmp_path / "config.json").write_text(format_config(RunConfig(model.config)))
    (tmp_path / "model.safetensors").write_bytes(whole[:-9])
    with pytest.raises(MxError, match=r"model.safetensors is damaged"):
        weights.load_network(tmp_path)

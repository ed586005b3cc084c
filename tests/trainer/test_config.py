"""Settings: presets, precedence, JSON, and errors that name what is wrong."""

import dataclasses
import json

import pytest

from ...engine.errors import MxError
from ...trainer.config import (
    PRESETS,
    ModelConfig,
    RunConfig,
    TrainConfig,
    format_config,
    read_config,
    read_json_object,
    resolve_config,
)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_possible(preset):
    config = resolve_config(preset)
    for name, value in PRESETS[preset].items():
        part = config.model if hasattr(config.model, name) else config.train
        assert getattr(part, name) == value


def test_paper_is_the_paper():
    assert resolve_config("paper") == RunConfig(ModelConfig(read="prior"), TrainConfig(clip=0.0))
    model, train = RunConfig().model, RunConfig().train
    assert (model.width, model.ff, model.heads, model.dropout) == (512, 1024, 4, 0.3)
    assert (model.encoder_layers, model.decoder_layers, model.norm) == (6, 6, "post")
    assert (train.alpha, train.beta, train.entropy_lambda, train.threshold) == (5, 1, 0.05, 0.2)
    assert (train.lr, train.warmup, train.steps, train.batch_tokens) == (5e-4, 4000, 50000, 36000)
    assert train.warm_start == "none"


def test_later_wins():
    config = resolve_config("tiny", {"lr": 1.0, "width": 64}, {"lr": 2.0})
    assert (config.train.lr, config.model.width) == (2.0, 64)
    assert config.model.encoder_layers == PRESETS["tiny"]["encoder_layers"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"widht": 3}, "unknown settings widht"),
        ({"width": 30, "heads": 4}, "multiple of twice the heads"),
        ({"norm": "both"}, "norm must be one of post, pre"),
        ({"steps": "100"}, "steps must be of type int, not '100'"),
        ({"lr": True}, "lr must be of type float"),
        ({"tied": 1}, "tied must be of type bool"),
        ({"dropout": 1.0, "ema": 1.0}, "dropout must be below 1, not 1.0; ema must be below 1"),
        ({"keep": 0}, "keep must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"rounds": 50, "steps": 10}, "a step for each of the rounds"),
        ({"max_length": 1}, "max_length"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": float("nan"), "clip": -1}, "lr must be above 0; clip must be at least 0"),
        ({"alpha": float("inf")}, "alpha must be a finite number"),
        ({"soft_targets": True, "rounds": 2}, "soft_targets: for students only; rounds: for"),
        ({"diagonal": False}, "no diagonal: for students only"),
    ],
)
def test_impossible_settings_are_named(settings, message):
    with pytest.raises(MxError, match=message):
        resolve_config("tiny", settings)


def test_unknown_preset():
    with pytest.raises(MxError, match="no preset 'huge'; there are paper, compact, tiny"):
        resolve_config("huge")


def test_json_round_trip(tmp_path):
    config = resolve_config("compact", {"lr": 3})
    (tmp_path / "config.json").write_text(format_config(config))
    assert read_config(tmp_path / "config.json") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "does not hold a JSON object"),
        ('{"model": {"depth": 3}, "train": {}}', "unknown: model.depth"),
        ('{"other": 1}', "not the config of a run"),
        ('{"model": 1, "train": {}}', "not the config of a run"),
    ],
)
def test_damaged_config_files(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(MxError, match=message):
        read_config(tmp_path / "config.json")


def test_settings_newer_than_the_file_are_filled_in_and_logged(tmp_path, caplog):
    path = tmp_path / "config.json"
    path.write_text('{"model": {"width": 64}, "train": {"steps": 7}}')
    config = read_config(path)
    assert (config.model.width, config.train.steps, config.model.ff) == (64, 7, ModelConfig().ff)
    assert "older version" in caplog.text and "'ff': 1024" in caplog.text


def test_settings_of_an_earlier_version_have_other_names_today(tmp_path, caplog):
    path = tmp_path / "config.json"
    saved = dataclasses.asdict(resolve_config("tiny", {"dtype": "bf16", "guidance_weight": 2.0}))
    for new, old in (("dtype", "precision"), ("guidance_weight", "seed_weight"),
                     ("guidance_until", "seed_until")):  # fmt: skip
        saved["train"][old] = saved["train"].pop(new)
    saved["train"]["warm_start"] = "seed"
    path.write_text(json.dumps(saved))
    assert read_config(path) == resolve_config("tiny", {"dtype": "bf16", "guidance_weight": 2.0})
    assert not caplog.text


def test_missing_config_file(tmp_path):
    with pytest.raises(MxError, match="cannot read"):
        read_json_object(tmp_path / "none.json")


@pytest.mark.slow
def test_every_setting_has_a_help_line():
    for part in (ModelConfig, TrainConfig):
        for field in dataclasses.fields(part):
            assert field.name.endswith("_vocab") or field.metadata["flag"].help

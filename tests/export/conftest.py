"""Fixtures of the export tests; without torch or onnx they are all skipped."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from random_runs import SMALL, VARIANTS, write_run

from mx.trainer.config import ModelConfig


@pytest.fixture(params=list(VARIANTS))
def variant(request: pytest.FixtureRequest) -> ModelConfig:
    return replace(SMALL, **VARIANTS[request.param])


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run")

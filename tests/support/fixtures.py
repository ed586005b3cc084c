"""What several test modules share: a small made-up corpus, ways to run commands, a browser."""

import json
import multiprocessing
import random
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# The smallest network that has every part, steps of a few milliseconds, and nothing that is left
# to a preset but what no test looks at.
SMALL = {
    "width": 16, "ff": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "vocab_size": 330,
    "batch_tokens": 160, "batch_tokens_start": 60, "micro_tokens": 160, "steps": 12, "warmup": 4,
    "eval_every": 6, "save_every": 4, "log_every": 1, "warm_start": "none", "optimizer": "adamw",
    "lr": 0.002, "schedule": "cosine", "ema": 0.9, "tied": True, "norm": "pre", "dropout": 0.05,
}  # fmt: skip

# Every option both ways, not every combination.
VARIANTS: dict[str, dict[str, Any]] = {
    "pre tied": {},
    "post untied": {"norm": "post", "tied": False},
    "separate vocabularies": {"joint_vocab": False, "tied": False},
    "autoregressive": {"masked": False},
    "not leaky": {"leaky": False, "norm": "post"},
    "cross all": {"cross": "all"},
    "cross all, not leaky": {"cross": "all", "leaky": False, "tied": False},
    "autoregressive, cross all, not leaky": {"masked": False, "cross": "all", "leaky": False},
    "student": {"kind": "student"},
    "student, separate vocabularies": {"kind": "student", "joint_vocab": False},
    "student without correction": {"kind": "student", "refine": 0, "encoder_layers": 1},
    "student without diagonal": {"kind": "student", "diagonal": False},
    "one layer": {"encoder_layers": 1, "decoder_layers": 1, "norm": "post"},
}


def write_corpus(folder: Path, n: int = 120, seed: int = 1) -> tuple[Path, Path]:
    """A language and its translation, word by word, sometimes backwards."""
    rng = random.Random(seed)
    src, tgt = [], []
    for _ in range(n):
        words = [rng.randrange(30) for _ in range(rng.randint(2, 9))]
        src.append(" ".join(f"w{k}" for k in words))
        order = words[::-1] if rng.random() < 0.3 else words
        tgt.append(" ".join(f"Größe{k}" for k in order))
    files = folder / "c.src", folder / "c.tgt"
    for file, lines in zip(files, (src, tgt), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return files


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tiny tensors are slower on many threads, and far slower on a busy machine."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def flags(**settings: Any) -> list[str]:
    """SMALL with changes, as arguments of `mx-train`."""
    found = []
    for name, value in {**SMALL, **settings}.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            found += [f"--{flag}", str(value)]
    return [*found, "--device", "cpu", "--threads", "1"]


@pytest.fixture
def train_arguments():
    return flags


@pytest.fixture
def command():
    """The start of a command line that runs mx-train in a process of its own."""
    return [sys.executable, "-m", "mx_align.trainer"]


@pytest.fixture
def run_command(command):
    def run(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        line = [*command, *map(str, arguments)]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, **options)

    return run


@pytest.fixture
def small_config():
    """SMALL with changes, as a RunConfig."""
    from ...trainer.config import resolve_config

    return lambda **settings: resolve_config("tiny", SMALL, settings)


@pytest.fixture
def start(corpus, small_config):
    """Prepares a run folder as the command does; gives what `train` takes."""
    import torch

    from ...trainer.loop.devices import World
    from ...trainer.loop.progress import Monitor
    from ...trainer.run.folder import RunCommand, load_run, prepare_run
    from ...trainer.run.texts import Texts
    from ...trainer.run.training_data import load_data

    def prepare(run: Path, texts: dict[str, Any] | None = None, **settings: Any):
        run.mkdir(exist_ok=True)
        files = Texts(**{"src": str(corpus[0]), "tgt": str(corpus[1]), **(texts or {})})
        prepare_run(RunCommand(run, files, "tiny", (SMALL, settings)), lambda note: None)
        config, found = load_run(run)
        data = load_data(found, config, run)
        return config, run, data, World(torch.device("cpu")), Monitor(run, quiet=True)

    return prepare


class Interruption(Exception):
    """Stands for the end of a process in the middle of a step."""


@pytest.fixture
def train_until(monkeypatch):
    """Trains until a step is done, which is neither saved nor logged."""
    from ...trainer.loop.progress import Monitor
    from ...trainer.loop.train import train_network

    def train(last: int, *arguments: Any) -> None:
        report = Monitor.step

        def interrupt(monitor: Monitor, progress: Any, *values: Any) -> None:
            if progress.step >= last:
                raise Interruption
            report(monitor, progress, *values)

        with monkeypatch.context() as patch, pytest.raises(Interruption):
            patch.setattr(Monitor, "step", interrupt)
            train_network(*arguments)

    return train


@pytest.fixture
def read_log():
    """The log without what depends on the clock."""

    def read(run: Path) -> list[dict[str, Any]]:
        lines = (run / "log.jsonl").read_text("utf-8").split("\n")[:-1]
        timed = ("seconds", "pieces_per_second")
        return [{k: v for k, v in json.loads(x).items() if k not in timed} for x in lines]

    return read


# ---- export ----


@pytest.fixture(params=list(VARIANTS))
def variant(request: pytest.FixtureRequest):
    """A small model config of every kind."""
    from .random_runs import SMALL as small

    return replace(small, **VARIANTS[request.param])


@pytest.fixture(scope="session")
def random_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a random model."""
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    from .random_runs import write_run

    return write_run(tmp_path_factory.mktemp("runs") / "run")


# ---- kernels ----


@pytest.fixture(scope="session")
def interpreter():
    """Runs a function of `triton_interpreter` where triton interprets."""
    pytest.importorskip("triton", reason="triton is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    from . import triton_interpreter

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=triton_interpreter.start_interpreting) as pool:
        yield lambda function, *args, **options: pool.submit(function, *args, **options).result()


@pytest.fixture
def assert_close():
    """A comparison that says which cell differs most."""

    def check(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
        assert found.shape == wanted.shape
        difference = np.abs(found.astype(np.float64) - wanted)
        bad = ~(difference <= tolerance)
        if bad.any():
            worst = np.unravel_index(np.nanargmax(np.where(bad, difference, -1)), found.shape)
            pytest.fail(
                f"{bad.sum()} of {bad.size} differ, most at {worst}: {found[worst]} instead of "
                f"{wanted[worst]}, tolerance {tolerance}"
            )

    return check


# ---- browser ----


@pytest.fixture(scope="session")
def window():
    """One browser for all tests; without one they skip."""
    from . import webdriver

    if webdriver.installed() is None:
        pytest.skip(
            "no browser: install chromium and chromedriver (Debian: chromium, chromium-driver)"
        )
    with webdriver.started() as browser:
        yield browser


@pytest.fixture
def browser(window):
    """The window, of an ordinary size and in light colours, with nothing in its log."""
    window.screen(1280, 900)
    window.log()
    return window

"""What several test modules share: a small made-up corpus, and a way to run `mx-train` on it."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Some virtual machines announce AMX and end a program that uses it, as bfloat16 products would.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# The smallest network that has every part, steps of a few milliseconds, and nothing that is left
# to a preset but what no test looks at.
SMALL = {
    "width": 16, "ff": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "vocab_size": 330,
    "batch_tokens": 160, "batch_tokens_start": 60, "micro_tokens": 160, "steps": 12, "warmup": 4,
    "eval_every": 6, "save_every": 4, "log_every": 1, "warm_start": "none", "optimizer": "adamw",
    "lr": 0.002, "schedule": "cosine", "ema": 0.9, "tied": True, "norm": "pre", "dropout": 0.05,
}  # fmt: skip


def pytest_configure() -> None:
    """Commands that the tests start must heed Ctrl-C, also where a background job ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    return [sys.executable, "-m", "mx.trainer"]


@pytest.fixture
def run_command(command):
    def run(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        line = [*command, *map(str, arguments)]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, **options)

    return run


@pytest.fixture
def small_config():
    """SMALL with changes, as a RunConfig."""
    from mx.trainer.config import resolve

    return lambda **settings: resolve("tiny", SMALL, settings)


@pytest.fixture
def start(corpus, small_config):
    """Prepares a run folder as the command does; gives what `train` takes."""
    import torch

    from mx.trainer.corpus import Texts, open_prepared
    from mx.trainer.distributed import World
    from mx.trainer.progress import Monitor
    from mx.trainer.run import Command, opened, settle

    def prepare(run: Path, texts: dict[str, Any] | None = None, **settings: Any):
        run.mkdir(exist_ok=True)
        files = Texts(**{"src": str(corpus[0]), "tgt": str(corpus[1]), **(texts or {})})
        settle(Command(run, files, "tiny", (SMALL, settings)), lambda note: None)
        config, found = opened(run)
        data = open_prepared(found, config, run)
        return config, run, data, World(torch.device("cpu")), Monitor(run, quiet=True)

    return prepare


@pytest.fixture
def read_log():
    """The log without what depends on the clock."""

    def read(run: Path) -> list[dict[str, Any]]:
        lines = (run / "log.jsonl").read_text("utf-8").split("\n")[:-1]
        timed = ("seconds", "pieces_per_second")
        return [{k: v for k, v in json.loads(x).items() if k not in timed} for x in lines]

    return read

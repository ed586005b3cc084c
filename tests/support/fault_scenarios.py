"""Commands to be killed, and what must hold of their output whenever that happens.

`batter` kills a command again and again, until the same command ends well. The output must then be
that of an undisturbed run, byte for byte, with nothing beside it.
"""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...engine.bundle.bundle import Bundle
from ...engine.commands import align, merge, seed
from .bundles import write_toy
from .faults import Ending, Fault, Job, list_tree, run_job, start_job
from .fixtures import flags, write_corpus

# What differs from run to run: times and speeds, and where a run was told to be.
_TIMED = re.compile(r"report\.json|log\.jsonl|command\.json|\.lock|tensorboard.*")


@dataclass
class Scenario:
    """A command with arguments; it writes into the folder where it is started."""

    name: str
    command: Callable[..., Any]
    arguments: list[object]
    inputs: dict[str, Path] = field(default_factory=dict)  # copied into the folder before
    prepare: Callable[[], object] | None = None
    exact: re.Pattern[str] = re.compile(r".*")  # the files whose bytes are compared
    improves: bool = False  # files of final names change until the end
    wanted: dict[str, bytes | None] = field(default_factory=dict)
    points: int = 0
    seconds: float = 0

    def set_up(self, work: Path) -> None:
        """Make an empty folder but for the inputs."""
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        for name, source in self.inputs.items():
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, work / name)  # type: ignore[operator]

    def run(self, work: Path, fault: Fault) -> Ending:
        return run_job(self.command, self.arguments, work, fault, self.prepare)

    def start(self, work: Path) -> Job:
        return start_job(self.command, self.arguments, work, prepare=self.prepare)

    def run_undisturbed(self, work: Path) -> None:
        """Learn what the output should be, and how many points it has."""
        self.set_up(work)
        start = time.monotonic()
        ending = self.run(work, Fault())
        assert ending.code == 0, ending.said
        self.seconds = time.monotonic() - start
        self.points, self.wanted = ending.points, list_tree(work)

    def check_whole(self, work: Path) -> None:
        """Fail unless all is there as it should be, and nothing else."""
        found = list_tree(work)
        assert found.keys() == self.wanted.keys(), (self.name, found.keys() ^ self.wanted.keys())
        for name, data in found.items():
            assert not self._is_exact(name) or data == self.wanted[name], (self.name, name)

    def check_unharmed(self, work: Path, visible: set[str]) -> None:
        """Fail if a file has its final name and not its bytes."""
        for name in () if self.improves else visible & self.wanted.keys():
            path = work / name
            if path.is_file() and self._is_exact(name):
                assert path.read_bytes() == self.wanted[name], (self.name, name)

    def _is_exact(self, name: str) -> bool:
        return bool(self.exact.search(name)) and not _TIMED.fullmatch(Path(name).name)


@dataclass
class Tally:
    """What happened: faults that hit, times that all ended well after them, memory."""

    faults: int = 0
    finished: int = 0
    kilobytes: int = 0


def batter(scenario: Scenario, work: Path, kills: int, rng: random.Random) -> Tally:
    """Kill a command so often; any assertion is a loss, a wrong byte or something left behind."""
    scenario.run_undisturbed(work)
    outputs = {name for name, data in scenario.wanted.items() if data is not None}
    outputs -= {name.split("/")[0] for name in scenario.inputs}
    tally, row = Tally(), 0
    scenario.set_up(work)
    while tally.faults < kills or row:
        if tally.faults < kills and row < 6:
            fault = draw_kill(scenario, rng)
            ending = scenario.run(work, fault)
        else:
            fault, ending = Fault(), scenario.run(work, Fault())
        tally.kilobytes = max(tally.kilobytes, ending.kilobytes)
        if ending.fired:
            tally.faults, row = tally.faults + 1, row + 1
            scenario.check_unharmed(work, outputs)
            continue
        assert ending.code == 0, (scenario.name, fault, ending)
        scenario.check_whole(work)
        tally.finished, row = tally.finished + 1, 0
        if rng.random() < 0.5:  # else the next run finds, and replaces, what is there
            scenario.set_up(work)
    return tally


def draw_kill(scenario: Scenario, rng: random.Random) -> Fault:
    """Choose a moment: mostly a point of writing, else any."""
    if rng.random() < 0.8:
        return Fault("kill", rng.randint(1, scenario.points))
    return Fault("kill after", rng.random() * scenario.seconds)


def fill_disk(scenario: Scenario, work: Path, point: int) -> bool:
    """Let the disk be full from a point on; then the same command, with room again, ends well."""
    scenario.set_up(work)
    ending = scenario.run(work, Fault("full disk", point))
    if not ending.fired:
        return False
    assert ending.code in (0, 2), (scenario.name, ending)
    assert "Traceback" not in ending.said, (scenario.name, ending)
    if ending.code:
        assert "No space left on device" in ending.said, (scenario.name, ending)
    ending = scenario.run(work, Fault())
    assert ending.code == 0, (scenario.name, ending)
    scenario.check_whole(work)
    return True


# ---- the commands ----


def load_libraries() -> None:
    """Load once what all need, so that forked processes need not."""
    from ...engine import aligner
    from ...engine.runtime import onnx_cpu
    from ...engine.statistical import aligner as statistical

    assert aligner and onnx_cpu and statistical


def make_scenarios(folder: Path, *, pairs: int = 60) -> dict[str, Scenario]:
    """Return the commands of the engine, over a made-up corpus."""
    src, tgt = write_corpus(folder, pairs)
    toy = write_toy(folder / "toy.mx").path
    assert Bundle.load(toy).tokenizers  # tried once, before processes are forked
    base = [src, tgt, "-m", toy, "-q", "--threads", 1, "--chunk-pairs", 10]
    shards = {}
    for n in (1, 2, 3):
        line = [*base, "--shard", f"{n}/3", "-o", f"links.{n}"]
        assert run_job(align.main, line, folder).code == 0
        shards |= {name: folder / name for name in (f"links.{n}", f"links.{n}.shard.json")}
    everything = ["-o", "links", "--scores", "scores", "--report", "report.json"]
    everything += ["--html", "page.html", "--write-tokenized", "words", "--format", "scored"]
    made = [
        Scenario("mx-align, plain", align.main, [*base, "-o", "links"]),
        Scenario("mx-align, .gz", align.main, [*base, "-o", "links.gz"]),
        Scenario("mx-align, .zst", align.main, [*base, "-o", "links.zst"]),
        Scenario("mx-align, all outputs", align.main, [*base, *everything]),
        Scenario("mx-align, a shard", align.main, [*base, "-o", "links.2", "--shard", "2/3"]),
        Scenario("mx-merge", merge.main, [*sorted(shards), "-o", "merged"], shards),
        Scenario(
            "mx-seed",
            seed.main,
            [src, tgt, "-q", "-o", "links", "--scores", "scores.gz", "--save", "model.npz"],
        ),
    ]
    return {scenario.name: scenario for scenario in made}


def make_training_scenarios(folder: Path) -> dict[str, Scenario]:
    """Return the commands that need PyTorch."""
    import torch

    from ...engine import train_on_input
    from ...export.commands import export
    from ...trainer.commands import train
    from .random_runs import write_run

    src, tgt = write_corpus(folder)
    run = write_run(folder / "run")
    settings = {"steps": 8, "save_every": 1, "eval_every": 4, "valid_last": 10}
    training = [*flags(**settings), "--preset", "tiny"]
    programs = {"mx-train": train.main, "mx-export": export.main}

    def use_one_thread() -> None:
        torch.set_num_threads(1)

    def fork_programs() -> None:
        """Fork what would be started, whose imports take longer than all the rest."""
        use_one_thread()

        def run_program(name: str, arguments: list[str]) -> None:
            train_on_input._end_with_parent()
            ending = start_job(programs[name], arguments[1:], Path.cwd()).wait()
            if ending.code:
                raise RuntimeError(f"{name} ended with {ending.code}: {ending.said}")

        train_on_input.run_program = run_program  # type: ignore[assignment]

    line = " ".join([*flags(steps=6, save_every=1, minutes=0), "--preset", "tiny"])
    on_input = [src, tgt, "--train-on-input", "--keep-model", "kept.mx", "--train-flags", line]
    made = [
        Scenario(
            "mx-train", train.main, [src, tgt, "-o", "run", "-q", *training],
            prepare=use_one_thread, exact=re.compile(r"safetensors$|\.spm$"), improves=True,
        ),
        Scenario(
            "mx-export", export.main,
            [run, "-o", "made.mx", "--dtype", "fp32", "-q", "--force"],
            prepare=use_one_thread,
        ),
        Scenario(
            "mx-align --train-on-input", align.main, [*on_input, "-q", "-o", "links"],
            prepare=fork_programs, exact=re.compile(r"links|\.onnx$"),
        ),
    ]  # fmt: skip
    return {scenario.name: scenario for scenario in made}

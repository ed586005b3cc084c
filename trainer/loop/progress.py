"""How far a run is, and what people see of it: stderr, `log.jsonl`, TensorBoard if installed.

Does not touch tensors.
"""

import json
import math
import sys
import time
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

from ...engine.errors import MxError
from ...engine.storage import atomic_write
from ..data.batches import Position


@dataclass
class Progress:
    """What a checkpoint remembers besides tensors."""

    step: int = 0
    pieces: int = 0  # of both sides, seen so far
    seconds: float = 0.0  # spent training, over all starts
    position: Position = field(default_factory=Position)
    waited: int = 0  # validations since the last improvement
    results: list[dict[str, Any]] = field(default_factory=list)  # one per validation
    scaler: dict[str, Any] = field(default_factory=dict)
    round: int = 0  # of self-training

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Progress":
        """Make it of what a checkpoint's `state.json` says."""
        return cls(**{**values, "position": Position(**values["position"])})

    def best(self, n: int, select: str) -> list[int]:
        """Return the steps of the n best validations, best first; the latest if none measured."""
        ranked = self.results[::-1]
        if measured := [result for result in self.results if select in result]:
            # Of equals the first one measured wins: staying level is no improvement.
            ranked = sorted(measured, key=itemgetter(select), reverse=select != "aer")
        return [result["step"] for result in ranked[:n]]


class Monitor:
    """Reports to people and files; `quiet` leaves the files only.

    Of many processes only the one that is `active` reports anything.
    """

    def __init__(self, run: Path, *, quiet: bool = False, active: bool = True) -> None:
        self.path = run / "log.jsonl"
        self.active = active
        self.quiet = quiet or not active
        self.bar = sys.stderr.isatty() and not self.quiet
        self.board: Any = None
        self.last = 0.0, 0, 0  # time, pieces, step of the last report

    def start(self, progress: Progress) -> None:
        """Drop log lines from beyond the checkpoint that training goes on from."""
        step = progress.step
        self.last = time.monotonic(), progress.pieces, step
        if self.active:
            self.board = open_tensorboard(self.path.parent, step)
        if self.active and self.path.exists():
            lines = self.path.read_text("utf-8").split("\n")
            with atomic_write(self.path) as file:
                file.writelines(f"{line}\n".encode() for line in lines if logged_step(line) <= step)
        if step:
            self.note(f"going on from step {step:,}")

    def note(self, text: str, end: str = "\n") -> None:
        """Print a line for people, over the progress line if there is one."""
        if not self.quiet:
            print(f"\r{text}\x1b[K" if self.bar else text, end=end, file=sys.stderr, flush=True)

    def write(self, record: dict[str, Any]) -> None:
        """Append a record to the log."""
        if not self.active:
            return
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise MxError(f"cannot write {self.path}: {error.strerror}") from error
        if self.board:
            for name, value in record.items():
                if name != "step" and isinstance(value, int | float):
                    self.board.add_scalar(name, value, record["step"])

    def step(self, progress: Progress, terms: dict[str, float], rate: float, steps: int) -> None:
        """Report the terms of the last step, of `steps` there will be."""
        now = time.monotonic()
        seconds = max(now - self.last[0], 1e-9)
        speed = (progress.pieces - self.last[1]) / seconds
        left = (steps - progress.step) * seconds / max(progress.step - self.last[2], 1)
        self.last = (now, progress.pieces, progress.step)
        self.write(
            {
                "step": progress.step,
                **terms,
                "lr": rate,
                "epoch": progress.position.epoch,
                "pieces": progress.pieces,
                "seconds": round(progress.seconds, 3),
                "pieces_per_second": round(speed, 1),
            }
        )
        shown = "  ".join(f"{name} {value:.4f}" for name, value in terms.items())
        rest = f"{speed:,.0f} pieces/s  {timedelta(seconds=int(left))} left"
        line = f"step {progress.step:,}/{steps:,}  {shown}  {rest}"
        self.note(line, end="" if self.bar else "\n")

    def validation(self, progress: Progress, result: dict[str, Any], better: bool) -> None:
        """Report what a validation measured."""
        self.write({**result, "seconds": round(progress.seconds, 3), "pieces": progress.pieces})
        shown = [f"{name} {value:.4f}" for name, value in result.items() if name != "step"]
        best = ["(best)"] * better if shown else ["nothing to validate on: the latest weights"]
        self.note(f"step {progress.step:,}: {'  '.join(shown + best)}")


def logged_step(line: str) -> float:
    """Return the step of a log line; infinity if it was not written to its end."""
    try:
        return json.loads(line)["step"]
    except ValueError:
        return math.inf


def open_tensorboard(run: Path, step: int) -> Any:
    """Return a TensorBoard writer, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)

"""What people see of a run: a progress line on stderr, `log.jsonl`, TensorBoard if installed.

Knows numbers and time; never touches tensors.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engine.errors import MxError
from ...engine.text.files import atomic_write

if TYPE_CHECKING:
    from .train import Progress


class Monitor:
    """Reports to people and files; `quiet` leaves the files only, `active` off nothing at all:
    of many processes only one reports."""

    def __init__(self, run: Path, *, quiet: bool = False, active: bool = True) -> None:
        self.path = run / "log.jsonl"
        self.active = active
        self.quiet = quiet or not active
        self.bar = sys.stderr.isatty() and not self.quiet
        self.board: Any = None
        self.last = 0.0, 0, 0  # time, pieces, step of the last report
        self.steps = 0

    def start(self, progress: "Progress", steps: int) -> None:
        """Drop log lines from beyond the checkpoint that training goes on from."""
        step, self.steps = progress.step, steps
        self.last = time.monotonic(), progress.pieces, step
        if self.active:
            self.board = tensorboard(self.path.parent, step)
        if self.active and self.path.exists():
            lines = self.path.read_text("utf-8").split("\n")
            with atomic_write(self.path) as file:
                file.writelines(f"{line}\n".encode() for line in lines if step_of(line) <= step)
        if step:
            self.note(f"going on from step {step:,}")

    def note(self, text: str) -> None:
        if not self.quiet:
            # Over the progress line, if there is one.
            print(f"\r{text}\x1b[K" if self.bar else text, file=sys.stderr, flush=True)

    def write(self, record: dict[str, Any]) -> None:
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

    def step(self, progress: "Progress", terms: dict[str, float], rate: float) -> None:
        now = time.monotonic()
        seconds = max(now - self.last[0], 1e-9)
        speed = (progress.pieces - self.last[1]) / seconds
        left = (self.steps - progress.step) * seconds / max(progress.step - self.last[2], 1)
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
        if self.quiet:
            return
        shown = "  ".join(f"{name} {value:.4f}" for name, value in terms.items())
        line = (
            f"step {progress.step:,}/{self.steps:,}  {shown}  "
            f"{speed:,.0f} pieces/s  {clock(left)} left"
        )
        print(
            f"\r{line}\x1b[K" if self.bar else line,
            end="" if self.bar else "\n",
            file=sys.stderr,
            flush=True,
        )

    def validation(self, progress: "Progress", result: dict[str, Any], better: bool) -> None:
        self.write({**result, "seconds": round(progress.seconds, 3), "pieces": progress.pieces})
        shown = [f"{name} {value:.4f}" for name, value in result.items() if name != "step"]
        best = ["(best)"] * better if shown else ["nothing to validate on: the latest weights"]
        self.note(f"step {progress.step:,}: {'  '.join(shown + best)}")


def step_of(line: str) -> float:
    """The step of a log line; infinity if it was not written to its end."""
    try:
        return json.loads(line)["step"]
    except ValueError:
        return math.inf


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def tensorboard(run: Path, step: int) -> Any:
    """A TensorBoard writer, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)

"""What people see of a run: a progress line on stderr, `log.jsonl`, TensorBoard if installed.

Knows numbers and time; never touches tensors.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mx.trainer.train import Progress


class Monitor:
    """Reports to people and files; `quiet` leaves the files only."""

    def __init__(self, run: Path, *, quiet: bool = False, board: bool = True) -> None:
        self.path = run / "log.jsonl"
        self.quiet = quiet
        self.bar = sys.stderr.isatty() and not quiet
        self.board = tensorboard(run) if board else None
        self.last: tuple[float, int, int] | None = None  # time, pieces, step of the last report
        self.steps = 0

    def start(self, step: int, steps: int) -> None:
        """Drop log lines from beyond the checkpoint that training goes on from."""
        self.steps = steps
        if self.path.exists():
            lines = self.path.read_text("utf-8").split("\n")
            kept = [
                line for line in lines if line and whole(line) and json.loads(line)["step"] <= step
            ]
            temp = self.path.with_suffix(".tmp")
            temp.write_text("".join(f"{line}\n" for line in kept), "utf-8")
            os.replace(temp, self.path)
        if step:
            self.note(f"going on from step {step:,}")

    def note(self, text: str) -> None:
        if not self.quiet:
            end = "\x1b[K\n" if self.bar else "\n"
            print(f"{text}", end=end, file=sys.stderr, flush=True)

    def write(self, record: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if self.board:
            for name, value in record.items():
                if name != "step" and isinstance(value, int | float):
                    self.board.add_scalar(name, value, record["step"])

    def step(self, progress: "Progress", terms: dict[str, float], rate: float) -> None:
        now = time.monotonic()
        speed, left = 0.0, 0.0
        if self.last and now > self.last[0]:
            speed = (progress.pieces - self.last[1]) / (now - self.last[0])
            pace = (now - self.last[0]) / max(progress.step - self.last[2], 1)
            left = (self.steps - progress.step) * pace
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
        line = (
            f"step {progress.step:,}/{self.steps:,}  loss {terms['loss']:.3f}  "
            f"nll {terms['nll_fwd']:.2f} {terms['nll_bwd']:.2f}  agree {terms['agreement']:.4f}  "
            f"entropy {terms['entropy']:.3f}  {speed:,.0f} pieces/s  {clock(left)} left"
        )
        print(
            f"\r{line}\x1b[K" if self.bar else line,
            end="" if self.bar else "\n",
            file=sys.stderr,
            flush=True,
        )

    def validation(self, progress: "Progress", result: dict[str, Any], better: bool) -> None:
        self.write({**result, "seconds": round(progress.seconds, 3), "pieces": progress.pieces})
        shown = "  ".join(f"{name} {value:.4f}" for name, value in result.items() if name != "step")
        self.note(
            f"{chr(13) if self.bar else ''}step {progress.step:,}: {shown}{'  (best)' if better else ''}"
        )


def whole(line: str) -> bool:
    """Whether a log line was written to its end."""
    try:
        return "step" in json.loads(line)
    except ValueError:
        return False


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def tensorboard(run: Path) -> Any:
    """A TensorBoard writer, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"))

"""Check compiled kernels on a GPU against their NumPy twins, and time them.

Each check is called as its kernel is; `benchmarks/kernels.py` prints what they find.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...types import PackedLinks, WordIds
from .. import reference
from .devices import Buffers, Device, send_arrays
from .kernels.launch import Kernel, KernelArchive, KernelEntry
from .link_finder import LinkFinder

SHAPES = ((1, 1), (3, 19), (512, 32), (64, 256))  # pairs, pieces of a side
# Largest difference from the NumPy twin that is rounding and no mistake.
KERNEL_TOLERANCE = {"symmetrize": 5e-7}
_THRESHOLD = 0.2001


@dataclass(frozen=True)
class KernelCheck:
    """A kernel against its twin on one device."""

    kernel: str
    shape: str
    difference: float  # the largest; inf if there is no comparing
    seconds: float
    work: float  # floating-point operations, or bytes read where there are none
    error: str = ""  # why it did not run

    @property
    def is_good(self) -> bool:
        return not self.error and self.difference <= KERNEL_TOLERANCE[self.kernel.split(".")[0]]

    def __str__(self) -> str:
        if self.error:
            return f"{self.kernel:28} {self.shape:22} FAILED: {self.error}"
        rate = f"{self.work / self.seconds / 1e9:,.1f} G/s"
        return (
            f"{self.kernel:28} {self.shape:22} {self.difference:11.2e} "
            f"{1e6 * self.seconds:7,.0f} us {rate:>13}{'' if self.is_good else '  WRONG'}"
        )


TABLE_HEAD = f"{'kernel':28} {'shape':22} {'difference':>11} {'time':>10} {'rate':>13}"


def check_kernels(
    device: Device,
    archive: KernelArchive,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    repeats: int = 20,
    rounds: int = 5,
) -> Iterator[KernelCheck]:
    """Check every kernel of the archive on small, ragged and large batches."""
    checks = {"symmetrize": check_symmetrize}
    device.make_current()
    for entry in archive.entries.values():
        if entry.kernel not in checks:  # the student's: checked by the links they lead to
            continue
        for batch, size in shapes:
            try:
                with closing(KernelBench(device, archive, entry, repeats, rounds)) as bench:
                    difference, seconds, work = checks[entry.kernel](bench, batch, size)
                reason = ""
            except Exception as error:  # the others are still worth a try
                difference, seconds, work = float("inf"), 0.0, 0.0
                reason = f"{type(error).__name__}: {error}"
            shape = f"{batch} pairs of {size}"
            yield KernelCheck(entry.name, shape, difference, seconds, work, reason)


class KernelBench:
    """One kernel with memory and a stream for it."""

    def __init__(
        self,
        device: Device,
        archive: KernelArchive,
        entry: KernelEntry,
        repeats: int,
        rounds: int,
    ) -> None:
        self.device, self.entry, self.repeats, self.rounds = device, entry, repeats, rounds
        self.kernel = Kernel(device.driver, archive, entry)
        self.buffers = Buffers(device)
        self.stream = device.driver.new_stream()

    def close(self) -> None:
        self.device.driver.wait_stream(self.stream)
        self.buffers.close()
        self.kernel.close()
        self.device.driver.free_stream(self.stream)

    def send_inputs(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, int]:
        return send_arrays(self.buffers, "inputs", arrays, self.stream)

    def time_launches(self, grid: Sequence[int], arguments: Sequence[int | float]) -> float:
        return self.time_calls(lambda: self.kernel.launch(grid, arguments, self.stream))

    def time_calls(self, start: Callable[[], Any]) -> float:
        """Return the seconds of one call, the median of all rounds, after a warm-up."""
        start()
        self.device.driver.wait_stream(self.stream)
        found = []
        for _ in range(self.rounds):
            began = time.perf_counter()
            for _ in range(self.repeats):
                start()
            self.device.driver.wait_stream(self.stream)
            found.append((time.perf_counter() - began) / self.repeats)
        return sorted(found)[self.rounds // 2]


# ---- one kernel each: the largest difference, seconds, work ----


def check_symmetrize(bench: KernelBench, batch: int, size: int) -> tuple[float, float, float]:
    """Compare links, their scores and the sentences' scores; sides and their words differ."""
    rng = np.random.default_rng(1)
    # Coarse weights: no score is so near the threshold that rounding would decide.
    n_tgt = size + size // 3
    coarse = np.round(rng.random((2, batch, size, n_tgt), np.float32) ** 6 * 256) / 256
    fwd, bwd = coarse.astype(np.float32)
    src, tgt = (
        np.repeat(np.arange(n, dtype=np.int32)[None] // span, batch, axis=0)
        for n, span in ((size, 2), (n_tgt, 3))
    )
    ids = WordIds(src, tgt, np.tile(np.array([2, 3], np.int32), (batch, 1)))
    given = bench.send_inputs({"fwd": fwd, "bwd": bwd})
    finder, weights = LinkFinder(bench.device, bench.kernel), (given["fwd"], given["bwd"])

    def find_links() -> PackedLinks:
        return finder.find_links(bench.buffers, weights, ids, _THRESHOLD, bench.stream)

    seconds = bench.time_calls(find_links)
    found = find_links()
    wanted = reference.symmetrize(fwd, bwd, src, tgt, _THRESHOLD)
    work = 8.0 * fwd.size
    if found.counts.tolist() != wanted.counts.tolist():
        return float("inf"), seconds, work
    # Pairs are listed as they finished on the GPU. With starts [2, 0] and counts [1, 2] the places
    # of the links in the pairs' own order are [2, 0, 1].
    before = np.cumsum(found.counts) - found.counts
    order = np.repeat(found.starts - before, found.counts) + np.arange(len(found.src))
    links = np.stack([found.src, found.tgt])[:, order]
    if not np.array_equal(links, [wanted.src, wanted.tgt]):
        return float("inf"), seconds, work
    differences = [found.scores[order] - wanted.scores, found.sentence - wanted.sentence]
    return _largest_absolute(np.concatenate(differences)), seconds, work


def _largest_absolute(differences: npt.NDArray[Any]) -> float:
    worst = float(np.abs(differences).max(initial=0.0))
    return worst if np.isfinite(worst) else float("inf")

"""Build and keep TensorRT plans: a bundle's graph compiled once for a kind of GPU.

Knows length classes and the cache; TensorRT itself is called in `tensorrt_api` only. Messages to
the user call a plan an engine, as NVIDIA's documentation mostly does.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from ...bundle.bundle import Bundle
from ...errors import BackendError
from ...storage import atomic_write, make_cache_folder, wait_for_lock
from ..backends import TENSORRT_TITLES, pad_lengths
from ..model_graph import link_outputs
from .cuda_driver import OutOfMemory
from .devices import Device
from .lanes import GRAIN
from .tensorrt_api import BuildProgress, Plan, Shape, ShapeProfile, TensorrtApi

MOST_WORKSPACE = 1 << 30  # bytes; our largest matrix products want far less
_MAGIC = b"mx-engine 1\n"


# ---- length classes ----


@dataclass(frozen=True)
class LengthClass:
    """Batches whose longer side has up to `length` places, of up to `rows` pairs."""

    length: int
    rows: int

    def shape_profile(self) -> ShapeProfile:
        """Return the shapes of the class for TensorRT, which tunes for the usual ones."""
        rows = max(1, self.rows // 2)
        usual = max(1, 3 * self.length // 4)
        shapes: dict[str, tuple[Shape, Shape, Shape]] = {}
        for side in ("src", "tgt"):
            shapes[side] = (1, 1), (rows, usual), (self.rows, self.length)
            shapes[f"{side}_lengths"] = (1,), (rows,), (self.rows,)
        return shapes


def split_into_classes(max_length: int, tokens: int) -> list[LengthClass]:
    """Return length classes, each twice as long as the one before.

    TensorRT tunes and sizes memory for each by itself, so short sentences come in many rows and
    long ones in few.
    """
    longest = int(pad_lengths(np.array([max_length]), GRAIN)[0])  # as far as padding can go
    lengths = [size for size in (32, 64, 128, 256, 512, 1024) if size < longest] + [longest]
    found, before = [], 15  # batches of shorter sentences are no larger than those of 16
    for length in lengths:
        found.append(LengthClass(length, max(1, tokens // (before + 1))))
        before = length
    return found


def build_ahead(
    graph: bytes, max_length: int, tokens: int, capabilities: Sequence[str], api: TensorrtApi
) -> bytes:
    """Build a plan for these GPUs, on a machine without any; for TensorRT for RTX only."""
    profiles = [one.shape_profile() for one in split_into_classes(max_length, tokens)]
    plan, _ = api.build_plan(graph, profiles, capabilities=capabilities)
    return plan


# ---- the cache ----


class PlanCache:
    """Plans by what they were made of and for: bundle, dtype, GPU, TensorRT, profiles."""

    def __init__(self, folder: Path | None = None) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.folder = folder or Path(home) / "mx-align"

    def key_path(self, **key: object) -> Path:
        """Return the file that belongs to a key."""
        text = json.dumps(key, sort_keys=True, default=str)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.engine"

    def read(self, path: Path) -> bytes | None:
        """Return what was kept, or None if there is nothing whole."""
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head, plan = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
        return plan if head == _MAGIC + hashlib.sha256(plan).digest() else None

    def write(self, path: Path, plan: bytes) -> None:
        """Keep a plan; one that cannot be kept is only built again next time."""
        try:
            make_cache_folder(self.folder)
            with atomic_write(str(path)) as file:
                file.write(_MAGIC + hashlib.sha256(plan).digest() + plan)
        except OSError as error:
            print_note(f"the engine cannot be kept in {self.folder} ({error.strerror}); going on")

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Let one process at a time build the plan of a path; the others wait, and say so."""
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                note = "another process builds this engine; waiting for it"
                held.enter_context(
                    wait_for_lock(path.with_suffix(".lock"), lambda: print_note(note))
                )
            except OSError:
                pass  # a folder that cannot be written keeps no engine either
            yield


def print_note(line: str) -> None:
    """Tell the user what takes minutes or did not work, on stderr."""
    print(f"mx-align: {line}", file=sys.stderr, flush=True)


@contextmanager
def show_progress(title: str) -> Iterator[BuildProgress]:
    """Print the title; on a terminal also a line that changes with each step, and goes at the
    end."""
    print_note(title)

    def show_step(phase: str, step: int, of: int) -> None:
        percent = 100 * step // of if of else 0
        rewrite_line(f"{phase[:60]}: {percent} % ")

    def rewrite_line(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    try:
        yield show_step
    finally:
        rewrite_line("")


# ---- the plan for a device ----


@dataclass(frozen=True)
class LoadedPlan:
    """A plan of the wanted kind on a device, and how it came about."""

    plan: Plan
    classes: list[LengthClass]
    size: int  # bytes of the plan, about those of its weights
    weights: tuple[str, str]  # outputs that links are made of

    @property
    def memory(self) -> int:
        """Bytes that a run needs at most, beside weights, inputs and outputs."""
        return max(self.plan.memory_size(i) for i in range(len(self.classes)))


@dataclass
class PlanMaker:
    """Finds or builds the plan of a bundle for a device."""

    api: TensorrtApi
    bundle: Bundle
    dtype: str
    classes: list[LengthClass]
    cache: PlanCache
    may_build: bool = True

    def make_plan(self, device: Device) -> LoadedPlan:
        """Return the plan from the cache, or build it there, one process at a time.

        BackendError if it is not in the cache and may not be built.
        """
        graph = self.bundle.read_graph(self.dtype)
        path = self.cache.key_path(
            bundle=self.bundle.digest, read=self.bundle.manifest.read, dtype=self.dtype,
            gpu=device.name, capability=device.capability,
            package=self.api.package, version=self.api.version,
            classes=[astuple(one) for one in self.classes], workspace=_workspace_size(device),
        )  # fmt: skip
        kept = self._load_kept(path, graph)
        if kept is not None:
            return kept
        if not self.may_build:
            name = "trt-rtx" if self.api.package == "tensorrt_rtx" else "trt"
            raise BackendError(
                f"{TENSORRT_TITLES[self.api.package]}: its engine of this model is not built yet, "
                f"which takes some minutes, once; --backend {name} builds it"
            )
        with self.cache.lock(path):
            # Another process may have built it while this one waited.
            kept = self._load_kept(path, graph)
            if kept is not None:
                return kept
            data = self._build_plan(device, graph)
            loaded = self._load_plan(data, graph)
            self.cache.write(path, data)
        return loaded

    def _load_kept(self, path: Path, graph: bytes) -> LoadedPlan | None:
        kept = self.cache.read(path)
        try:
            return None if kept is None else self._load_plan(kept, graph)
        except OutOfMemory:
            raise
        except BackendError as error:
            print_note(f"the kept engine is of no use ({error}); building it again")
            return None

    def _load_plan(self, data: bytes, graph: bytes) -> LoadedPlan:
        plan = self.api.load_plan(data)
        return LoadedPlan(plan, self.classes, len(data), link_outputs(graph))

    def _build_plan(self, device: Device, graph: bytes) -> bytes:
        timings = self.cache.key_path(
            timings=1, gpu=device.name, capability=device.capability, version=self.api.version
        )
        title = (
            f"building the {self.dtype} engine of {self.bundle.name} for {device.name}, once; "
            "this takes some minutes"
        )
        is_rtx = self.api.package != "tensorrt"
        with show_progress(title) as progress:
            plan, learnt = self.api.build_plan(
                graph,
                [one.shape_profile() for one in self.classes],
                workspace=_workspace_size(device),
                memory=device.limit,
                capabilities=["SM{}{}".format(*device.capability)] if is_rtx else (),
                timings=self.cache.read(timings) or b"",
                progress=progress,
            )
        if learnt:
            self.cache.write(timings, learnt)
        return plan


def _workspace_size(device: Device) -> int:
    """Return a power of two: what is free differs a little from start to start, and the plan that
    was kept must do."""
    return min(MOST_WORKSPACE, 1 << max(1, device.limit // 2).bit_length() - 1)

"""TensorRT: the bundle's graph built once for this GPU, kept, and run on several streams.
Knows profiles, the engine cache and lanes; TensorRT itself is called in `tensorrt_api` only, the
driver in `cuda_driver` only."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from ...align.batching import padded
from ...bundle.bundle import Bundle
from ...errors import BackendError, BundleError
from ...text.files import atomic_write
from ...types import Batch, PackedLinks, WordIds
from .cuda_driver import Driver, OutOfMemory
from .devices import (
    Arrays,
    Buffers,
    Closes,
    Device,
    GpuOptions,
    Gpus,
    LinkFinder,
    check_outputs,
    close_all,
    described,
    fetch,
    link_finder,
    open_devices,
    send,
)
from .kernel_ops import count, link_weights, mark
from .kernels.launch import find_archive
from .tensorrt_api import TITLES, Api, Engine, Plugins, Profile, check_installed

LANES = 2  # streams of a device: one copies while the other computes
MOST_TOKENS, LEAST_TOKENS = 16384, 1024  # places on the longer side of a batch
MOST_WORKSPACE = 1 << 30  # bytes; our largest matrix products want far less
_MAGIC = b"mx-engine 1\n"


# ---- length classes ----


@dataclass(frozen=True)
class Class:
    """Batches whose longer side has up to `length` places, of up to `rows` pairs."""

    length: int
    rows: int


def classes(max_length: int, tokens: int) -> list[Class]:
    """Length classes, each twice as long as the one before. TensorRT tunes and sizes memory for
    each by itself, so short sentences come in many rows and long ones in few."""
    longest = _rounded(max_length)
    lengths = [size for size in (32, 64, 128, 256, 512, 1024) if size < longest] + [longest]
    found, before = [], 15  # batches of shorter sentences are no larger than those of 16
    for length in lengths:
        found.append(Class(length, max(1, tokens // (before + 1))))
        before = length
    return found


def _rounded(length: int) -> int:
    """As far as padding can go."""
    grain = Gpus.grain
    return -(-int(padded(np.array([length]))[0]) // grain) * grain


def profile(one: Class) -> Profile:
    """The shapes of a class for TensorRT, which tunes for the usual ones."""
    rows = max(1, one.rows // 2)
    usual = max(1, 3 * one.length // 4)
    shapes: dict[str, Any] = {}
    for side in ("src", "tgt"):
        shapes[side] = (1, 1), (rows, usual), (one.rows, one.length)
        shapes[f"{side}_lengths"] = (1,), (rows,), (one.rows,)
    return Profile(shapes)


# ---- the engine cache ----


class Cache:
    """Engines by what they were made of and for: bundle, precision, GPU, TensorRT, profiles."""

    def __init__(self, folder: Path | None = None) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.folder = folder or Path(home) / "mx-align"

    def path(self, **key: object) -> Path:
        text = json.dumps(key, sort_keys=True, default=str)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.engine"

    def read(self, path: Path) -> bytes | None:
        """What was kept, or None if there is nothing whole."""
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head, engine = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
        return engine if head == _MAGIC + hashlib.sha256(engine).digest() else None

    def write(self, path: Path, engine: bytes) -> None:
        """Keep an engine; one that cannot be kept is only built again next time."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(str(path)) as file:
                file.write(_MAGIC + hashlib.sha256(engine).digest() + engine)
        except OSError as error:
            say(f"the engine cannot be kept in {self.folder} ({error.strerror}); going on")


def say(line: str) -> None:
    print(f"mx-align: {line}", file=sys.stderr, flush=True)


class _Progress:
    """One line that changes, on a terminal; else only the first."""

    def __init__(self, title: str) -> None:
        self.shown = -1
        self.title = title
        say(title)

    def __call__(self, phase: str, step: int, of: int) -> None:
        percent = 100 * step // of if of else 0
        if sys.stderr.isatty() and percent != self.shown:
            self.shown = percent
            print(f"\r{phase[:60]}: {percent} % \x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# ---- one device ----


@dataclass(frozen=True)
class Made:
    """An engine of the wanted kind on a device, and how it came about."""

    engine: Engine
    classes: list[Class]
    size: int  # bytes of the engine, about those of its weights
    weights: tuple[str, str]  # outputs that links are made of
    note: str


class Maker:
    """Finds or builds the engine of a bundle for a device."""

    def __init__(
        self, api: Api, bundle: Bundle, precision: str, tokens: int, cache: Cache | None = None
    ) -> None:
        self.api, self.bundle, self.precision, self.tokens = api, bundle, precision, tokens
        self.cache = cache or Cache()
        self.classes = classes(bundle.max_length, tokens)

    def make(self, device: Device) -> Made:
        """The engine, from the cache if it is there and whole, with plugins if they work."""
        graph = self.bundle.graph(self.precision)
        try:
            plugins = self._plugins(device, graph)
            if plugins is not None:
                return self._get(device, graph, plugins)
        except OutOfMemory:
            raise
        except BackendError as error:
            say(f"our kernels do not fit into this engine ({error}); doing without them")
        return self._get(device, graph, None)

    def _plugins(self, device: Device, graph: bytes) -> Plugins | None:
        """Ops of the graph that the bundle has a kernel for on this device."""
        if self.api.package != "tensorrt" or self.precision != "fp16":
            return None
        archive = find_archive(self.bundle, device.capability)
        if archive is None:
            return None
        found = self.api.register(archive, "fp16")
        ops = frozenset(op for op in found.ops if count(graph, op))
        return Plugins(found.namespace, ops) if ops else None

    def _get(self, device: Device, graph: bytes, plugins: Plugins | None) -> Made:
        note = f"plugins {', '.join(sorted(plugins.ops))}" if plugins else "without plugins"
        path = self.cache.path(
            bundle=self.bundle.digest, precision=self.precision, plugins=note, gpu=device.name,
            capability=device.capability, package=self.api.package, version=self.api.version,
            classes=self.classes, workspace=_workspace(device),
        )  # fmt: skip
        kept = self.cache.read(path)
        if kept == b"":
            raise BackendError(f"they were refused before; remove {path} to try again")
        if kept is not None:
            try:
                return self._made(kept, graph, note)
            except OutOfMemory:
                raise
            except BackendError as error:
                say(f"the kept engine is of no use ({error}); building it again")
        try:
            engine = self._build(device, graph, plugins)
            made = self._made(engine, graph, note)
        except OutOfMemory:
            raise
        except BackendError:
            if plugins is not None:  # minutes that the next start need not lose
                self.cache.write(path, b"")
            raise
        self.cache.write(path, engine)
        return made

    def _made(self, engine: bytes, graph: bytes, note: str) -> Made:
        loaded = self.api.load(engine)
        return Made(loaded, self.classes, len(engine), link_weights(graph), note)

    def _build(self, device: Device, graph: bytes, plugins: Plugins | None) -> bytes:
        timings = self.cache.path(
            timings=1, gpu=device.name, capability=device.capability, version=self.api.version
        )
        progress = _Progress(
            f"building the {self.precision} engine of {self.bundle.name} for {device.name}, once; "
            "this takes some minutes"
        )
        marked = mark(graph, plugins.ops, plugins.namespace) if plugins else graph
        try:
            engine, learnt = self.api.build(
                marked,
                [profile(one) for one in self.classes],
                workspace=_workspace(device),
                memory=device.limit,
                capabilities=_capabilities(self.api, device),
                timings=self.cache.read(timings) or b"",
                plugins=plugins is not None,
                progress=progress,
            )
        finally:
            progress.end()
        if learnt:
            self.cache.write(timings, learnt)
        return engine


def _workspace(device: Device) -> int:
    """A power of two: what is free differs a little from start to start, and the engine that was
    kept must do."""
    return min(MOST_WORKSPACE, 1 << max(1, device.limit // 2).bit_length() - 1)


def _capabilities(api: Api, device: Device) -> Sequence[str]:
    return () if api.package == "tensorrt" else ["SM{}{}".format(*device.capability)]


class TrtLane:
    """A stream of a device with its own context and buffers."""

    def __init__(self, device: Device, made: Made, finder: LinkFinder | None) -> None:
        self.device, self.classes, self.finder = device, made.classes, finder
        self.finds_links = finder is not None
        self._engine = made.engine
        self._outputs = made.engine.outputs()
        self._weights = made.weights
        self._context = made.engine.context()
        self._wide = made.engine.wide("src")
        self._memory = max(made.engine.memory(i) for i in range(len(made.classes)))
        self._buffers = Buffers(device)
        self._stream = device.driver.new_stream()

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays:
        check_outputs(outputs, self._outputs)
        self.device.use()
        placed = self._start(batch)
        wanted = {name: (placed[name], _shape(name, batch)) for name in outputs}
        return fetch(self._buffers, wanted, self._stream)

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        assert self.finder is not None
        self.device.use()
        placed = self._start(batch)
        weights = placed[self._weights[0]], placed[self._weights[1]]
        return self.finder.find(self._buffers, weights, words, threshold, self._stream)

    def _start(self, batch: Batch) -> dict[str, int]:
        """Start the model on the stream; where each output will be."""
        number = self._class(batch)
        kind = np.int64 if self._wide else np.int32
        names = ("src", "src_lengths", "tgt", "tgt_lengths")
        inputs = {name: getattr(batch, name).astype(kind) for name in names}
        memory = self._buffers.on_device("engine", self._memory)
        outputs = {
            name: self._buffers.on_device(name, 4 * int(np.prod(_shape(name, batch))))
            for name in self._outputs
        }
        given = send(self._buffers, "inputs", inputs, self._stream)
        shapes = {name: array.shape for name, array in inputs.items()}
        addresses = {**given, **outputs}
        self._context.run(number, shapes, addresses, (memory, self._memory), self._stream)
        return outputs

    def _class(self, batch: Batch) -> int:
        """The class of a batch; more rows than it allows are treated as too much memory."""
        size = max(batch.src.shape[1], batch.tgt.shape[1])
        number = next((i for i, one in enumerate(self.classes) if size <= one.length), None)
        if number is None:
            raise BackendError(f"the engine takes {self.classes[-1].length} pieces, not {size}")
        most = self.classes[number].rows
        if len(batch.src) > most:
            raise OutOfMemory(f"the engine takes {most} pairs of {size} pieces at once")
        return number

    def drop(self) -> None:
        self.device.use()
        self.device.driver.wait(self._stream)
        self._buffers.drop()

    def close(self) -> None:
        self.device.use()
        self.device.driver.wait(self._stream)
        self._buffers.close()
        self.device.driver.free_stream(self._stream)


def _shape(name: str, batch: Batch) -> tuple[int, ...]:
    rows, n_src = batch.src.shape
    n_tgt = batch.tgt.shape[1]
    return {"fwd_null": (rows, n_tgt), "bwd_null": (rows, n_src)}.get(name, (rows, n_src, n_tgt))


# ---- opening ----


def open_lanes(device: Device, maker: Maker) -> tuple[list[TrtLane], list[Closes], str]:
    """The lanes of one device, as many as its memory allows; what to close after them."""
    made = maker.make(device)
    finder, why = link_finder(device, maker.bundle)
    owned: list[Closes] = [finder] if finder else []
    lanes: list[TrtLane] = []
    device.reserve(made.size)
    try:
        one = max(made.engine.memory(i) for i in range(len(made.classes)))
        room = device.limit - device.used
        if one > room:
            raise OutOfMemory(
                f"the engine needs {one >> 20:,} MB, of {max(0, room) >> 20:,} MB left; allow more "
                "with --gpu-memory"
            )
        for _ in range(max(1, min(LANES, room // (2 * one) if one else LANES))):
            lanes.append(TrtLane(device, made, finder))
    except BaseException:
        close_all([*owned, *lanes])
        device.reserve(-made.size)
        raise
    note = f"{made.note}, {'links on the GPU' if finder else f'links on the CPU: {why}'}"
    return lanes, owned, note


def tokens_for(bundle: Bundle, limit: int) -> int:
    """Batches that will fit into so much memory, by a generous guess: TensorRT says what an
    engine really needs only when it is built."""
    model = bundle.manifest.model
    width, ff = int(model.get("width", 512)), int(model.get("ff", 2048))
    per_token = 4 * (24 * width + 4 * ff) + 48 * bundle.max_length
    fits = limit // (2 * LANES * per_token)
    tokens = MOST_TOKENS
    while tokens > LEAST_TOKENS and tokens > fits:
        tokens //= 2
    return tokens


def choose_precision(bundle: Bundle, precision: str | None) -> str:
    """Half precision unless asked for otherwise; TensorRT does not read our int8 graphs."""
    if precision is None:
        return next((p for p in ("fp16", "fp32") if p in bundle.precisions), "fp32")
    if precision == "int8":
        raise BackendError("TensorRT does not run int8 graphs of a bundle; give --dtype fp16")
    if precision not in bundle.precisions:
        raise BundleError(
            f"{bundle.path} has no {precision} graph; it has {', '.join(bundle.precisions)}"
        )
    return precision


def open_trt(
    bundle: Bundle,
    precision: str | None,
    threads: int,
    options: GpuOptions | None = None,
    *,
    package: str = "tensorrt",
    api: Api | None = None,
    driver: Driver | None = None,
    cache: Cache | None = None,
) -> Gpus:
    """TensorRT on all GPUs, or those of the options."""
    if api is None:
        check_installed(package)
    devices = open_devices(options or GpuOptions(), driver)
    try:
        api = api or Api(package)  # slow to load: after all that can fail fast
        precision = choose_precision(bundle, precision)
        tokens = min(tokens_for(bundle, device.limit) for device in devices)
        lanes, owned, note, tokens = _open_all(devices, api, bundle, precision, tokens, cache)
    except BaseException:
        close_all(devices)
        raise
    about = f"{TITLES[package]} {api.version}, {described(devices)}, {precision}, {note}"
    name = "trt" if package == "tensorrt" else "trt-rtx"
    return Gpus(name, precision, lanes, tokens, about, [*devices, *owned])


def _open_all(
    devices: Sequence[Device],
    api: Api,
    bundle: Bundle,
    precision: str,
    tokens: int,
    cache: Cache | None,
) -> tuple[list[TrtLane], list[Closes], str, int]:
    """The lanes of all devices, with batches halved until their engines fit."""
    while True:
        found: list[list[TrtLane]] = []
        owned: list[Closes] = []
        notes: list[str] = []
        maker = Maker(api, bundle, precision, tokens, cache)
        try:
            for device in devices:
                device.use()
                lanes, more, note = open_lanes(device, maker)
                found.append(lanes)
                owned += more
                notes.append(note)
        except BaseException as error:
            close_all([*owned, *(lane for lanes in found for lane in lanes)])
            if not isinstance(error, OutOfMemory) or tokens <= LEAST_TOKENS:
                raise
            say(f"{error}; trying with half the batch")
            tokens //= 2
            continue
        # Devices take turns, so that the first batches reach all of them.
        mixed = [lane for turn in zip_longest(*found) for lane in turn if lane is not None]
        return mixed, owned, " | ".join(dict.fromkeys(notes)), tokens

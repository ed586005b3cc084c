"""Run a model on GPUs with TensorRT, or TensorRT for RTX: plans on several streams.

How plans are built and kept is in `tensorrt_plans`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import zip_longest

import numpy as np

from ...bundle.bundle import Bundle
from ...errors import BackendError
from ...types import Batch, PackedLinks, WordIds
from ..backends import TENSORRT_PACKAGES, TENSORRT_TITLES, GpuOptions
from ..model_graph import INPUTS
from ..onnx_cpu import check_outputs
from .cuda_driver import Driver, OutOfMemory
from .devices import Device, describe_devices, fetch_arrays, open_devices, send_arrays
from .lanes import LANES, Arrays, GpuBackend, Lane
from .link_finder import LinkFinder, open_link_finder
from .tensorrt_api import TensorrtApi
from .tensorrt_plans import LoadedPlan, PlanCache, PlanMaker, print_note, split_into_classes

# Places on the longer side of a batch: hundreds of sentences keep a GPU busy. Judged, not measured.
MOST_TOKENS, LEAST_TOKENS = 16384, 1024


class TensorrtLane(Lane):
    """A stream of a device with its own context of the plan."""

    def __init__(self, device: Device, loaded: LoadedPlan, finder: LinkFinder | None) -> None:
        self._classes = loaded.classes
        self._weights = loaded.weights
        self._outputs = loaded.plan.output_names()
        self._context = loaded.plan.new_context()
        self._input_type = np.int64 if loaded.plan.takes_int64("src") else np.int32
        self._memory = loaded.memory
        super().__init__(device, finder)

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays:
        check_outputs(outputs, set(self._outputs))
        placed = self._start_run(batch)
        wanted = {name: (placed[name], _output_shape(name, batch)) for name in outputs}
        return fetch_arrays(self._buffers, wanted, self._stream)

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        assert self.finder is not None
        placed = self._start_run(batch)
        weights = placed[self._weights[0]], placed[self._weights[1]]
        return self.finder.find_links(self._buffers, weights, words, threshold, self._stream)

    def _start_run(self, batch: Batch) -> dict[str, int]:
        """Start the model on the stream; return where each output will be."""
        self.device.make_current()
        number = self._class_of(batch)
        inputs = {name: getattr(batch, name).astype(self._input_type) for name in INPUTS}
        memory = self._buffers.on_device("engine", self._memory)
        outputs = {
            name: self._buffers.on_device(name, 4 * int(np.prod(_output_shape(name, batch))))
            for name in self._outputs
        }
        given = send_arrays(self._buffers, "inputs", inputs, self._stream)
        shapes = {name: array.shape for name, array in inputs.items()}
        addresses = {**given, **outputs}
        self._context.run(number, shapes, addresses, (memory, self._memory), self._stream)
        return outputs

    def _class_of(self, batch: Batch) -> int:
        """Return the class of a batch; more rows than it allows count as too much memory."""
        size = max(batch.src.shape[1], batch.tgt.shape[1])
        number = next((i for i, one in enumerate(self._classes) if size <= one.length), None)
        if number is None:
            raise BackendError(f"the engine takes {self._classes[-1].length} pieces, not {size}")
        most = self._classes[number].rows
        if len(batch.src) > most:
            raise OutOfMemory(f"the engine takes {most} pairs of {size} pieces at once")
        return number


def _output_shape(name: str, batch: Batch) -> tuple[int, ...]:
    rows, n_src = batch.src.shape
    n_tgt = batch.tgt.shape[1]
    return {"fwd_null": (rows, n_tgt), "bwd_null": (rows, n_src)}.get(name, (rows, n_src, n_tgt))


# ---- opening ----


def open_tensorrt(
    bundle: Bundle,
    dtype: str | None,
    options: GpuOptions,
    name: str = "trt",
    *,
    may_build: bool = True,
    api: TensorrtApi | None = None,
    driver: Driver | None = None,
    cache: PlanCache | None = None,
) -> GpuBackend:
    """Open a bundle on all GPUs, or those of the options, with the backend "trt" or "trt-rtx".

    BackendError if there is no engine yet and it may not be built now.
    """
    package = TENSORRT_PACKAGES[name]
    with ExitStack() as opened:
        devices = open_devices(options, opened, driver)
        api = api or TensorrtApi(package)  # slow to load: after all that can fail fast
        dtype = bundle.choose_dtype(dtype, name)
        tokens = min(choose_tokens(bundle, device.limit) for device in devices)
        while True:  # with batches halved until the plans of all devices fit
            classes = split_into_classes(bundle.max_length, tokens)
            maker = PlanMaker(api, bundle, dtype, classes, cache or PlanCache(), may_build)
            try:
                with ExitStack() as tried:
                    found = [_open_lanes(device, maker, tried) for device in devices]
                    opened.enter_context(tried.pop_all())
                break
            except OutOfMemory as error:
                if tokens <= LEAST_TOKENS:
                    raise
                print_note(f"{error}; trying with half the batch")
                tokens //= 2
        # Devices take turns, so that the first batches reach all of them.
        turns = zip_longest(*(lanes for lanes, _ in found))
        lanes = [lane for turn in turns for lane in turn if lane is not None]
        about = describe_devices(devices, dtype, [note for _, note in found])
        about = f"{TENSORRT_TITLES[package]} {api.version}, {about}"
        return GpuBackend(name, dtype, lanes, tokens, about, opened.pop_all())


def choose_tokens(bundle: Bundle, limit: int) -> int:
    """Return a size of batches that will fit into so much memory, by a generous guess.

    TensorRT says what a plan really needs only when it is built.
    """
    model = bundle.manifest.model
    width, ff = int(model.get("width", 512)), int(model.get("ff", 2048))
    # Of each place, in float32: vectors of the network's width, of its feed-forward layers, and
    # rows of scores for all heads.
    per_token = 4 * (24 * width + 4 * ff) + 48 * bundle.max_length
    fits = limit // (2 * LANES * per_token)
    tokens = MOST_TOKENS
    while tokens > LEAST_TOKENS and tokens > fits:
        tokens //= 2
    return tokens


def _open_lanes(
    device: Device, maker: PlanMaker, opened: ExitStack
) -> tuple[list[TensorrtLane], str]:
    """Open the lanes of one device, as many as its memory allows; also tell how they compute."""
    device.make_current()
    loaded = maker.make_plan(device)
    finder, note = open_link_finder(device, maker.bundle, opened)
    device.reserve(loaded.size)
    opened.callback(device.reserve, -loaded.size)
    room = device.limit - device.used
    if loaded.memory > room:
        raise OutOfMemory(
            f"the engine needs {loaded.memory >> 20:,} MB, of {max(0, room) >> 20:,} MB left; "
            "allow more with --gpu-memory"
        )
    # Twice: inputs, outputs and links need buffers, too.
    count = min(LANES, room // (2 * loaded.memory) if loaded.memory else LANES)
    lanes = [
        opened.enter_context(closing(TensorrtLane(device, loaded, finder)))
        for _ in range(max(1, count))
    ]
    return lanes, note

"""ONNX Runtime on GPUs: outputs stay on the device, where our kernel turns them into links.
Knows I/O binding; sessions are made by `ort`, and memory and devices are the matter of `gpu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...bundle.bundle import Bundle
from ...errors import BackendError, BundleError
from ...types import Batch, PackedLinks, WordIds
from ..onnx_cpu import VERSION, cuda_session, is_full, need_cuda
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
    link_finder,
    open_devices,
)
from .kernel_ops import link_weights

BATCH_TOKENS = 16384
LANES = 2
LINKS_SHARE = 8  # one part in so many of the memory is for links, the rest ONNX Runtime's
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


class OrtLane:
    """One stream's worth of calls of a session that the lanes of a device share."""

    def __init__(
        self,
        session: Any,
        device: Device,
        finder: LinkFinder | None,
        weights: tuple[str, str] = ("fwd", "bwd"),
        where: str = "cuda",
    ) -> None:
        self.device, self.finder = device, finder
        self._weights = weights
        self._outputs = {node.name for node in session.get_outputs()}
        self.finds_links = finder is not None
        self._session = session
        self._where = where, device.number if where == "cuda" else 0
        self._types = {node.name: _TYPES[node.type] for node in session.get_inputs()}
        self._buffers = Buffers(device)
        self._stream = device.driver.new_stream()

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays:
        values = self._run(batch, outputs)
        return {name: value.numpy() for name, value in values.items()}

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        assert self.finder is not None
        values = self._run(batch, tuple(dict.fromkeys(self._weights)))
        self.device.use()
        fwd, bwd = self._weights
        weights = values[fwd].data_ptr(), values[bwd].data_ptr()
        return self.finder.find(self._buffers, weights, words, threshold, self._stream)

    def _run(self, batch: Batch, outputs: Sequence[str]) -> dict[str, Any]:
        """The outputs as values of ONNX Runtime, on the device and complete."""
        check_outputs(outputs, self._outputs)
        binding = self._session.io_binding()
        try:
            for name, kind in self._types.items():  # copied to the device here
                binding.bind_cpu_input(name, np.ascontiguousarray(getattr(batch, name), kind))
            for name in outputs:
                binding.bind_output(name, *self._where)
            self._session.run_with_iobinding(binding)
            binding.synchronize_outputs()  # our kernel runs on another stream
        except Exception as error:  # ONNX Runtime has no common class of its own errors
            if is_full(str(error)):
                # The reason stands at the end, behind the names of node and source file.
                raise OutOfMemory(str(error).split("\n")[0][-120:]) from error
            raise
        return dict(zip(outputs, binding.get_outputs(), strict=True))

    def drop(self) -> None:
        self.device.use()
        self.device.driver.wait(self._stream)  # a copy may be under way
        self._buffers.drop()

    def close(self) -> None:
        self.device.use()
        self.device.driver.wait(self._stream)
        self._buffers.close()
        self.device.driver.free_stream(self._stream)


def open_cuda(
    bundle: Bundle,
    precision: str | None,
    threads: int,
    options: GpuOptions | None = None,
    *,
    driver: Driver | None = None,
) -> Gpus:
    """ONNX Runtime on all GPUs, or those of the options: a session for each, two calls at once."""
    need_cuda()
    precision = _precision(bundle, precision)
    graph = bundle.graph(precision)
    devices = open_devices(options or GpuOptions(), driver)
    owned: list[Closes] = list(devices)
    lanes: list[OrtLane] = []
    notes: list[str] = []
    try:
        for device in devices:
            device.use()
            finder, why = link_finder(device, bundle)
            owned += [finder] if finder else []
            notes.append("links on the GPU" if finder else f"links on the CPU: {why}")
            memory = device.limit - (device.limit // LINKS_SHARE if finder else 0)
            device.reserve(memory)
            session = cuda_session(graph, device.number, memory, f"{bundle.path} ({precision})")
            weights = link_weights(graph)
            for _ in range(LANES):
                lanes.append(OrtLane(session, device, finder, weights))
    except BaseException:
        close_all([*owned, *lanes])
        raise
    note = " | ".join(dict.fromkeys(notes))
    about = f"ONNX Runtime {VERSION}, cuda, {described(devices)}, {precision}, {note}"
    return Gpus("cuda", precision, lanes, BATCH_TOKENS, about, owned)


def _precision(bundle: Bundle, precision: str | None) -> str:
    if precision is None:
        found = [name for name in ("fp16", "fp32") if name in bundle.precisions]
        if not found:
            raise BackendError(f"CUDA: {bundle.path} has no fp16 or fp32 graph")
        return found[0]
    if precision == "int8":
        # ONNX Runtime would take the CPU for all that CUDA cannot multiply, and not say so.
        raise BackendError("CUDA: int8 graphs are for CPUs; give --dtype fp16 or --backend cpu")
    if precision not in bundle.precisions:
        raise BundleError(
            f"{bundle.path} has no {precision} graph; it has {', '.join(bundle.precisions)}"
        )
    return precision

"""ONNX Runtime on GPUs: outputs stay on the device, where our kernel turns them into links.
Knows I/O binding; sessions are made by `ort`, and memory and devices are the matter of `gpu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mx.engine.backends.cuda_driver import Driver, OutOfMemory
from mx.engine.backends.gpu import (
    Arrays,
    Buffers,
    Device,
    GpuOptions,
    Gpus,
    LinkFinder,
    described,
    link_finder,
    open_devices,
)
from mx.engine.backends.ort import VERSION, cuda_session, need_cuda
from mx.engine.batching import Batch, WordIds
from mx.engine.bundle import Bundle
from mx.engine.errors import BackendError, BundleError
from mx.engine.kernels.reference import PackedLinks

BATCH_TOKENS = 16384
LANES = 2
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


class OrtLane:
    """One stream's worth of calls of a session that the lanes of a device share."""

    def __init__(
        self, session: Any, device: Device, finder: LinkFinder | None, where: str = "cuda"
    ) -> None:
        self.device, self.finder = device, finder
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
        values = self._run(batch, ("fwd", "bwd"))
        self.device.use()
        weights = values["fwd"].data_ptr(), values["bwd"].data_ptr()
        return self.finder.find(self._buffers, weights, words, threshold, self._stream)

    def _run(self, batch: Batch, outputs: Sequence[str]) -> dict[str, Any]:
        """The outputs as values of ONNX Runtime, on the device and complete."""
        binding = self._session.io_binding()
        for name, kind in self._types.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(getattr(batch, name), kind))
        for name in outputs:
            binding.bind_output(name, *self._where)
        try:
            self._session.run_with_iobinding(binding)
            binding.synchronize_outputs()  # our kernel runs on another stream
        except Exception as error:  # ONNX Runtime has no common class of its own errors
            text = str(error)
            if "Failed to allocate memory" in text or "out of memory" in text.lower():
                raise OutOfMemory(text.split("\n")[0][:200]) from error
            raise
        return dict(zip(outputs, binding.get_outputs(), strict=True))

    def drop(self) -> None:
        self.device.use()
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
    devices = open_devices(options or GpuOptions(), driver)
    precision = _precision(bundle, precision)
    graph = bundle.graph(precision)
    lanes, note = [], ""
    for device in devices:
        device.use()
        session = cuda_session(graph, device.number, device.limit, f"{bundle.path} ({precision})")
        finder, why = link_finder(device, bundle)
        note = "links on the GPU" if finder else f"links on the CPU: {why}"
        lanes += [OrtLane(session, device, finder) for _ in range(LANES)]
    about = f"ONNX Runtime {VERSION}, cuda, {described(devices)}, {precision}, {note}"
    return Gpus("cuda", precision, lanes, BATCH_TOKENS, about)


def _precision(bundle: Bundle, precision: str | None) -> str:
    if precision is None:
        found = [name for name in ("fp16", "fp32") if name in bundle.precisions]
        if not found:
            raise BackendError(f"CUDA: {bundle.path} has no fp16 or fp32 graph")
        return found[0]
    if precision not in bundle.precisions:
        raise BundleError(
            f"{bundle.path} has no {precision} graph; it has {', '.join(bundle.precisions)}"
        )
    return precision

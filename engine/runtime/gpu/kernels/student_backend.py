"""Run a student on GPUs by kernels of our own: needs a driver and cuda-bindings, nothing else.

Sentences are packed without padding, so a batch costs what its pieces cost. Does not run other
networks; TensorRT and ONNX Runtime do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ....bundle.bundle import Bundle
from ....errors import BackendError
from ....types import Batch, IntArray, PackedLinks, WordIds
from ...backends import GpuOptions, OtherModel
from ...model_graph import OUTPUTS, link_outputs
from ...onnx_cpu import check_outputs
from ...student_weights import StudentWeights, read_student
from ..cuda_driver import Driver
from ..devices import Buffers, Device, describe_devices, fetch_arrays, open_devices, send_arrays
from ..lanes import LANES, Arrays, GpuBackend, Lane
from ..link_finder import LinkFinder, open_link_finder
from .launch import Kernel, find_archive

BATCH_TOKENS = 16384  # as TensorRT's; judged, not measured
TILE = 64  # a side begins at a multiple of this row, for aligned addresses
KERNELS = ("student_embed", "student_layer", "student_project", "student_scores")
NO_ROW = -1


@dataclass(frozen=True)
class PackedRows:
    """Sentences of a batch, the source side before the target side, without padding."""

    ids: npt.NDArray[np.int32]  # (R,) pieces, NO_ROW behind each sentence and each side
    places: npt.NDArray[np.int32]  # (B, 4) first row and pieces of the source, of the target
    n_src: int  # rows of the source side; the others are the target's


def pack_rows(batch: Batch) -> PackedRows:
    """Put the sentences of both sides one after the other.

    Of the sentences "a b" and "c" that is a b . c . with a dot for an empty row. A side's rows are
    counted from its own first one.
    """
    sides, columns = [], []
    for ids, lengths in ((batch.src, batch.src_lengths), (batch.tgt, batch.tgt_lengths)):
        place = np.arange(ids.shape[1] + 1)
        behind = np.pad(ids, ((0, 0), (0, 1)), constant_values=NO_ROW)
        behind[np.arange(len(ids)), lengths] = NO_ROW
        packed = behind[place <= lengths[:, None]]
        sides.append(np.pad(packed, (0, -len(packed) % TILE), constant_values=NO_ROW))
        columns += [_count_before(lengths + 1), lengths]
    places = np.stack(columns, axis=1).astype(np.int32)
    return PackedRows(np.concatenate(sides).astype(np.int32), places, len(sides[0]))


def _count_before(sizes: IntArray) -> IntArray:
    return np.asarray(np.cumsum(sizes) - sizes)


class StudentLane(Lane):
    """One stream's worth of a student; weights and kernels are those of the device."""

    def __init__(self, device: Device, student: LoadedStudent, finder: LinkFinder | None) -> None:
        self._student = student
        super().__init__(device, finder)

    def run(self, batch: Batch, outputs: Sequence[str]) -> Arrays:
        check_outputs(outputs, set(OUTPUTS))
        placed = self._start_run(batch)
        # The harmonic mean is the host's work: who asks for `scores` asks for few pairs.
        wanted = {*outputs} - {"scores"} | ({"fwd", "bwd"} if "scores" in outputs else set())
        places = {name: (placed[name], _output_shape(name, batch)) for name in sorted(wanted)}
        found = fetch_arrays(self._buffers, places, self._stream)
        if "scores" in outputs:
            fwd, bwd = found["fwd"], found["bwd"]
            found["scores"] = 2 * fwd * bwd / np.maximum(fwd + bwd, np.float32(1e-30))
        return found

    def links(self, batch: Batch, words: WordIds, threshold: float) -> PackedLinks:
        assert self.finder is not None
        placed = self._start_run(batch)
        weights = placed["fwd"], placed["bwd"]
        return self.finder.find_links(self._buffers, weights, words, threshold, self._stream)

    def _start_run(self, batch: Batch) -> dict[str, int]:
        """Start all kernels on the stream; return where each output will be."""
        self.device.make_current()
        student, stream = self._student, self._stream
        width, channels = student.width, student.channels
        packed = pack_rows(batch)
        (rows, n_src), n_tgt = batch.src.shape, batch.tgt.shape[1]
        total = len(packed.ids)
        given = send_arrays(
            self._buffers, "inputs", {"ids": packed.ids, "places": packed.places}, stream
        )
        x, y, halves = (
            self._buffers.on_device(name, size * total * width)
            for name, size in (("x", 4), ("y", 4), ("halves", 2))
        )
        nulls = self._buffers.on_device("nulls", 4 * total)
        words = self._buffers.on_device("word starts", 4 * total)
        room = (5 + channels) * n_src * n_tgt + n_src + n_tgt
        scratch = self._buffers.on_device("scratch", 4 * rows * room)
        outputs = {
            name: self._buffers.on_device(name, 4 * int(np.prod(_output_shape(name, batch))))
            for name in OUTPUTS
            if name != "scores"
        }
        # Where the rows of each side begin: row, and how many.
        sides = (0, packed.n_src), (packed.n_src, total - packed.n_src)
        for side, (first, count) in zip(student.sides, sides, strict=True):
            student.start_rows(
                "student_embed", count, stream,
                given["ids"] + 4 * first, side["table"], side["vector"], side["starts"], count,
                x + 4 * first * width, words + 4 * first,
            )  # fmt: skip
        for layer in student.layers:
            student.start_rows(
                "student_layer", total, stream,
                x, given["ids"], layer["gain"], layer["shift"], layer["up"], layer["up_bias"],
                layer["down"], layer["down_bias"], total, student.hidden, y,
            )  # fmt: skip
            x, y = y, x
        for side, (first, count) in zip(student.sides, sides, strict=True):
            student.start_rows(
                "student_project", count, stream,
                x + 4 * first * width, given["ids"] + 4 * first, student.rest["gain"],
                student.rest["shift"], side["weight"], side["bias"], side["null_weight"],
                side["null_bias"], count, halves + 2 * first * width, nulls + 4 * first,
            )  # fmt: skip
        first = packed.n_src
        rest = student.rest
        student.kernels["student_scores"].launch(
            (rows,),
            (halves + 2 * first * width, halves, nulls + 4 * first, nulls, words + 4 * first, words,
             given["places"], rest["look"], rest["look_bias"], rest["judge"], rest["judge_bias"],
             rest["diagonal"], n_src, n_tgt, channels, scratch, outputs["fwd"], outputs["bwd"],
             outputs["fwd_null"], outputs["bwd_null"]),
            stream,
        )  # fmt: skip
        return outputs


def _output_shape(name: str, batch: Batch) -> tuple[int, ...]:
    rows, n_src = batch.src.shape
    n_tgt = batch.tgt.shape[1]
    return {"fwd_null": (rows, n_tgt), "bwd_null": (rows, n_src)}.get(name, (rows, n_src, n_tgt))


class LoadedStudent:
    """A student's weights and kernels on a device, for all of its lanes."""

    def __init__(self, device: Device, weights: StudentWeights) -> None:
        self.device = device
        self.width, self.channels = weights.width, weights.channels
        self.hidden = len(weights.layers[0].up_bias) if weights.layers else 0
        self.kernels: dict[str, Kernel] = {}
        self._buffers = Buffers(device)
        self._loading = device.driver.new_stream()
        try:
            self._load_kernels()
            self.sides = [self._send_fields(f"side {i}", x) for i, x in enumerate(weights.sides)]
            self.layers = [self._send_fields(f"layer {i}", x) for i, x in enumerate(weights.layers)]
            self.rest = self._send_fields("rest", weights)
            device.driver.wait_stream(self._loading)
        except BaseException:
            self.close()
            raise

    def _load_kernels(self) -> None:
        archive = find_archive(self.device.capability)
        for name in KERNELS:
            entry = archive.entries.get(name) if archive else None
            if archive is None or entry is None:
                where = "sm_{}{}".format(*self.device.capability)
                raise BackendError(f"our kernels of students are not for {where}")
            if entry.constants["WIDTH"] != self.width:
                made = entry.constants["WIDTH"]
                raise BackendError(
                    f"our kernels are for students of width {made}, not {self.width}"
                )
            if self.hidden % entry.constants.get("HIDDEN", 1):
                raise OtherModel(f"our kernels are not for {self.hidden} hidden units")
            self.kernels[name] = Kernel(self.device.driver, archive, entry)

    def _send_fields(self, name: str, weights: Any) -> dict[str, int]:
        """Copy the arrays among a dataclass's fields to the device; return their pointers."""
        arrays: Mapping[str, npt.NDArray[Any]] = {
            field.name: getattr(weights, field.name)
            for field in fields(weights)
            if isinstance(getattr(weights, field.name), np.ndarray)
        }
        return send_arrays(self._buffers, name, arrays, self._loading)

    def start_rows(self, name: str, rows: int, stream: int, *arguments: int) -> None:
        """Start a kernel whose grid is tiles of rows."""
        kernel = self.kernels[name]
        kernel.launch((-(-rows // kernel.entry.constants["ROWS"]),), arguments, stream)

    def close(self) -> None:
        self.device.make_current()
        self.device.driver.wait_stream(self._loading)
        self.device.driver.free_stream(self._loading)
        for kernel in self.kernels.values():
            kernel.close()
        self._buffers.close()


def open_student(
    bundle: Bundle, dtype: str | None, options: GpuOptions, *, driver: Driver | None = None
) -> GpuBackend:
    """Open a student's bundle on all GPUs, or those of the options."""
    dtype = bundle.choose_dtype(dtype, "kernels")
    if dtype != "fp16":
        raise OtherModel("our kernels compute in fp16; give --dtype fp16 or another --backend")
    graph = bundle.read_graph(dtype)
    weights = read_student(graph, bundle.manifest.model)
    if link_outputs(graph) != ("fwd", "bwd"):
        raise OtherModel("our kernels do not combine the directions as this model does")
    with ExitStack() as opened:
        devices = open_devices(options, opened, driver)
        lanes: list[StudentLane] = []
        notes: list[str] = []
        for device in devices:
            device.make_current()
            student = opened.enter_context(closing(LoadedStudent(device, weights)))
            finder, note = open_link_finder(device, bundle, opened)
            notes.append(note)
            for _ in range(LANES):
                lane = StudentLane(device, student, finder)
                lanes.append(opened.enter_context(closing(lane)))
        about = f"kernels of ours, {describe_devices(devices, dtype, notes)}"
        return GpuBackend("kernels", dtype, lanes, BATCH_TOKENS, about, opened.pop_all())

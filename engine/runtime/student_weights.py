"""Read the weights of a student from its ONNX graph, as our kernels and their twins take them.

Knows the names that `export/graph/student.py` gives them. Does not run anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..protobuf import read_fields
from ..types import Floats
from .backends import OtherModel

Halves = npt.NDArray[np.float16]
# Field numbers of onnx.proto, and the types of values.
_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 8, 9
_TYPES = {1: np.float32, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16}
CHANNELS = 16  # corrections are computed for so many channels at a time
_AROUND = 5  # rows and columns that a correction sees


@dataclass(frozen=True)
class StudentSide:
    """What only one side has."""

    table: Halves  # (V, D), scaled
    vector: Floats  # (D,), added to all pieces
    starts: npt.NDArray[np.int32]  # (V,) 1 for pieces that begin a word
    weight: Halves  # (D, D) of keys (source) or queries (target), input first
    bias: Floats  # (D,)
    null_weight: Floats  # (D,)
    null_bias: Floats  # (1,)


@dataclass(frozen=True)
class StudentLayer:
    """One layer of the encoder, which both sides share."""

    gain: Floats  # (D,)
    shift: Floats  # (D,)
    up: Halves  # (3 D, F)
    up_bias: Floats  # (F,)
    down: Halves  # (F, D)
    down_bias: Floats  # (D,)


@dataclass(frozen=True)
class StudentWeights:
    """All weights of a student; matrices have their inputs first."""

    sides: tuple[StudentSide, StudentSide]  # source, target
    layers: tuple[StudentLayer, ...]
    gain: Floats  # (D,) of the last normalisation
    shift: Floats  # (D,)
    diagonal: Floats  # (2,)
    look: Floats  # (4 * 25, C); C is 0 without corrections, else a multiple of CHANNELS
    look_bias: Floats  # (C,)
    judge: Floats  # (25, C)
    judge_bias: Floats  # (1,)

    @property
    def width(self) -> int:
        return len(self.gain)

    @property
    def channels(self) -> int:
        return len(self.look_bias)


def read_student(graph: bytes, model: dict[str, Any]) -> StudentWeights:
    """Read the weights of a graph whose network `model` describes, as a manifest does.

    OtherModel if it is no student, or one whose graph has other weights.
    """
    if model.get("kind") != "student":
        raise OtherModel("our kernels are for students; this model is another network")
    try:
        return _collect_weights(read_constants(graph), model)
    except (KeyError, ValueError, IndexError) as error:
        raise OtherModel(f"our kernels do not know the weights of this student ({error})") from None


def _read_embedding(found: dict[str, npt.NDArray[Any]], name: str) -> Halves:
    """Return an embedding, which graphs of many pieces keep in 8 bits with a scale for each."""
    if f"{name}.int8" in found:
        return found[f"{name}.int8"].astype(np.float16) * found[f"{name}.scale"].astype(np.float16)
    return np.ascontiguousarray(found[name], np.float16)


def _collect_weights(found: dict[str, npt.NDArray[Any]], model: dict[str, Any]) -> StudentWeights:
    def vector(name: str) -> Floats:
        return np.ascontiguousarray(found[name], np.float32).reshape(-1)

    def matrix(name: str) -> Halves:
        return np.ascontiguousarray(found[name].T, np.float16)

    sides = []
    for index, (side, role) in enumerate((("src", "key"), ("tgt", "query"))):
        own = "tgt" if index and not model["joint_vocab"] else "src"
        sides.append(
            StudentSide(
                _read_embedding(found, f"{own}_embedding.weight"),
                vector(f"side.{index}"),
                found[f"{own}_starts"].astype(np.int32),
                matrix(f"{role}.weight"),
                vector(f"{role}.bias"),
                vector(f"{side}_null.weight"),
                vector(f"{side}_null.bias"),
            )
        )
    layers = tuple(
        StudentLayer(
            vector(f"{name}.norm.weight"), vector(f"{name}.norm.bias"),
            matrix(f"{name}.up.weight"), vector(f"{name}.up.bias"),
            matrix(f"{name}.down.weight"), vector(f"{name}.down.bias"),
        )
        for name in (f"layers.{i}" for i in range(model["encoder_layers"]))
    )  # fmt: skip
    diagonal = np.zeros(2, np.float32)
    if model["diagonal"]:
        diagonal[:] = [float(found[f"tail.diagonal.{k}"]) for k in (0, 1)]
    look, judge = np.zeros((0, 4, _AROUND, _AROUND)), np.zeros((0, _AROUND, _AROUND))
    look_bias, judge_bias = np.zeros(0), np.zeros(1, np.float32)
    if model["refine"]:
        look, look_bias = found["tail.look.weight"], found["tail.look.bias"]
        judge, judge_bias = found["tail.judge.weight"][0], vector("tail.judge.bias")
    # Channels that are not there see nothing and say nothing.
    missing = -len(look) % CHANNELS

    def pad_channels(array: npt.NDArray[Any]) -> Floats:
        flat = array.reshape(len(array), -1)
        return np.ascontiguousarray(np.pad(flat, ((0, missing), (0, 0))).T, np.float32)

    return StudentWeights(
        (sides[0], sides[1]), layers, vector("norm.weight"), vector("norm.bias"), diagonal,
        pad_channels(look), pad_channels(look_bias).reshape(-1), pad_channels(judge), judge_bias,
    )  # fmt: skip


def read_constants(graph: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the constants of an ONNX model that are stored as raw bytes, by name."""
    found = {}
    for model_field in read_fields(graph):
        if model_field.number != _MODEL_GRAPH or isinstance(model_field.value, int):
            continue
        for field in read_fields(model_field.value):
            if field.number == _GRAPH_INITIALIZER and not isinstance(field.value, int):
                name, array = _read_tensor(field.value)
                if array is not None:
                    found[name] = array
    return found


def _read_tensor(message: memoryview) -> tuple[str, npt.NDArray[Any] | None]:
    sizes: list[int] = []
    name, kind, raw = "", None, None
    for number, value, *_ in read_fields(message):
        if number == _TENSOR_DIMS:
            sizes += [value] if isinstance(value, int) else _read_varints(value)
        elif number == _TENSOR_TYPE and isinstance(value, int):
            kind = _TYPES.get(value)
        elif number == _TENSOR_NAME and not isinstance(value, int):
            name = bytes(value).decode()
        elif number == _TENSOR_RAW and not isinstance(value, int):
            raw = value
    if kind is None or raw is None:
        return name, None
    return name, np.frombuffer(raw, kind).reshape(sizes)


def _read_varints(packed: memoryview) -> list[int]:
    found, value, shift = [], 0, 0
    for byte in packed:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found

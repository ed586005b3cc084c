"""Build ONNX graphs op by op: constants, layers and outputs that all our networks share.

Does not name attentions; that is the work of `fusion`. Shapes: B pairs, S source and T target
pieces, L either, D width, H heads, K = D / H. Between the attentions everything is
two-dimensional, (B·L, D), where a matrix product with its bias is one Gemm. Scales (√D of the
words, 1/√K of the queries) are folded into the weights.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...engine.runtime.model_graph import INPUTS, OUTPUTS
from ...trainer.config import ModelConfig

OPSET = 21  # ONNX Runtime 1.20, the oldest one supported, reads opsets up to 21
IR_VERSION = 10

Weights = dict[str, np.ndarray]
Feeds = dict[str, np.ndarray]  # a batch by the names of INPUTS


@dataclass(frozen=True)
class SideValues:
    """Names of the values of one side that both directions share."""

    lengths: str  # (B,) int32
    shape: str  # (2,) int64: B, L
    shape3: str  # (3,) int64: B, L, D
    valid: str  # (B, L) bool
    mask: str  # (B, 1, 1, L), 0 where there is a piece, else -inf; an empty sentence has one
    start: str  # (L, D) positions, and the side vector if tied; or (D,)
    words: str  # (B, L, D) without positions
    embedded: str  # (B·L, D) words with positions


class NetworkBuilder:
    """Collects the nodes and constants of a network; a method returns the name of what it adds.

    Has the layers that Mask-Align and the student share, and what the graph takes and gives.
    """

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.trained = weights
        self.nodes: list[onnx.NodeProto] = []
        self.stored: Weights = {}
        self.scope = ""

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node with one output, called `name` or after its scope and number."""
        name = name or f"{self.scope}{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: str, value: np.ndarray) -> str:
        """Add a constant; the same name may be given again for the same value."""
        self.stored.setdefault(name, np.asarray(value, order="C"))
        return name

    def trained_weight(self, name: str) -> str:
        return self.weight(name, self.trained[name])

    def ints(self, *values: int) -> str:
        """Add a constant int64 vector."""
        name = "ints_" + "_".join(str(v).replace("-", "m") for v in values)
        return self.weight(name, np.array(values, np.int64))

    def scalar(self, value: float, dtype: type) -> str:
        name = f"{np.dtype(dtype).name}_{value}".replace("-", "m").replace(".", "p")
        return self.weight(name, np.array(value, dtype))

    def count_along(self, shape: str, axis: int = 1) -> str:
        """Add 0, 1, ... int64 for the places of an axis of a value with this shape."""
        size = self.op("Gather", shape, self.scalar(axis, np.int64), axis=0)
        return self.op("Range", self.scalar(0, np.int64), size, self.scalar(1, np.int64))

    def build_start(self, count: str, index: int) -> str:
        """Add what is added to the words of a side, the source's if `index` is 0."""
        raise NotImplementedError

    # ---- layers ----

    def linear(self, x: str, name: str, part: int | None = None, scale: float = 1.0) -> str:
        """Add x Wᵀ + b for a (B·L, D) value; `part` takes that one of the outputs of width D."""
        width = self.config.width
        rows = slice(None) if part is None else slice(part * width, (part + 1) * width)
        suffix = "" if part is None else f".{rows.start}"
        weight, bias = (
            self.weight(
                f"{name}{suffix}.{kind}", self.trained[f"{name}.{kind}"][rows] * np.float32(scale)
            )
            for kind in ("weight", "bias")
        )
        return self.op("Gemm", x, weight, bias, transB=1)

    def project(
        self, x: str, name: str, side: SideValues, part: int | None = None, scale: float = 1.0
    ) -> str:
        """Add `linear` of the pieces of a side, (B, L, D)."""
        return self.op("Reshape", self.linear(x, name, part, scale), side.shape3)

    def norm(self, x: str, name: str) -> str:
        gain, bias = (self.trained_weight(f"{name}.{kind}") for kind in ("weight", "bias"))
        return self.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=1e-5)

    def flatten_rows(self, x: str) -> str:
        return self.op("Reshape", x, self.ints(-1, self.config.width))  # (B·L, D)

    # ---- one side ----

    def build_side(self, name: str, index: int) -> SideValues:
        """Add everything that depends on one side's ids and lengths alone."""
        self.scope = f"{name}/"
        width = self.config.width
        lengths = f"{name}_lengths"
        shape = self.op("Shape", name)
        count = self.count_along(shape)
        place = self.op("Cast", count, to=TensorProto.INT32)  # (L,)
        valid = self.find_valid(place, lengths)
        # One key at least is seen, or the softmax of an empty sentence would be NaN.
        one = self.op("Max", lengths, self.scalar(1, np.int32))
        mask = self.make_additive(self.find_valid(place, one), 1, 2)
        own = index == 1 and not self.config.joint_vocab
        table = "tgt_embedding" if own else "src_embedding"
        scaled = self.trained[f"{table}.weight"] * np.float32(width**0.5)
        words = self.op("Gather", self.weight(f"{table}.weight", scaled), name, axis=0)
        start = self.build_start(count, index)
        return SideValues(
            lengths=lengths,
            shape=shape,
            shape3=self.op("Concat", shape, self.ints(width), axis=0),
            valid=valid,
            mask=mask,
            start=start,
            words=words,
            embedded=self.flatten_rows(self.op("Add", words, start)),
        )

    def find_valid(self, place: str, lengths: str) -> str:
        """Add place < length, (B, L)."""
        return self.op("Less", place, self.op("Unsqueeze", lengths, self.ints(1)))

    def make_additive(self, allowed: str, *axes: int) -> str:
        """Add a mask: 0 where allowed, else -inf, with new axes."""
        zero, never = self.scalar(0.0, np.float32), self.scalar(-np.inf, np.float32)
        return self.op("Unsqueeze", self.op("Where", allowed, zero, never), self.ints(*axes))

    # ---- both directions ----

    def build_scores(self, fwd: str, bwd: str, sides: list[SideValues]) -> None:
        """Add the outputs `scores`, `fwd` and `bwd`, (B, S, T) and zero outside the sentences.

        2ab / (a + b) is 0 / 1e-30 = 0 where both are 0, without a division by zero.
        """
        self.scope = "symmetrize/"
        inside = []
        for axis, side in enumerate(sides, 1):
            count = self.count_along(self.op("Shape", bwd), axis)
            place = self.op("Cast", count, to=TensorProto.INT32)
            inside.append(self.find_valid(place, side.lengths))
        cells = self.op(
            "And",
            self.op("Unsqueeze", inside[0], self.ints(2)),
            self.op("Unsqueeze", inside[1], self.ints(1)),
        )
        cells = self.op("Cast", cells, to=TensorProto.FLOAT)
        fwd = self.op("Mul", self.op("Transpose", fwd, perm=(0, 2, 1)), cells, name="fwd")
        bwd = self.op("Mul", bwd, cells, name="bwd")
        total = self.op("Max", self.op("Add", fwd, bwd), self.scalar(1e-30, np.float32))
        double = self.op("Mul", self.op("Mul", fwd, bwd), self.scalar(2.0, np.float32))
        self.op("Div", double, total, name="scores")

    def build_null(self, null: str, side: SideValues, source: SideValues, name: str) -> None:
        """Add the output of NULL's weights, zero outside the sentences and where there is nothing
        to align with."""
        self.scope = f"{name}/"
        some = self.op("Less", self.scalar(0, np.int32), source.lengths)
        rows = self.op("And", side.valid, self.op("Unsqueeze", some, self.ints(1)))
        rows = self.op("Cast", rows, to=TensorProto.FLOAT)
        if self.config.leaky:
            self.op("Mul", null, rows, name=name)
        else:
            self.op("Sub", rows, rows, name=name)  # no NULL: zero

    def build_model(self) -> onnx.ModelProto:
        """Put the nodes and constants together; see INPUTS and OUTPUTS of the engine."""
        value = helper.make_tensor_value_info
        shapes = {"src": ["B", "S"], "tgt": ["B", "T"], "fwd_null": ["B", "T"],
                  "bwd_null": ["B", "S"]}  # fmt: skip
        inputs = [value(name, TensorProto.INT32, shapes.get(name, ["B"])) for name in INPUTS]
        outputs = [
            value(name, TensorProto.FLOAT, shapes.get(name, ["B", "S", "T"])) for name in OUTPUTS
        ]
        stored = [numpy_helper.from_array(a, name) for name, a in self.stored.items()]
        graph = helper.make_graph(self.nodes, "mx", inputs, outputs, stored)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="mx-export",
        )

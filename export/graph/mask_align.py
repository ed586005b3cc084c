"""The aligner as a plain ONNX graph, built from the trained weights op by op.

Knows what alignment needs of the network and nothing else is built: no prediction, no last
feed-forward, no values of the last cross-attention. Naming the attentions is the work of `fuse`.

Shapes: B pairs, S source and T target pieces, L either, D width, H heads, K = D / H. Between the
attentions everything is two-dimensional, (B·L, D), where a matrix product with its bias is one
Gemm. Scales (√D of the words, 1/√K of the queries) are folded into the weights.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...trainer.config import ModelConfig

if TYPE_CHECKING:
    from ...trainer.networks.mask_align import MaskAlign
    from ...trainer.networks.student import Student

OPSET = 21  # ONNX Runtime 1.20, the oldest one supported, reads opsets up to 21
IR_VERSION = 10
INPUTS = ("src", "src_lengths", "tgt", "tgt_lengths")
OUTPUTS = ("scores", "fwd", "bwd", "fwd_null", "bwd_null")

Weights = dict[str, np.ndarray]


class Builder:
    """Collects nodes and weights; every method returns the name of the value it adds."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.scope = ""

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node with one output, called `name` or after its scope and number."""
        name = name or f"{self.scope}{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: str, value: np.ndarray) -> str:
        """A constant; the same name may be given again for the same value."""
        self.weights.setdefault(name, np.asarray(value, order="C"))
        return name

    def ints(self, *values: int) -> str:
        """A constant int64 vector."""
        name = "ints_" + "_".join(str(v).replace("-", "m") for v in values)
        return self.weight(name, np.array(values, np.int64))

    def scalar(self, value: float, dtype: type) -> str:
        name = f"{np.dtype(dtype).name}_{value}".replace("-", "m").replace(".", "p")
        return self.weight(name, np.array(value, dtype))


@dataclass(frozen=True)
class Side:
    """Values of one side that both directions share."""

    lengths: str  # (B,) int32
    shape: str  # (2,) int64: B, L
    shape3: str  # (3,) int64: B, L, D
    valid: str  # (B, L) bool
    mask: str  # (B, 1, 1, L), 0 where there is a piece, else -inf; an empty sentence has one
    start: str  # (L, D) positions, and the side vector if tied
    words: str  # (B, L, D) without positions
    embedded: str  # (B·L, D) words with positions


def weights_of(model: "MaskAlign | Student") -> Weights:
    """The trained parameters as float32 arrays, and the rates of the positions."""
    import torch

    weights = {
        name: p.detach().float().cpu().numpy().copy() for name, p in model.named_parameters()
    }
    half = model.config.width // 2
    rates = torch.exp(torch.arange(half) * (-math.log(10000.0) / max(half - 1, 1)))
    return {**weights, "positions.rates": rates.numpy()}


def plain_graph(config: ModelConfig, weights: Weights) -> onnx.ModelProto:
    """The whole aligner: piece ids of both sides to scores, and on request their parts."""
    if config.kind == "student":
        from .student import StudentNetwork

        return StudentNetwork(config, weights).build()
    net = Network(config, weights)
    sides = [net.side("src", 0), net.side("tgt", 1)]
    fwd, fwd_null = net.direction(0, sides)
    bwd, bwd_null = net.direction(1, sides)
    net.symmetrize(fwd, bwd, sides)
    net.null(fwd_null, sides[1], sides[0], "fwd_null")
    net.null(bwd_null, sides[0], sides[1], "bwd_null")
    return net.model()


class Network(Builder):
    """The layers of `trainer.model`, as ONNX ops."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        super().__init__()
        self.config = config
        self.trained = weights
        self.pre = config.norm == "pre"
        self.query_scale = np.float32((config.width // config.heads) ** -0.5)

    # ---- parts ----

    def linear(self, x: str, name: str, part: slice = slice(None), scale: float = 1.0) -> str:
        """x Wᵀ + b for a (B·L, D) value; `part` takes some of the outputs."""
        weight, bias = (self.trained[f"{name}.{kind}"][part] for kind in ("weight", "bias"))
        suffix = "" if part == slice(None) else f".{part.start}"
        return self.op(
            "Gemm",
            x,
            self.weight(f"{name}{suffix}.weight", weight * np.float32(scale)),
            self.weight(f"{name}{suffix}.bias", bias * np.float32(scale)),
            transB=1,
        )

    def norm(self, x: str, name: str) -> str:
        gain, bias = (
            self.weight(f"{name}.{kind}", self.trained[f"{name}.{kind}"])
            for kind in ("weight", "bias")
        )
        return self.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=1e-5)

    def enter(self, x: str, name: str) -> str:
        return self.norm(x, f"{name}.norm") if self.pre else x

    def leave(self, x: str, update: str, name: str) -> str:
        x = self.op("Add", x, update)
        return x if self.pre else self.norm(x, f"{name}.norm")

    def feed_forward(self, x: str, name: str) -> str:
        up = self.op("Relu", self.linear(self.enter(x, name), f"{name}.up"))
        return self.leave(x, self.linear(up, f"{name}.down"), name)

    def flat(self, x: str) -> str:
        return self.op("Reshape", x, self.ints(-1, self.config.width))  # (B·L, D)

    def heads(self, x: str, perm: tuple[int, int, int, int]) -> str:
        """(B, L, D) to heads: (B, H, L, K), or (B, H, K, L) for keys."""
        width, heads = self.config.width, self.config.heads
        split = self.op("Reshape", x, self.ints(0, 0, heads, width // heads))
        return self.op("Transpose", split, perm=perm)

    def attend(self, q: str, k: str, v: str, mask: str) -> str:
        """softmax(q kᵀ + mask) v, (B, L, D); q comes scaled and may have B = 1."""
        rows, columns = (0, 2, 1, 3), (0, 2, 3, 1)
        scores = self.op("MatMul", self.heads(q, rows), self.heads(k, columns))
        weights = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        mixed = self.op("MatMul", weights, self.heads(v, rows))
        return self.op(
            "Reshape", self.op("Transpose", mixed, perm=rows), self.ints(0, 0, self.config.width)
        )

    # ---- one side ----

    def side(self, name: str, index: int) -> Side:
        """Everything that depends on one side's ids and lengths alone."""
        self.scope = f"{name}/"
        width = self.config.width
        lengths = f"{name}_lengths"
        shape = self.op("Shape", name)
        size = self.op("Gather", shape, self.scalar(1, np.int64), axis=0)
        count = self.op("Range", self.scalar(0, np.int64), size, self.scalar(1, np.int64))
        place = self.op("Cast", count, to=TensorProto.INT32)  # (L,)
        valid = self.valid(place, lengths)
        one = self.op("Max", lengths, self.scalar(1, np.int32))
        mask = self.additive(self.valid(place, one), (1, 2))
        own = index == 1 and not self.config.joint_vocab
        table = "tgt_embedding" if own else "src_embedding"
        scaled = self.trained[f"{table}.weight"] * np.float32(width**0.5)
        words = self.op("Gather", self.weight(f"{table}.weight", scaled), name, axis=0)
        start = self.start(count, index)
        return Side(
            lengths=lengths,
            shape=shape,
            shape3=self.op("Concat", shape, self.ints(width), axis=0),
            valid=valid,
            mask=mask,
            start=start,
            words=words,
            embedded=self.flat(self.op("Add", words, start)),
        )

    def valid(self, place: str, lengths: str) -> str:
        return self.op("Less", place, self.op("Unsqueeze", lengths, self.ints(1)))  # (B, L)

    def additive(self, allowed: str, axes: tuple[int, ...]) -> str:
        """0 where allowed, else -inf, with new axes."""
        zero, never = self.scalar(0.0, np.float32), self.scalar(-np.inf, np.float32)
        return self.op("Unsqueeze", self.op("Where", allowed, zero, never), self.ints(*axes))

    def start(self, count: str, index: int) -> str:
        """(L, D): sines and cosines, computed here so that no length is too long."""
        place = self.op("Cast", count, to=TensorProto.FLOAT)
        rates = self.weight("positions.rates", self.trained["positions.rates"])
        angles = self.op("Mul", self.op("Unsqueeze", place, self.ints(1)), rates)
        waves = self.op("Concat", self.op("Sin", angles), self.op("Cos", angles), axis=1)
        # Angles need float32; `precision.half` turns this cast to the type of the weights.
        start = self.op("Cast", waves, to=TensorProto.FLOAT, name=f"{self.scope}positions")
        if self.config.tied:
            side = self.weight(f"side.{index}", self.trained["side"][index])
            start = self.op("Add", start, side)
        return start

    # ---- one direction ----

    def direction(self, read: int, sides: list[Side]) -> tuple[str, str]:
        """Head-mean weights (B, T, S) of the direction that reads `read`, and NULL's (B, T)."""
        name = "fwd" if self.config.tied or read == 0 else "bwd"
        label = "fwd" if read == 0 else "bwd"
        self.scope = f"{label}/encoder/"
        source = self.encoder(f"{name}.encoder", sides[read])
        self.scope = f"{label}/decoder/"
        return self.decoder(f"{name}.decoder", sides[1 - read], source, sides[read])

    def encoder(self, name: str, side: Side) -> str:
        x, width = side.embedded, self.config.width
        for layer in range(self.config.encoder_layers):
            part = f"{name}.attention.{layer}"
            entered = self.enter(x, part)
            q, k, v = (
                self.op(
                    "Reshape",
                    self.linear(
                        entered,
                        f"{part}.qkv",
                        slice(i * width, (i + 1) * width),
                        self.query_scale if i == 0 else 1.0,
                    ),
                    side.shape3,
                )
                for i in range(3)
            )
            mixed = self.flat(self.attend(q, k, v, side.mask))
            x = self.leave(x, self.linear(mixed, f"{part}.out"), part)
            x = self.feed_forward(x, f"{name}.feed_forward.{layer}")
        return self.norm(x, f"{name}.norm") if self.pre else x

    def decoder(self, name: str, side: Side, source: str, source_side: Side) -> tuple[str, str]:
        """The part of the decoder that the last layer's cross-attention weights depend on."""
        masked, last = self.config.masked, self.config.decoder_layers - 1
        static = self.static(name, side.embedded) if masked else ""
        mask = self.decoder_mask(side)
        h = side.start if masked else self.shifted(name, side)
        for layer in range(last + 1):
            part = f"{name}.attention.{layer}"
            keys = static if masked else self.static(name, h)
            k, v = (self.key_value(keys, name, 2 * layer + i, side) for i in range(2))
            first = masked and layer == 0  # the queries of all pairs are the positions: B = 1
            q = self.linear(self.enter(h, part), f"{part}.query", scale=self.query_scale)
            if first:
                q = self.op("Unsqueeze", q, self.ints(0))
            else:
                q = self.op("Reshape", q, side.shape3)
            mixed = self.attend(q, k, v, mask)
            if masked:
                mixed = self.unless_alone(mixed, side)
            update = self.linear(self.flat(mixed), f"{part}.out")
            if first:
                h = self.flat(self.op("Add", self.op("Reshape", update, side.shape3), h))
                h = h if self.pre else self.norm(h, f"{part}.norm")
            else:
                h = self.leave(h, update, part)
            if layer < last:
                if self.config.cross == "all":
                    h = self.cross(f"{name}.cross.{layer}", h, side, source, source_side)
                h = self.feed_forward(h, f"{name}.feed_forward.{layer}")
        return self.cross_weights(f"{name}.cross.{last}", h, side, source, source_side)

    def static(self, name: str, x: str) -> str:
        return self.norm(x, f"{name}.static_norm") if self.pre else x

    def key_value(self, x: str, name: str, index: int, side: Side) -> str:
        """Keys (even index) or values (odd) of a layer. One product for each: splitting the
        result of a single large one costs a copy and saves nothing on a CPU."""
        width = self.config.width
        part = slice(index * width, (index + 1) * width)
        return self.op("Reshape", self.linear(x, f"{name}.key_value", part), side.shape3)

    def shifted(self, name: str, side: Side) -> str:
        """What an autoregressive decoder starts with: the begin vector, then all words but one."""
        one, width = self.ints(1), self.ints(self.config.width)
        batch = self.op("Slice", side.shape, self.ints(0), one)
        begin = self.weight(f"{name}.begin", self.trained[f"{name}.begin"])
        begins = self.op("Expand", begin, self.op("Concat", batch, one, width, axis=0))
        before = self.op("Slice", side.words, self.ints(0), self.ints(-1), one)
        return self.flat(self.op("Add", self.op("Concat", begins, before, axis=1), side.start))

    def decoder_mask(self, side: Side) -> str:
        """Additive mask (B, 1, L, L). Masked: no row sees its own key, but in a sentence of one
        piece it does, to stay finite: `unless_alone`. Else no row sees what comes after it."""
        size = self.op("Gather", side.shape, self.scalar(1, np.int64), axis=0)
        count = self.op("Range", self.scalar(0, np.int64), size, self.scalar(1, np.int64))
        column = self.op("Unsqueeze", count, self.ints(1))  # (L, 1)
        zero, never = self.scalar(0.0, np.float32), self.scalar(-np.inf, np.float32)
        if self.config.masked:
            alone = self.op("Unsqueeze", self.alone(side), self.ints(1, 2))  # (B, 1, 1)
            allowed = self.op("Or", self.op("Not", self.op("Equal", count, column)), alone)
        else:
            allowed = self.op("LessOrEqual", count, column)
            allowed = self.op("Unsqueeze", allowed, self.ints(0))
        seen = self.op("Unsqueeze", self.op("Where", allowed, zero, never), self.ints(1))
        return self.op("Add", seen, side.mask)

    def alone(self, side: Side) -> str:
        return self.op("Less", side.lengths, self.scalar(2, np.int32))  # (B,)

    def unless_alone(self, x: str, side: Side) -> str:
        """x (B, L, D), and zero in sentences of one piece, which have no key to look at."""
        others = self.op("Unsqueeze", self.op("Not", self.alone(side)), self.ints(1, 2))
        return self.op("Mul", x, self.op("CastLike", others, x))

    # ---- cross-attention ----

    def cross_query(self, name: str, h: str, side: Side) -> str:
        query = self.linear(self.enter(h, name), f"{name}.query", scale=self.query_scale)
        return self.op("Reshape", query, side.shape3)

    def cross(self, name: str, h: str, side: Side, source: str, source_side: Side) -> str:
        """A cross-attention before the last one, which needs its values. NULL is one key more."""
        q = self.cross_query(name, h, side)
        k, v = (
            self.op("Reshape", self.linear(source, f"{name}.{part}"), source_side.shape3)
            for part in ("key", "value")
        )
        mask = source_side.mask
        if self.config.leaky:
            k, v = (self.with_null(x, f"{name}.null_{p}") for x, p in ((k, "key"), (v, "value")))
            mask = self.with_open(mask)
        mixed = self.attend(q, k, v, mask)
        return self.leave(h, self.linear(self.flat(mixed), f"{name}.out"), name)

    def with_null(self, x: str, name: str) -> str:
        """(B, 1 + S, D): the NULL vector before the others."""
        null = self.weight(name, self.trained[name][None, None])
        batch = self.op("Slice", self.op("Shape", x), self.ints(0), self.ints(1))
        shape = self.op("Concat", batch, self.ints(1, self.config.width), axis=0)
        return self.op("Concat", self.op("Expand", null, shape), x, axis=1)

    def with_open(self, mask: str) -> str:
        """The mask (B, 1, 1, S) with an open place for NULL; its own first place always is open."""
        first = self.op("Slice", mask, self.ints(0), self.ints(1), self.ints(3))
        return self.op("Concat", first, mask, axis=3)

    def cross_weights(
        self, name: str, h: str, side: Side, source: str, source_side: Side
    ) -> tuple[str, str]:
        """Head-mean weights (B, T, S) in float32, and NULL's (B, T), "" if not leaky."""
        rows, columns = (0, 2, 1, 3), (0, 2, 3, 1)
        key = self.op("Reshape", self.linear(source, f"{name}.key"), source_side.shape3)
        q = self.heads(self.cross_query(name, h, side), rows)
        scores = self.op("MatMul", q, self.heads(key, columns))  # (B, H, T, S)
        scores = self.op("Cast", scores, to=TensorProto.FLOAT)
        mask = self.op("Cast", source_side.mask, to=TensorProto.FLOAT)
        scores = self.op("Add", scores, mask)
        if not self.config.leaky:
            return self.mean(self.op("Softmax", scores, axis=-1)), ""
        null_key = self.weight(f"{name}.null_key", self.trained[f"{name}.null_key"])
        width, heads = self.config.width, self.config.heads
        null = self.op(
            "MatMul", q, self.op("Reshape", null_key, self.ints(heads, width // heads, 1))
        )
        scores = self.op("Concat", self.op("Cast", null, to=TensorProto.FLOAT), scores, axis=-1)
        mean = self.mean(self.op("Softmax", scores, axis=-1))  # (B, T, 1 + S)
        first, end = self.ints(1), self.ints(np.iinfo(np.int64).max)
        weights = self.op("Slice", mean, first, end, self.ints(2))
        nulls = self.op("Slice", mean, self.ints(0), first, self.ints(2))
        return weights, self.op("Squeeze", nulls, self.ints(2))

    def mean(self, x: str) -> str:
        return self.op("ReduceMean", x, self.ints(1), keepdims=0)  # over heads

    # ---- both directions ----

    def symmetrize(self, fwd: str, bwd: str, sides: list[Side]) -> None:
        """`scores`, `fwd` and `bwd`, all (B, S, T) and zero outside the sentences.

        2ab / (a + b) is 0 / 1e-30 = 0 where both are 0, without a division by zero.
        """
        self.scope = "symmetrize/"
        src = self.valid(self.place(bwd, 1), sides[0].lengths)
        tgt = self.valid(self.place(bwd, 2), sides[1].lengths)
        cells = self.op(
            "And",
            self.op("Unsqueeze", src, self.ints(2)),
            self.op("Unsqueeze", tgt, self.ints(1)),
        )
        cells = self.op("Cast", cells, to=TensorProto.FLOAT)
        fwd = self.op("Mul", self.op("Transpose", fwd, perm=(0, 2, 1)), cells, name="fwd")
        bwd = self.op("Mul", bwd, cells, name="bwd")
        total = self.op("Max", self.op("Add", fwd, bwd), self.scalar(1e-30, np.float32))
        double = self.op("Mul", self.op("Mul", fwd, bwd), self.scalar(2.0, np.float32))
        self.op("Div", double, total, name="scores")

    def place(self, x: str, axis: int) -> str:
        """0, 1, ... along an axis of x, int32."""
        size = self.op("Gather", self.op("Shape", x), self.scalar(axis, np.int64), axis=0)
        count = self.op("Range", self.scalar(0, np.int64), size, self.scalar(1, np.int64))
        return self.op("Cast", count, to=TensorProto.INT32)

    def null(self, null: str, side: Side, source_side: Side, name: str) -> None:
        """NULL's weights, zero outside the sentences and where there is nothing to align with."""
        self.scope = f"{name}/"
        some = self.op("Less", self.scalar(0, np.int32), source_side.lengths)
        rows = self.op("And", side.valid, self.op("Unsqueeze", some, self.ints(1)))
        rows = self.op("Cast", rows, to=TensorProto.FLOAT)
        if self.config.leaky:
            self.op("Mul", null, rows, name=name)
        else:
            self.op("Sub", rows, rows, name=name)  # no NULL: zero

    def model(self) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        integer, real = TensorProto.INT32, TensorProto.FLOAT
        inputs = [
            value("src", integer, ["B", "S"]),
            value("src_lengths", integer, ["B"]),
            value("tgt", integer, ["B", "T"]),
            value("tgt_lengths", integer, ["B"]),
        ]
        outputs = [value(name, real, ["B", "S", "T"]) for name in OUTPUTS[:3]]
        outputs += [value("fwd_null", real, ["B", "T"]), value("bwd_null", real, ["B", "S"])]
        stored = [numpy_helper.from_array(a, name) for name, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "mx", inputs, outputs, stored)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="mx-export",
        )

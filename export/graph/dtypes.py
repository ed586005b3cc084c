"""Convert a fused graph to fp16 or int8. Does not measure what that costs.

fp16, for GPUs: weights and most values; positions, the last softmax and all that follows it stay
fp32, and so do the graph's outputs. LayerNormalization computes in fp32 by its definition. Large
embeddings are kept in 8 bits, as in int8.

int8, for CPUs: every product with a weight matrix takes 8-bit inputs and weights; embeddings are
kept in 8 bits, with a scale for each piece; all else stays fp32. Input ranges are constants found
on text (`find_ranges`), so that a pair's scores do not depend on the pairs beside it in a batch, as
they would with ranges taken at run time.
"""

from collections.abc import Iterable
from copy import deepcopy

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node

from ...engine.runtime.onnx_cpu import CPU, start_session
from .builder import Feeds
from .fusion import replace_nodes
from .student import TAIL

Ranges = dict[str, tuple[float, float]]  # smallest and largest value by name of the value

# Constants of the positions and of Symmetrize, which compute in fp32.
_FLOAT32_WEIGHTS = {"positions.rates", "float32_1em30", "float32_2p0"}
# Weights of 7 bits: AVX2 adds two 8-bit products in 16 bits, where 2 · 255 · 127 would overflow and
# 2 · 255 · 63 = 32,130 does not.
_WEIGHT_LIMIT = 63
_MICROSOFT = "com.microsoft"
_WIDE = ".wide"  # ends the name of the node that gives an 8-bit row the graph's own type
# Embeddings of more pieces are most of the file: in 8 bits they take half of what fp16 takes.
_LARGE_TABLE = 1 << 15

# ---- fp16 ----


def convert_to_fp16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a fused graph in fp16."""
    copy = deepcopy(model)
    _shrink_large_tables(copy)
    for tensor in copy.graph.initializer:
        kept = tensor.name in _FLOAT32_WEIGHTS or tensor.name.startswith(TAIL)
        if tensor.data_type == TensorProto.FLOAT and not kept:
            values = numpy_helper.to_array(tensor)
            limit = np.finfo(np.float16).max
            finite = np.where(np.isfinite(values), np.clip(values, -limit, limit), values)
            tensor.CopyFrom(numpy_helper.from_array(finite.astype(np.float16), tensor.name))
    for node in copy.graph.node:
        if node.op_type == "Cast" and node.name.endswith(("/positions", _WIDE)):
            node.attribute[0].i = TensorProto.FLOAT16
    return copy


def _shrink_large_tables(model: onnx.ModelProto) -> None:
    """Keep embeddings of many pieces in 8 bits, in place."""
    large = {t.name for t in model.graph.initializer if t.dims and t.dims[0] > _LARGE_TABLE}
    quantizer = _Quantizer(model, {})
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        shrinks = node.op_type == "Gather" and node.input[0].endswith("embedding.weight")
        shrinks = shrinks and node.input[0] in large
        nodes += quantizer.quantize_embedding(node) if shrinks else [node]
    if quantizer.stored:
        replace_nodes(model.graph, nodes)
        model.graph.initializer.extend(quantizer.stored.values())


# ---- int8 ----


def find_products(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the matrix products to quantise.

    All with weights but those that make the scores themselves (query and key of the last
    cross-attention, which cost little and decide everything) and the first queries, which are
    computed once a batch.
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    last = {
        name
        for node in model.graph.node
        if node.op_type in ("LeakyAttention", "CrossAttention")
        for name in node.input[:2]
    }
    producer = {out: node for node in model.graph.node for out in node.output}
    excluded = {producer[name].input[0] for name in last}  # behind their Reshape
    excluded |= {name for name in producer if name.startswith("score/")}  # a student's
    excluded |= {
        producer[node.input[0]].input[0]
        for node in model.graph.node
        if node.op_type == "StaticAttention" and producer[node.input[0]].op_type == "Unsqueeze"
    }
    return [
        node
        for node in model.graph.node
        if node.op_type == "Gemm" and node.input[1] in stored and node.output[0] not in excluded
    ]


def find_ranges(model: onnx.ModelProto, batches: Iterable[Feeds]) -> Ranges:
    """Find the range of each product's input on real text.

    Give pairs one by one: padding would count, too.
    """
    names = sorted({node.input[0] for node in find_products(model)})
    watched = deepcopy(model)
    watched.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names
    )
    session = start_session(watched.SerializeToString(), [CPU], "the fp32 graph")
    low, high = np.zeros(len(names)), np.zeros(len(names))
    for feeds in batches:
        for i, value in enumerate(session.run(names, feeds)):
            low[i], high[i] = min(low[i], value.min()), max(high[i], value.max())
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(names)}


def convert_to_int8(model: onnx.ModelProto, ranges: Ranges) -> onnx.ModelProto:
    """Return a copy of a fused fp32 graph with 8-bit matrix products."""
    copy = deepcopy(model)
    quantizer = _Quantizer(copy, ranges)
    chosen = {node.output[0] for node in find_products(copy)}
    nodes: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        if node.output[0] in chosen:
            nodes += quantizer.quantize_product(node)
        elif node.op_type == "Gather" and node.input[0].endswith("embedding.weight"):
            nodes += quantizer.quantize_embedding(node)
        else:
            nodes.append(node)
    replace_nodes(copy.graph, nodes)
    copy.graph.initializer.extend(quantizer.stored.values())
    copy.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
    return copy


class _Quantizer:
    """Makes the nodes and constants of 8-bit products."""

    def __init__(self, model: onnx.ModelProto, ranges: Ranges) -> None:
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self.producer = {out: node for node in model.graph.node for out in node.output}
        self.ranges = ranges
        self.stored: dict[str, onnx.TensorProto] = {}

    def store(self, name: str, value: np.ndarray) -> str:
        if name not in self.stored:
            self.stored[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def quantize_product(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Make x W + b as the product of 8-bit x and W, scaled back; x is quantised once for all.

        With the range of x as low:high, x ≈ (x₈ - zero) · step for x₈ in 0:255.
        """
        x, weight, *bias = node.input
        low, high = self.ranges[x]
        step = max(high - low, 1e-6) / 255
        zero = np.uint8(np.clip(round(-low / step), 0, 255))
        is_new = f"{x}.scale" not in self.stored
        scale = self.store(f"{x}.scale", np.float32(step))
        offset = self.store(f"{x}.zero", zero)
        nodes = self.quantize_input(x, scale, offset, zero) if is_new else []
        if f"{weight}.int8" not in self.stored:
            values = numpy_helper.to_array(self.weights[weight])  # (out, in)
            steps = np.maximum(np.abs(values).max(axis=1), 1e-12) / _WEIGHT_LIMIT
            self.store(f"{weight}.int8", np.round(values / steps[:, None]).astype(np.int8).T)
            self.store(f"{weight}.scale", steps.astype(np.float32))
        given = [
            f"{x}.int8",
            f"{weight}.int8",
            scale,
            f"{weight}.scale",
            offset,
            *(["", *bias] if bias else []),
        ]
        kind = "MatMulIntegerToFloat"
        return [*nodes, make_node(kind, given, node.output, node.name, domain=_MICROSOFT)]

    def quantize_input(
        self, x: str, scale: str, offset: str, zero: np.uint8
    ) -> list[onnx.NodeProto]:
        """Make the nodes that turn x into 8 bits."""
        before = self.producer[x]
        if before.op_type == "Reshape" and before.input[0] in self.producer:
            joined = self.producer[before.input[0]]
            if joined.op_type == "Concat":
                return self.quantize_neighbours(joined, before, scale, offset)
        # What a Relu removes is below the smallest 8-bit value and removed again.
        read = before.input[0] if before.op_type == "Relu" and zero == 0 else x
        return [make_node("QuantizeLinear", [read, scale, offset], [f"{x}.int8"])]

    def quantize_neighbours(
        self, joined: onnx.NodeProto, reshaped: onnx.NodeProto, scale: str, offset: str
    ) -> list[onnx.NodeProto]:
        """Put a student's window together after each piece was made 8 bits, not three times."""
        slices = [self.producer[name] for name in joined.input]
        padded = self.producer[slices[0].input[0]]
        (read, widths), (pad,), (out,) = padded.input, padded.output, reshaped.output
        parts, whole = [f"{one.output[0]}.int8" for one in slices], f"{joined.output[0]}.int8"
        return [
            make_node("QuantizeLinear", [read, scale, offset], [f"{read}.int8"]),
            make_node("Pad", [f"{read}.int8", widths, offset], [f"{pad}.int8"]),
            *(
                make_node("Slice", [f"{pad}.int8", *one.input[1:]], [part])
                for one, part in zip(slices, parts, strict=True)
            ),
            make_node("Concat", parts, [whole], axis=2),
            make_node("Reshape", [whole, reshaped.input[1]], [f"{out}.int8"]),
        ]

    def quantize_embedding(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Look up rows of 8 bits, each times its own scale."""
        table, ids = node.input
        values = numpy_helper.to_array(self.weights[table])  # (V, D)
        steps = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-12) / 127
        self.store(f"{table}.int8", np.round(values / steps).astype(np.int8))
        self.store(f"{table}.scale", steps.astype(np.float32))
        (out,) = node.output
        return [
            make_node("Gather", [f"{table}.int8", ids], [f"{out}.int8"], axis=0),
            make_node("Gather", [f"{table}.scale", ids], [f"{out}.scale"], axis=0),  # (B, L, 1)
            make_node("Cast", [f"{out}.int8"], [f"{out}.wide"], out + _WIDE, to=TensorProto.FLOAT),
            make_node("Mul", [f"{out}.wide", f"{out}.scale"], [out], name=node.name),
        ]

"""Refuses ONNX files that could do more than compute: open files, loop, unfold without end.

The protobuf itself is searched before ONNX Runtime sees it. Does not check whether a graph is one
of ours: the runtime and the outputs of its first batch tell. docs/reliability.md has the reasons.
"""

from __future__ import annotations

import math
from collections import Counter

from ..errors import BundleError, clean_text
from ..protobuf import read_fields

# How onnx.proto reaches its tensors and nodes: message -> number of a field -> message.
_SCHEMA: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "SparseTensor",
                  23: "SparseTensor"},
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {},
}  # fmt: skip
_NODE_TYPE, _NODE_DOMAIN, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 4, 7, 13, 14
_MAX_DEPTH = 40  # graphs inside attributes of nodes; ours have none
_MAX_NODES = 100_000  # with all functions unfolded; the largest of ours has some 3,000
# Ops of networks: each is one computation, none holds another graph, draws lots or reads text.
_OP_NAMES = """
Abs Add And ArgMax ArgMin Attention AveragePool BatchNormalization Cast CastLike Ceil Celu Clip
Concat Constant Conv Cos CumSum DequantizeLinear Div DynamicQuantizeLinear Einsum Elu Equal Erf
Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool
Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Hardmax Identity
InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
MatMul MatMulInteger Max MaxPool Mean Min Mish Mod Mul Neg Not Or PRelu Pad Pow QLinearMatMul
QuantizeLinear RMSNormalization Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape RotaryEmbedding
Round ScatterElements ScatterND Selu Shape Sigmoid Sign Sin Size Slice Softmax Softplus Softsign
Split Sqrt Squeeze Sub Sum Swish Tanh Tile TopK Transpose Trilu Unsqueeze Where Xor
"""
_OPS = frozenset(_OP_NAMES.split())
_MICROSOFT_OPS = frozenset({"MatMulIntegerToFloat", "DynamicQuantizeMatMul", "Gelu"})
OpCounts = Counter[tuple[str, str]]  # by domain and type
_OWN_DOMAIN = "mx"  # of our functions, and of kernels that take their place


def check_self_contained(data: bytes, where: str) -> None:
    """Raise BundleError if an ONNX model keeps tensors, or code it runs, in other files."""
    waiting: list[tuple[str, memoryview, int]] = [("Model", memoryview(data), 0)]
    graphs = 0
    while waiting:
        message, view, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise BundleError(f"{where} is nested too deeply to be one of our graphs")
        try:
            for number, value, *_ in read_fields(view):
                if message == "Tensor" and (
                    number == _TENSOR_EXTERNAL or (number == _TENSOR_LOCATION and value != 0)
                ):
                    raise BundleError(
                        f"{where} keeps weights in another file, which a bundle must not do"
                    )
                if message == "Node" and number == _NODE_TYPE and value == memoryview(b"EPContext"):
                    raise BundleError(f"{where} loads compiled code, which a bundle must not do")
                inner = _SCHEMA[message].get(number)
                if inner and isinstance(value, memoryview):
                    waiting.append((inner, value, depth + 1))
                    graphs += message == "Model" and inner == "Graph"
            if message == "Tensor":
                _check_tensor(view, len(data), where)
        except (IndexError, ValueError):
            raise BundleError(f"{where} is not a valid ONNX file") from None
    if graphs != 1:
        raise BundleError(f"{where} is not a valid ONNX file")


def check_ops(data: bytes, where: str) -> None:
    """Raise BundleError if an ONNX model, checked as above, has ops that no model of ours needs.

    Functions are followed: they must not call themselves, nor unfold to too many nodes.
    """
    try:
        main, bodies = _read_ops(data, where)
    except (IndexError, ValueError):
        raise BundleError(f"{where} is not a valid ONNX file") from None
    for domain, op in {*main, *(op for body in bodies.values() for op in body)}:
        allowed = {"": _OPS, "ai.onnx": _OPS, "com.microsoft": _MICROSOFT_OPS}.get(domain, ())
        if domain != _OWN_DOMAIN and (op not in allowed or (domain, op) in bodies):
            name = clean_text(f"{domain}.{op}" if domain else op)[:60]
            raise BundleError(
                f"{where} has the op {name}, which no model of mx-align needs: it is not loaded; "
                "make the bundle again with mx-export"
            )
    _check_unfolding(main, bodies, where)


def _read_ops(data: bytes, where: str) -> tuple[OpCounts, dict[tuple[str, str], OpCounts]]:
    """Return how often each op stands in the graph, and in each function."""
    bodies: dict[tuple[str, str], OpCounts] = {}
    main: OpCounts = Counter()
    for number, value, *_ in read_fields(data):
        if number == 20:
            raise BundleError(f"{where} has a graph for training, which a bundle must not have")
        if number == 7 and isinstance(value, memoryview):
            main = _count_ops(value, 1, where)
        if number == 25 and isinstance(value, memoryview):
            bodies[_read_name(value, 1, 10)] = _count_ops(value, 7, where)
    return main, bodies


def _check_unfolding(main: OpCounts, bodies: dict[tuple[str, str], OpCounts], where: str) -> None:
    """Let each function be known only when all that it calls are: a circle never is."""
    sizes: dict[tuple[str, str], int] = {}
    left = dict(bodies)
    while ready := [name for name, body in left.items() if not body.keys() & left.keys()]:
        for name in ready:
            sizes[name] = sum(n * sizes.get(op, 1) for op, n in left[name].items())
        for name in ready:
            del left[name]
    total = sum(n * sizes.get(op, 1) for op, n in main.items())
    if left or total > _MAX_NODES:
        raise BundleError(f"{where} unfolds to too many nodes to be one of our graphs")


def _count_ops(message: memoryview, nodes: int, where: str) -> OpCounts:
    """Return the domains and types of the nodes of a graph or a function, and how many of each."""
    found: OpCounts = Counter()
    for number, node, *_ in read_fields(message):
        if number != nodes or not isinstance(node, memoryview):
            continue
        name = _read_name(node, _NODE_TYPE, _NODE_DOMAIN)
        found[name] += 1
        attributes = [value for inner, value, *_ in read_fields(node) if inner == 5]
        for attribute in attributes:
            if isinstance(attribute, int) or any(n in (6, 11) for n, *_ in read_fields(attribute)):
                raise BundleError(
                    f"{where}: the op {clean_text(name[1])[:60]} holds another graph, which no "
                    "model of mx-align does: it is not loaded"
                )
    return found


def _read_name(message: memoryview, name: int, domain: int) -> tuple[str, str]:
    """Return domain and name of a node or a function."""
    fields = {number: value for number, value, *_ in read_fields(message)}
    texts = (fields.get(number, b"") for number in (domain, name))
    first, second = (bytes(t).decode("utf-8") if not isinstance(t, int) else "" for t in texts)
    return first, second


def _check_tensor(view: memoryview, size: int, where: str) -> None:
    """Refuse a tensor whose shape needs more bytes than the whole file has."""
    dims: list[int] = []
    for number, value, *_ in read_fields(view):
        if number == 1 and isinstance(value, int):
            dims.append(value)
        elif number == 1 and isinstance(value, memoryview):
            dims += _read_packed(value)
    # Eight values to a byte: the smallest types take four bits.
    if any(dim >= 1 << 40 for dim in dims) or math.prod(dims) > 8 * size:
        raise BundleError(f"{where} has a tensor that is larger than the file")


def _read_packed(view: memoryview) -> list[int]:
    """Return the numbers of a packed field."""
    values, value, shift = [], 0, 0
    for byte in view:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    return values

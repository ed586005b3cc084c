"""Refuses ONNX files that would make the runtime open other files.

Does not check whether a graph is one of ours: the runtime does that when it loads it.
"""

from __future__ import annotations

from ..errors import BundleError
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
_NODE_TYPE, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 4, 13, 14
_MAX_DEPTH = 40  # graphs inside attributes of nodes; ours have none


def check_self_contained(data: bytes, where: str) -> None:
    """Raise BundleError if an ONNX model keeps tensors, or code it runs, in other files.

    ONNX Runtime would open such a file wherever it is, so the protobuf itself is searched before
    the runtime sees the model.
    """
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
        except (IndexError, ValueError):
            raise BundleError(f"{where} is not a valid ONNX file") from None
    if graphs != 1:
        raise BundleError(f"{where} is not a valid ONNX file")

"""Our ops in a graph: which there are, and those that become TensorRT plugins.
Knows the bytes of an ONNX file; the plugins themselves are registered by `tensorrt_api`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

DOMAIN = "mx"
# Ops of the graph -> the kernels that can stand in for them. A graph need not have any of them.
KERNEL_OF = {"StaticAttention": "static_attention", "LeakyAttention": "leaky_attention"}

_NODE_TYPE, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_MODEL_GRAPH, _GRAPH_NODE = 7, 1


def mark(graph: bytes, ops: Collection[str], namespace: str) -> bytes:
    """The graph with calls of these ops of ours marked as plugins of a namespace.

    TensorRT inlines a node whose function is in the file, unless it has the attribute
    `plugin_namespace` and such a plugin is registered. Nothing else is changed, so the same
    functions still say what is meant.
    """
    wanted = {op.encode() for op in ops}

    def change(content: bytes) -> bytes:
        return _rewrite(content, _GRAPH_NODE, lambda node: _node(node, wanted, namespace))

    return _rewrite(graph, _MODEL_GRAPH, change)


def count(graph: bytes, op: str) -> int:
    """How many calls of an op of ours a graph has."""
    wanted, found = op.encode(), 0
    for field, body in _messages(graph):
        if field == _MODEL_GRAPH:
            for inner, node in _messages(body):
                found += inner == _GRAPH_NODE and _is_ours(node, {wanted})
    return found


def link_weights(graph: bytes) -> tuple[str, str]:
    """The two outputs whose harmonic mean is the score of a link. A model may combine its
    directions in another way than Symmetrize: the harmonic mean of `scores` and itself is right
    for every one."""
    return ("fwd", "bwd") if count(graph, "Symmetrize") else ("scores", "scores")


def _is_ours(node: bytes, wanted: Collection[bytes]) -> bool:
    values = dict(_messages(node))
    return values.get(_NODE_DOMAIN) == DOMAIN.encode() and values.get(_NODE_TYPE) in wanted


def _node(node: bytes, wanted: Collection[bytes], namespace: str) -> bytes:
    if not _is_ours(node, wanted):
        return node
    # AttributeProto: name = 1, s = 4, type = 20 (3: a string).
    attribute = _field(1, b"plugin_namespace") + _field(4, namespace.encode()) + b"\xa0\x01\x03"
    return node + _field(_NODE_ATTRIBUTE, attribute)


# ---- protobuf, as far as needed ----


def _rewrite(message: bytes, field: int, change: Callable[[bytes], bytes]) -> bytes:
    """The message with every sub-message of a field changed."""
    parts = []
    for number, start, body, end in _spans(message):
        if number == field and body is not None:
            parts.append(_field(field, change(bytes(message[body:end]))))
        else:
            parts.append(message[start:end])
    return b"".join(parts)


def _messages(message: bytes) -> Iterator[tuple[int, bytes]]:
    for number, _, body, end in _spans(message):
        if body is not None:
            yield number, message[body:end]


def _spans(message: bytes) -> Iterator[tuple[int, int, int | None, int]]:
    """Field number, where it starts, where its content does if it has a length, where it ends."""
    place = 0
    while place < len(message):
        start = place
        key, place = _read_varint(message, place)
        kind, body = key & 7, None
        if kind == 0:
            _, place = _read_varint(message, place)
        elif kind == 2:
            size, body = _read_varint(message, place)
            place = body + size
        else:
            place += {1: 8, 5: 4}[kind]
        yield key >> 3, start, body, place


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content

"""What a model's ONNX graph takes and gives, and which ops of ours it calls.

Reads the bytes of the file itself, so that the engine does without the onnx package.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..protobuf import read_fields

INPUTS = ("src", "src_lengths", "tgt", "tgt_lengths")  # (B, S), (B,), (B, T), (B,)
OUTPUTS = ("scores", "fwd", "bwd", "fwd_null", "bwd_null")  # 3 x (B, S, T), (B, T), (B, S)
DOMAIN = "mx"  # of our ops, each a function of the graph made of standard ops

# Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_NODE = 7, 1
_NODE_TYPE, _NODE_DOMAIN = 4, 7


def count_op(graph: bytes, op: str) -> int:
    """Count the calls of an op of ours."""
    parts = _read_messages(graph, _MODEL_GRAPH)
    return sum(
        _calls_ours(node, [op]) for part in parts for node in _read_messages(part, _GRAPH_NODE)
    )


def link_outputs(graph: bytes) -> tuple[str, str]:
    """Name the two outputs whose harmonic mean is the score of a link.

    A model may combine its directions in another way than Symmetrize: the harmonic mean of
    `scores` and itself is right for every one.
    """
    return ("fwd", "bwd") if count_op(graph, "Symmetrize") else ("scores", "scores")


def is_batch_invariant(graph: bytes) -> bool:
    """Tell whether a pair's result is the same in every batch.

    A graph that scales whole tensors by their range, as dynamic quantization does, mixes the pairs
    of a batch.
    """
    return b"DynamicQuantizeLinear" not in graph


def _calls_ours(node: bytes | memoryview, ops: Collection[str]) -> bool:
    kind, domain = (b"".join(_read_messages(node, number)) for number in (_NODE_TYPE, _NODE_DOMAIN))
    return domain == DOMAIN.encode() and kind.decode() in ops


def _read_messages(message: bytes | memoryview, number: int) -> Iterator[memoryview]:
    """Yield the content of every field of this number that holds text or a message."""
    for field in read_fields(message):
        if field.number == number and isinstance(field.value, memoryview):
            yield field.value

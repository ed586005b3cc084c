"""Take the posterior out of a graph of Mask-Align, to read its prior instead.

The graph computes both, one after the other. ONNX Runtime would compute what nobody asks for, too,
so nodes and weights that nothing depends on any more are left out. Reads the bytes of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..protobuf import encode_field, read_fields

# Ops of ours that turn weights, and NULL's if there is NULL, into posteriors: their first inputs
# are what their outputs are made of.
POSTERIORS = (b"LeakyPosterior", b"Posterior")
_DOMAIN = b"mx"

# Field numbers of onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_OUTPUT = 1, 5, 12
_NODE_INPUT, _NODE_OUTPUT, _NODE_TYPE, _NODE_DOMAIN = 1, 2, 4, 7
_TENSOR_NAME, _VALUE_NAME = 8, 1


def read_prior(model: bytes) -> bytes:
    """Return a graph whose outputs are the weights before the word was known."""
    parts = []
    for field in read_fields(model):
        if field.number == _MODEL_GRAPH and isinstance(field.value, memoryview):
            parts.append(encode_field(_MODEL_GRAPH, _drop_posterior(bytes(field.value))))
        else:
            parts.append(model[field.start : field.end])
    return b"".join(parts)


def _drop_posterior(graph: bytes) -> bytes:
    """Return the graph with identities for posteriors, and without what only these needed."""
    needed = {
        name
        for value in _find_texts(graph, _GRAPH_OUTPUT)
        for name in _find_texts(value, _VALUE_NAME)
    }
    nodes: list[bytes] = []
    for node in _find_texts(graph, _GRAPH_NODE):
        nodes += _replace_posterior(node)
    kept: list[bytes] = []
    for node in reversed(nodes):  # a graph is sorted: those that read come behind
        if needed.intersection(_find_texts(node, _NODE_OUTPUT)):
            kept.append(encode_field(_GRAPH_NODE, node))
            needed.update(_find_texts(node, _NODE_INPUT))
    parts = [*reversed(kept)]
    for field in read_fields(graph):
        if field.number == _GRAPH_NODE:
            continue
        if field.number == _GRAPH_INITIALIZER:
            tensor = graph[field.start : field.end]
            (names,) = (
                [*_find_texts(value, _TENSOR_NAME)]
                for value in _find_texts(tensor, _GRAPH_INITIALIZER)
            )
            if needed.isdisjoint(names):
                continue
        parts.append(graph[field.start : field.end])
    return b"".join(parts)


def _replace_posterior(node: bytes) -> list[bytes]:
    """Return the node, or for a posterior one identity for each of its outputs."""
    kind, domain = ([*_find_texts(node, number)] for number in (_NODE_TYPE, _NODE_DOMAIN))
    if domain != [_DOMAIN] or kind[0] not in POSTERIORS:
        return [node]
    outputs = list(_find_texts(node, _NODE_OUTPUT))
    return [
        encode_field(_NODE_INPUT, given)
        + encode_field(_NODE_OUTPUT, made)
        + encode_field(_NODE_TYPE, b"Identity")
        for given, made in zip(_find_texts(node, _NODE_INPUT), outputs, strict=False)
    ]


def _find_texts(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the content of every field of this number that holds text or a message."""
    for field in read_fields(message):
        if field.number == number and isinstance(field.value, memoryview):
            yield bytes(field.value)

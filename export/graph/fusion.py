"""Turn plain attention into named ops of our domain `mx`, each a function made of standard ops.

A rule is the function itself: wherever the graph has the ops of its body, a call replaces them.
So a runtime without our kernels inlines the body and computes exactly what the plain graph did,
and one with a kernel of that name runs it instead. Does not need torch.

    MaskedAttention(q, k, v, mask)            softmax(q kᵀ + mask) v
    StaticAttention(q, k, v, lengths, mask)   the same, zero in sentences of one piece; `mask` hides
                                              each row's own key and those beyond `lengths`
    LeakyAttention(q, k, null_key, mask)      head-mean weights (B, T, S) and NULL's (B, T)
    CrossAttention(q, k, mask)                head-mean weights (B, T, S), without NULL
    NormGradient(x, gradient, gain)           the gradient for x, given that of its layer norm
    LeakyPosterior(weights, null, gradient, updates, null_update, mask)
                                              softmax(log weights + g·o) (B, T, S), and NULL's
    Posterior(weights, gradient, updates, mask)   the same without NULL
    Symmetrize(fwd, bwd, src_lengths, tgt_lengths)
                                              harmonic mean, fwd and bwd, (B, S, T), zero outside

q, k and v are (B, L, D) with the heads side by side, `heads` many (an attribute); queries come
scaled, and q may have B = 1 for all pairs. Masks are additive: (B, 1, 1 or L, L).
"""

from collections import defaultdict
from copy import deepcopy
from string import Template
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from ...engine.errors import MxError
from ...engine.runtime.model_graph import DOMAIN
from ...trainer.config import ModelConfig
from .builder import OPSET

DOMAIN_VERSION = 1

_SPLIT = """split = Constant <value = int64[4] {0, 0, $heads, $head_width}> ()
    q4 = Reshape (q, split)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4)
    k4 = Reshape (k, split)
    kh = Transpose <perm = [0, 2, 3, 1]> (k4)
    raw = MatMul (qh, kh)"""
_ATTEND = """$split
    scores = Add (raw, mask)
    weights = Softmax <axis = -1> (scores)
    v4 = Reshape (v, split)
    vh = Transpose <perm = [0, 2, 1, 3]> (v4)
    mixed = MatMul (weights, vh)
    mixed4 = Transpose <perm = [0, 2, 1, 3]> (mixed)
    joined = Constant <value = int64[3] {0, 0, $width}> ()"""
_SCORES = """$split
    real = Cast <to = 1> (raw)
    real_mask = Cast <to = 1> (mask)
    seen = Add (real, real_mask)
    over_heads = Constant <value = int64[1] {1}> ()"""
_BAYES = """least = Constant <value = float {1e-9}> ()
    one = Constant <value = int64[1] {1}> ()
    some = Max (weights, least)
    log = Log (some)
    turned = Transpose <perm = [0, 2, 1]> (updates)
    product = MatMul (gradient, turned)
    likely = Cast <to = 1> (product)
    both = Add (log, likely)
    real_mask = Cast <to = 1> (mask)
    mask3 = Squeeze (real_mask, one)
    seen = Add (both, mask3)"""

# Larger bodies first: StaticAttention contains MaskedAttention. Not plain "Attention": the TensorRT
# parser takes an op of that name for the standard one, whatever its domain.
_FUNCTIONS = """\
StaticAttention <heads> (q, k, v, lengths, mask) => (out) {
    $attend
    found = Reshape (mixed4, joined)
    two = Constant <value = int32 {2}> ()
    alone = Less (lengths, two)
    others = Not (alone)
    axes = Constant <value = int64[2] {1, 2}> ()
    others3 = Unsqueeze (others, axes)
    keep = CastLike (others3, found)
    out = Mul (found, keep)
}

MaskedAttention <heads> (q, k, v, mask) => (out) {
    $attend
    out = Reshape (mixed4, joined)
}

LeakyAttention <heads> (q, k, null_key, mask) => (weights, null) {
    $scores
    null_shape = Constant <value = int64[3] {$heads, $head_width, 1}> ()
    null_column = Reshape (null_key, null_shape)
    null_raw = MatMul (qh, null_column)
    null_real = Cast <to = 1> (null_raw)
    all = Concat <axis = -1> (null_real, seen)
    each = Softmax <axis = -1> (all)
    mean = ReduceMean <keepdims = 0> (each, over_heads)
    zero = Constant <value = int64[1] {0}> ()
    one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64[1] {2}> ()
    end = Constant <value = int64[1] {9223372036854775807}> ()
    weights = Slice (mean, one, end, two)
    null3 = Slice (mean, zero, one, two)
    null = Squeeze (null3, two)
}

CrossAttention <heads> (q, k, mask) => (weights) {
    $scores
    each = Softmax <axis = -1> (seen)
    weights = ReduceMean <keepdims = 0> (each, over_heads)
}

NormGradient (x, gradient, gain) => (out) {
    last = Constant <value = int64[1] {-1}> ()
    real = Cast <to = 1> (x)
    level = ReduceMean (real, last)
    centred = Sub (real, level)
    squared = Mul (centred, centred)
    variance = ReduceMean (squared, last)
    epsilon = Constant <value = float {1e-5}> ()
    steady = Add (variance, epsilon)
    deviation = Sqrt (steady)
    unit = Div (centred, deviation)
    gained = Mul (gradient, gain)
    scaled = Cast <to = 1> (gained)
    product = Mul (scaled, unit)
    along = ReduceMean (product, last)
    scaled_level = ReduceMean (scaled, last)
    flat = Sub (scaled, scaled_level)
    lost = Mul (unit, along)
    rest = Sub (flat, lost)
    divided = Div (rest, deviation)
    out = CastLike (divided, x)
}

LeakyPosterior (weights, null, gradient, updates, null_update, mask) => (shares, null_share) {
    $bayes
    null_vector = Unsqueeze (null_update, one)
    null_product = MatMul (gradient, null_vector)
    null_likely = Cast <to = 1> (null_product)
    two = Constant <value = int64[1] {2}> ()
    null3 = Unsqueeze (null, two)
    null_some = Max (null3, least)
    null_log = Log (null_some)
    null_both = Add (null_log, null_likely)
    all = Concat <axis = -1> (null_both, seen)
    each = Softmax <axis = -1> (all)
    zero = Constant <value = int64[1] {0}> ()
    end = Constant <value = int64[1] {9223372036854775807}> ()
    shares = Slice (each, one, end, two)
    null_share3 = Slice (each, zero, one, two)
    null_share = Squeeze (null_share3, two)
}

Posterior (weights, gradient, updates, mask) => (posterior) {
    $bayes
    posterior = Softmax <axis = -1> (seen)
}

Symmetrize (fwd, bwd, src_lengths, tgt_lengths) => (scores, fwd_st, bwd_st) {
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    two = Constant <value = int64 {2}> ()
    first = Constant <value = int64[1] {1}> ()
    second = Constant <value = int64[1] {2}> ()
    src_shape = Shape (bwd)
    n_src = Gather <axis = 0> (src_shape, one)
    src_range = Range (zero, n_src, one)
    src_place = Cast <to = 6> (src_range)
    src_column = Unsqueeze (src_lengths, first)
    src_valid = Less (src_place, src_column)
    tgt_shape = Shape (bwd)
    n_tgt = Gather <axis = 0> (tgt_shape, two)
    tgt_range = Range (zero, n_tgt, one)
    tgt_place = Cast <to = 6> (tgt_range)
    tgt_column = Unsqueeze (tgt_lengths, first)
    tgt_valid = Less (tgt_place, tgt_column)
    src3 = Unsqueeze (src_valid, second)
    tgt3 = Unsqueeze (tgt_valid, first)
    inside = And (src3, tgt3)
    cells = Cast <to = 1> (inside)
    turned = Transpose <perm = [0, 2, 1]> (fwd)
    fwd_st = Mul (turned, cells)
    bwd_st = Mul (bwd, cells)
    sum = Add (fwd_st, bwd_st)
    tiny = Constant <value = float {1e-30}> ()
    total = Max (sum, tiny)
    product = Mul (fwd_st, bwd_st)
    double = Constant <value = float {2.0}> ()
    doubled = Mul (product, double)
    scores = Div (doubled, total)
}
"""


def make_functions(width: int, heads: int) -> list[onnx.FunctionProto]:
    """Make the ops for a network of this shape, in the order in which they are looked for."""
    sizes = {"width": width, "heads": heads, "head_width": width // heads}
    header = f'<domain: "{DOMAIN}", opset_import: ["" : {OPSET}]>\n'
    text = _FUNCTIONS
    bodies = {"attend": _ATTEND, "scores": _SCORES, "bayes": _BAYES}
    for parts in (bodies, {"split": _SPLIT}, sizes):
        text = Template(text).safe_substitute(parts)
    return [parser.parse_function(header + function) for function in text.split("\n\n")]


def count_expected(config: ModelConfig) -> dict[str, int]:
    """Return how often each op must appear in the graph of such a model.

    Attention appears twice, for two directions.
    """
    if config.kind == "student":
        return {"Symmetrize": 1}
    layers, attention = config.decoder_layers, config.encoder_layers
    if config.cross == "all":
        attention += layers - 1
    counts = {
        "MaskedAttention": 2 * (attention if config.masked else attention + layers),
        "StaticAttention": 2 * layers if config.masked else 0,
        "LeakyAttention": 2 if config.leaky else 0,
        "CrossAttention": 0 if config.leaky else 2,
        "NormGradient": 4,
        "LeakyPosterior": 2 if config.leaky else 0,
        "Posterior": 0 if config.leaky else 2,
        "Symmetrize": 1,
    }
    return {name: count for name, count in counts.items() if count}


def check_counts(counts: dict[str, int], config: ModelConfig) -> None:
    """Raise MxError if an attention of the model was not found: the graph is not what we take it
    for."""
    for name, wanted in count_expected(config).items():
        if counts.get(name, 0) != wanted:
            raise MxError(
                f"the graph has {counts.get(name, 0)} {DOMAIN}.{name} instead of {wanted}: "
                "its attention was not recognised, so it is not exported"
            )


def fuse_attention(
    model: onnx.ModelProto, config: ModelConfig
) -> tuple[onnx.ModelProto, dict[str, int]]:
    """Return a copy with calls of our ops, and how often each was put in."""
    fused = deepcopy(model)
    counts = {}
    for function in make_functions(config.width, config.heads):
        count = FunctionRewrite(fused.graph, function, config.heads).run()
        if count:
            fused.functions.append(function)
            counts[function.name] = count
    fused.opset_import.append(helper.make_opsetid(DOMAIN, DOMAIN_VERSION))
    return fused, counts


class FunctionRewrite:
    """One pass over a graph that replaces each occurrence of a function's body by a call.

    A body is matched from its first output backwards. For the function f(x) = Add(Mul(x, x), 1) and
    the graph's c = Add(b, one), b = Mul(a, a): Add matches c, so Mul must match b, and x is a; both
    inputs of Mul are the same x, as they must be. `found` maps the body's names to the graph's.
    """

    def __init__(self, graph: onnx.GraphProto, function: onnx.FunctionProto, heads: int) -> None:
        self.graph = graph
        self.function = function
        self.attributes: dict[str, Any] = {"heads": heads} if "heads" in function.attribute else {}
        self.producer = {out: node for node in graph.node for out in node.output}
        self.consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in graph.node:
            for name in set(node.input):
                self.consumers[name].append(node)
        self.stored = {tensor.name: tensor for tensor in graph.initializer}
        self.body = {out: node for node in function.node for out in node.output}

    def run(self) -> int:
        """Rewrite the graph; return the number of calls."""
        calls: list[onnx.NodeProto] = []
        name, root = self.function.name, self.body[self.function.output[0]]
        for node in self.graph.node:
            found: dict[str, str] = {}
            if self.match_node(root, node, found) and self.match_rest(found):
                inputs, outputs = (
                    [found[value] for value in values]
                    for values in (self.function.input, self.function.output)
                )
                call = helper.make_node(
                    name, inputs, outputs, f"{name}_{len(calls)}", domain=DOMAIN, **self.attributes
                )
                calls.append(call)
        replaced = {name for call in calls for name in call.output}
        others = [node for node in self.graph.node if not replaced.intersection(node.output)]
        replace_nodes(self.graph, others + calls)
        return len(calls)

    def match_value(self, wanted: str, value: str, found: dict[str, str]) -> bool:
        """Tell whether the body's value `wanted` can be the graph's `value`; note it in `found`."""
        if wanted in found:
            return found[wanted] == value
        if wanted in self.function.input:
            found[wanted] = value
            return True
        node = self.body[wanted]
        if node.op_type == "Constant":
            return value in self.stored and equal_tensors(node.attribute[0].t, self.stored[value])
        return value in self.producer and self.match_node(node, self.producer[value], found)

    def match_node(
        self, wanted: onnx.NodeProto, node: onnx.NodeProto, found: dict[str, str]
    ) -> bool:
        if describe_node(wanted) != describe_node(node):
            return False
        pairs = zip(wanted.input, node.input, strict=True)
        if not all(self.match_value(w, value, found) for w, value in pairs):
            return False
        found.update(zip(wanted.output, node.output, strict=True))
        return True

    def match_rest(self, found: dict[str, str]) -> bool:
        """Tell whether the parts of the body that only lead to other outputs are there as well."""
        for wanted in self.function.node:
            if wanted.op_type == "Constant" or wanted.output[0] in found:
                continue
            near = [found[name] for name in wanted.input if name in found]
            options = self.consumers[near[0]] if near else []
            for node in options:
                trial = dict(found)
                if self.match_node(wanted, node, trial):
                    found.update(trial)
                    break
            else:
                return False
        return True


def describe_node(node: onnx.NodeProto) -> tuple[Any, ...]:
    """Return all that two nodes must share to compute the same of the same inputs."""
    attributes = {a.name: a.SerializeToString(deterministic=True) for a in node.attribute}
    return node.op_type, node.domain, len(node.input), attributes


def equal_tensors(first: onnx.TensorProto, second: onnx.TensorProto) -> bool:
    a, b = numpy_helper.to_array(first), numpy_helper.to_array(second)
    return a.dtype == b.dtype and np.array_equal(a, b)


def replace_nodes(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    """Give the graph other nodes, in any order; what no output depends on is left out, weights
    too."""
    producer = {out: node for node in nodes for out in node.output}
    waiting = [output.name for output in graph.output]
    needed: set[str] = set()  # by an output, and not in its place yet
    while waiting:
        name = waiting.pop()
        if name in producer and name not in needed:
            needed.update(producer[name].output)
            waiting += producer[name].input
    ordered: list[onnx.NodeProto] = []

    def place_node(node: onnx.NodeProto) -> None:
        """Put a node behind those it reads from."""
        if node.output[0] in needed:
            needed.difference_update(node.output)
            for name in reversed(node.input):
                if name in producer:
                    place_node(producer[name])
            ordered.append(node)

    for node in nodes:
        place_node(node)
    read = {name for node in ordered for name in node.input}
    stored = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(ordered)
    graph.initializer.extend(stored)

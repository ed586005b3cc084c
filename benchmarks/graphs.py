"""Times each form of the graph on one CPU thread against eager PyTorch, in pairs a second.

    python -m mx_align.benchmarks.graphs --quick
    python -m mx_align.benchmarks.graphs --preset paper --preset compact -o graphs.json

The forms take turns, so that whatever else the machine does hits all of them alike.

Weights are random: speed does not depend on them. Times are CPU seconds; "of peak" is the share
of what one large fp32 matrix product reaches on the same thread.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper, parser

from ..engine.runtime.model_graph import DOMAIN, INPUTS
from ..export.check.probe import make_feeds
from ..export.graph.builder import Feeds
from ..export.graph.dtypes import convert_to_fp16, convert_to_int8, find_ranges
from ..export.graph.fusion import fuse_attention
from ..export.graph.plain import build_plain_graph, collect_weights
from ..trainer.config import ModelConfig, resolve_config
from ..trainer.data.batches import group_by_length
from ..trainer.networks.mask_align import MaskAlign, harmonic_mean
from . import records

VOCABULARY = 8000
BATCH_TOKENS = 1024  # of the longer side, as in the engine

Run = Callable[[], object]

# ---- the standard Attention op inside our functions, to compare with ----

_STANDARD = """
    batch = Shape <start = 0, end = 1> (k)
    rows = Shape <start = 1, end = 2> (q)
    columns = Shape <start = 1, end = 2> (k)
    one = Constant <value = int64[1] {{1}}> ()
    width = Constant <value = int64[1] {{{width}}}> ()
    q_shape = Concat <axis = 0> (batch, rows, width)
    q_all = Expand (q, q_shape)
    mask_shape = Concat <axis = 0> (batch, one, rows, columns)
    mask_all = Expand (mask, mask_shape)
    found = Attention <q_num_heads = {heads}, kv_num_heads = {heads}, scale = 1.0>
        (q_all, k, v, mask_all)
"""
_BODIES = {
    "MaskedAttention": "MaskedAttention <heads> (q, k, v, mask) => (out) {{"
    + _STANDARD
    + "out = Identity (found) }}",
    "StaticAttention": "StaticAttention <heads> (q, k, v, lengths, mask) => (out) {{"
    + _STANDARD
    + """
    two = Constant <value = int32 {{2}}> ()
    alone = Less (lengths, two)
    others = Not (alone)
    axes = Constant <value = int64[2] {{1, 2}}> ()
    others3 = Unsqueeze (others, axes)
    keep = CastLike (others3, found)
    out = Mul (found, keep)
}}""",
}


def with_standard_attention(model: onnx.ModelProto, config: ModelConfig) -> onnx.ModelProto:
    """Return a fused graph whose attentions are the `Attention` op of opset 23."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version, copy.opset_import[0].version = 11, 23
    for function in copy.functions:
        if function.name in _BODIES:
            header = f'<domain: "{DOMAIN}", opset_import: ["" : 23]>\n'
            body = _BODIES[function.name].format(width=config.width, heads=config.heads)
            function.CopyFrom(parser.parse_function(header + body))
        function.opset_import[0].version = 23
    return copy


# ---- work ----


def make_batches(pairs: int, mean: float, random_seed: int = 1) -> list[Feeds]:
    """Make random pairs with lengths like those of real text, in batches of similar length."""
    rng = np.random.default_rng(random_seed)
    source = rng.lognormal(np.log(mean) - 0.15, 0.55, pairs)
    target = source * rng.lognormal(0, 0.2, pairs)
    lengths = [np.clip(side, 2, 100).astype(int) for side in (source, target)]
    groups = group_by_length(lengths[0], lengths[1], BATCH_TOKENS)
    return [
        make_feeds(
            [rng.integers(1, VOCABULARY, lengths[0][i], np.int32) for i in group],
            [rng.integers(1, VOCABULARY, lengths[1][i], np.int32) for i in group],
        )
        for group in groups
    ]


def count_flops(config: ModelConfig, batch: Feeds) -> float:
    """Count the operations of all matrix products for a batch, padding included."""
    pairs = len(batch["src_lengths"])
    width, ff, layers = config.width, config.ff, config.decoder_layers
    total = 0.0
    for read, predict in (("src", "tgt"), ("tgt", "src")):
        source, target = batch[read].shape[1], batch[predict].shape[1]
        block = 2 * width * ff  # a feed-forward layer, for one piece
        encoder = source * (4 * width**2 + block) + 2 * source**2 * width
        decoder = target * 4 * width**2 + 2 * target**2 * width
        total += 2 * pairs * (config.encoder_layers * encoder + layers * decoder)
        total += 2 * pairs * (layers - 1) * target * block
        total -= 2 * (pairs - 1) * target * width**2  # the first queries, once a batch
        total += 2 * pairs * ((source + target) * width**2 + source * target * width)
    return total


def open_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Open a graph on one thread that does not spin."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def peak_product(size: int = 1024) -> Run:
    """Return what computes one large fp32 product with a constant matrix."""
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((size, size)).astype(np.float32)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "peak",
        [value("x", TensorProto.FLOAT, [size, size])],
        [value("y", TensorProto.FLOAT, [size, size])],
        [numpy_helper.from_array(matrix, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    run = open_session(model)
    return lambda: run.run(None, {"x": matrix})


def eager_torch(model: MaskAlign, batches: list[Feeds]) -> Run:
    """Return what runs the network over all batches in eager PyTorch."""
    ready = [[torch.from_numpy(batch[name]).long() for name in INPUTS] for batch in batches]

    @torch.inference_mode()
    def run() -> None:
        for inputs in ready:
            fwd, bwd = model(*inputs)
            harmonic_mean(fwd.weights, bwd.weights)

    return run


def run_batches(model: onnx.ModelProto, batches: list[Feeds], outputs: list[str] | None) -> Run:
    made = open_session(model)
    return lambda: [made.run(outputs, batch) for batch in batches]


def graph_forms(config: ModelConfig, batches: list[Feeds], with_half: bool) -> dict[str, Run]:
    """Return each form of the network, ready to run over all batches."""
    torch.manual_seed(1)
    model = MaskAlign(config).eval()
    plain = build_plain_graph(config, collect_weights(model))
    fused, _ = fuse_attention(plain, config)
    few = [{name: value[:1] for name, value in batch.items()} for batch in batches[:3]]
    scores = ["scores"]
    made = {
        "PyTorch eager": eager_torch(model, batches),
        "plain": run_batches(plain, batches, scores),
        "fused (fp32 of the bundle)": run_batches(fused, batches, scores),
        "fused, all outputs": run_batches(fused, batches, None),
        "fused, Attention op": run_batches(with_standard_attention(fused, config), batches, scores),
        "int8": run_batches(convert_to_int8(fused, find_ranges(fused, few)), batches, scores),
    }
    if with_half:
        made["fp16 (made for GPUs)"] = run_batches(convert_to_fp16(fused), batches, scores)
    return made


def time_in_turns(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Return CPU seconds of each, in turns, after one run to warm up."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return seconds


def measure_preset(preset: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time all forms of one preset."""
    config = replace(resolve_config(preset).model, src_vocab=VOCABULARY, tgt_vocab=VOCABULARY)
    batches = make_batches(arguments.pairs, arguments.mean_length)
    work = sum(count_flops(config, batch) for batch in batches)
    size = 1024
    runs = {"peak": peak_product(size), **graph_forms(config, batches, arguments.fp16)}
    seconds = time_in_turns(runs, arguments.rounds)
    top = 2 * size**3 / statistics.median(seconds.pop("peak"))
    rows = {}
    for name, values in seconds.items():
        typical = statistics.median(values)
        rows[name] = {
            "pairs_per_second": round(arguments.pairs / typical, 1),
            "slowest": round(arguments.pairs / max(values), 1),
            "fastest": round(arguments.pairs / min(values), 1),
            "of_peak": round(work / typical / top, 3),
        }
    return {
        "gflop_per_pair": round(work / arguments.pairs / 1e9, 4),
        "peak_gflops": round(top / 1e9, 1),
        "forms": rows,
    }


def print_rows(preset: str, found: dict[str, Any]) -> None:
    """Print what was found about a preset."""
    print(f"{preset}: {found['gflop_per_pair']} GFLOP a pair, peak {found['peak_gflops']} GFLOP/s")
    for name, row in found["forms"].items():
        print(
            f"  {name:28s} {row['pairs_per_second']:9.1f} pairs/CPU-s "
            f"({row['slowest']:.0f}-{row['fastest']:.0f})  {100 * row['of_peak']:5.1f} % of peak"
        )


def main() -> None:
    """Time all presets that were chosen."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command.add_argument("--preset", action="append", help="default: paper and compact")
    command.add_argument("--pairs", type=int, default=256, help="pairs in a round")
    command.add_argument("--rounds", type=int, default=9, help="rounds; the median counts")
    command.add_argument("--mean-length", type=float, default=27.0, help="pieces of a sentence")
    command.add_argument("--fp16", action="store_true", help="also the fp16 graph, slow on a CPU")
    command.add_argument("--quick", action="store_true", help="48 pairs, 3 rounds")
    command.add_argument("-o", "--output", type=Path, help="write the result as JSON")
    arguments = command.parse_args()
    if arguments.quick:
        arguments.pairs, arguments.rounds = 48, 3
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        **records.describe_circumstances(("torch", "onnxruntime", "onnx", "numpy")),
        "pairs": arguments.pairs,
        "rounds": arguments.rounds,
        "mean_length": arguments.mean_length,
        "threads": 1,
        "presets": {},
    }
    for preset in arguments.preset or ["paper", "compact"]:
        result["presets"][preset] = measure_preset(preset, arguments)
        print_rows(preset, result["presets"][preset])
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()

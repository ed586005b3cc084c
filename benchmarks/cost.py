"""Estimates what a very large corpus costs, in hours and prices of machines.

Pairs a second that a GPU could do at best, from the operations and bytes of a bundle's graph,
against what the host is measured to feed it. Nothing here runs on a GPU: peaks are the vendors',
shares of them assumed, the host measured.

    python -m mx_align.benchmarks.cost en-fr.mx
    python -m mx_align.benchmarks.cost --preset compact --preset paper --pieces 25
"""

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import inliner

from ..engine.bundle.bundle import Bundle
from . import records

CORPORA = (200_000_000, 1_000_000_000)
# Dense fp16 tensor operations and memory bytes per second, from NVIDIA's data sheets. Those of L4
# and H100 print twice as many operations, for matrices half of which are zeros.
GPUS = {
    "T4": (65e12, 320e9),
    "L4": (121e12, 300e9),
    "A100": (312e12, 1555e9),  # 40 GB
    "H100": (989.4e12, 3350e9),  # SXM
}
# Shares of the peaks that small matrices may reach. Assumed, not measured.
OPERATIONS, BANDWIDTH = 0.3, 0.7
BYTES = 2  # of a number in fp16
_PRODUCTS = ("MatMul", "Gemm", "Attention", "MatMulInteger")
# These only look at the same memory in another way, or vanish when the graph is prepared.
_FREE = ("Reshape", "Unsqueeze", "Squeeze", "Shape", "Constant", "Identity", "Cast", "CastLike")


# ---- the graph ----


def measured_shapes(model: onnx.ModelProto, batch: int, pieces: int) -> dict[str, Sequence[int]]:
    """Return the shape of every value, found by running the graph on the CPU once."""
    names = [name for node in model.graph.node for name in node.output if name]
    known = {output.name for output in model.graph.output}
    for name in names:
        if name not in known:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {}
    for put in session.get_inputs():
        kind = np.int32 if "int32" in put.type else np.int64
        lengths = len(put.shape) == 1
        value = np.full(batch, pieces, kind) if lengths else np.full((batch, pieces), 5, kind)
        feeds[put.name] = value
    found: dict[str, Sequence[int]] = {name: value.shape for name, value in feeds.items()}
    outputs = [output.name for output in session.get_outputs()]
    for name, value in zip(outputs, session.run(outputs, feeds), strict=True):
        found[name] = np.shape(value)
    for tensor in model.graph.initializer:
        found[tensor.name] = tuple(tensor.dims)
    return found


def count_operations(node: onnx.NodeProto, shapes: dict[str, Sequence[int]]) -> int:
    """Count the multiplications and additions of a node's matrix products."""
    first, out = shapes[node.input[0]], shapes[node.output[0]]
    if node.op_type == "Attention":
        query, key, value = (shapes[name] for name in node.input[:3])
        cells = math.prod(query[:-1]) * key[-2]  # of all heads
        return 2 * cells * (query[-1] + value[-1])
    turned = node.op_type == "Gemm" and any(a.name == "transA" and a.i for a in node.attribute)
    return 2 * math.prod(out) * first[0 if turned else -1]


def count_work(model: onnx.ModelProto, batch: int, pieces: int) -> dict[str, float]:
    """Count operations per pair, and bytes moved if each node, or only products, go to memory.

    Weights are read once per batch.
    """
    model = inliner.inline_local_functions(model)
    nodes = list(model.graph.node)
    weights = {tensor.name for tensor in model.graph.initializer}
    shapes = measured_shapes(model, batch, pieces)
    total = {"operations": 0.0, "bytes_each": 0.0, "bytes_products": 0.0}
    for node in nodes:
        if node.op_type in _FREE:
            continue
        product = node.op_type in _PRODUCTS
        if product:
            total["operations"] += count_operations(node, shapes)
        moved = 0
        for name in (*node.input, *node.output):
            if name and not (node.op_type == "Gather" and name in weights):  # a few rows of it
                moved += BYTES * math.prod(shapes.get(name, (0,)))
        total["bytes_each"] += moved
        total["bytes_products"] += moved if product else 0
    return {name: value / batch for name, value in total.items()} | {"nodes": float(len(nodes))}


def preset_graph(name: str) -> onnx.ModelProto:
    """Make the graph of an untrained network of a preset's size."""
    from ..export.graph.plain import build_plain_graph, collect_weights
    from ..trainer.config import PRESETS, resolve_config
    from ..trainer.networks.mask_align import MaskAlign

    assert name in PRESETS, f"there are {', '.join(PRESETS)}"
    config = resolve_config(name, {}, {"src_vocab": 1000, "tgt_vocab": 1000}).model
    return build_plain_graph(config, collect_weights(MaskAlign(config).eval()))


# ---- the table ----


def gpu_rates(found: dict[str, float], gpu: str) -> tuple[float, float]:
    """Return pairs a second of one GPU: with every node on its own, and with products only."""
    peak, bandwidth = GPUS[gpu]
    compute = found["operations"] / (peak * OPERATIONS)
    memory = [found[name] / (bandwidth * BANDWIDTH) for name in ("bytes_each", "bytes_products")]
    low, high = (1 / max(compute, seconds) for seconds in memory)
    return low, high


def host_rate() -> float:
    """Return pairs a second that one core prepares and writes, the lowest of those measured."""
    return float(min(read_result("host")["pairs_per_cpu_second"]))


def cpu_rate() -> float:
    """Return pairs a second of one core that does everything, the lowest of those measured."""
    return float(min(read_result("engine_speed")["int8"]["engine_pairs_per_cpu_second"]))


def read_result(name: str) -> dict[str, Any]:
    return dict(json.loads((records.RESULTS / f"{name}.json").read_text("utf-8")))


def parse_machine(text: str) -> tuple[str, int, float]:
    """Parse `A100=28:4.99`: a machine with one A100, 28 cores and a price of 4.99 an hour."""
    name, _, rest = text.partition("=")
    cores, _, price = rest.partition(":")
    return name, int(cores), float(price or "nan")


def format_machine(name: str, cores: int, price: float, found: dict[str, float]) -> str:
    """Format a machine of one GPU (or none, "CPU") as a line of the table."""
    if name == "CPU":
        gpu, rate, bound = "–", cpu_rate() * cores, "all"
    else:
        low, high = gpu_rates(found, name)
        host = host_rate() * cores
        gpu = f"{low:,.0f} to {high:,.0f}"
        rate, bound = min(low, host), "host" if host < low else "GPU"
    cells = [name, str(cores), gpu, f"{rate:,.0f}", bound]
    for pairs in CORPORA:
        hours = pairs / rate / 3600
        cost = "" if math.isnan(price) else f", ${hours * price:,.2f}"
        time = f"{hours:,.1f} h" if hours >= 2 else f"{hours * 60:.0f} min"
        cells.append(f"{time}{cost}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table for each bundle and preset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", nargs="*")
    parser.add_argument("--preset", action="append", default=[], help="an untrained network")
    parser.add_argument("--pieces", type=int, default=16, help="of a side")
    parser.add_argument("--batch", type=int, default=64, help="pairs")
    parser.add_argument(
        "--machine", action="append", type=parse_machine, metavar="GPU=CORES[:PRICE]",
        help="like T4=8:0.99, or CPU=2:0.0816 [default: the priced ones of docs/scale.md]",
    )  # fmt: skip
    options = parser.parse_args()
    machines = options.machine or [
        ("CPU", 2, 0.0816), ("T4", 8, 0.99), ("L4", 8, math.nan), ("A100", 28, 4.99),
        ("H100", 28, 7.49),
    ]  # fmt: skip
    graphs: list[tuple[str, Any]] = [
        (name, onnx.load_from_string(Bundle.load(name).read_graph("fp32")))
        for name in options.bundles
    ]
    graphs += [(name, preset_graph(name)) for name in options.preset]
    for name, model in graphs:
        found = count_work(model, options.batch, options.pieces)
        print(
            f"\n{name}, {options.pieces} pieces a side: {found['operations'] / 1e6:,.1f} million "
            f"operations a pair; {found['bytes_each'] / 1e3:,.0f} kB moved node by node, "
            f"{found['bytes_products'] / 1e3:,.0f} kB by products alone; "
            f"{found['nodes']:.0f} nodes\n"
        )
        print("| machine | cores | GPU alone, pairs/s | whole, pairs/s | bound by | 200M | 1B |")
        print("|---|---|---|---|---|---|---|")
        for machine in machines:
            if machine[0] == "CPU" and name in options.preset:
                continue  # measured for the bundled model only
            print(format_machine(*machine, found))


if __name__ == "__main__":
    main()

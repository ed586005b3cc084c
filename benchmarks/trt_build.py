"""Compiles the fp32 and fp16 graphs of a bundle, unchanged, with TensorRT-RTX for named GPUs.
Works ahead of time on a machine without a GPU; prints seconds and sizes as JSON.

    python benchmarks/trt_build.py de-en.mx --capability SM86 --capability SM120
"""

import argparse
import json
import time
from typing import Any

import tensorrt_rtx as trt

from mx.engine.bundle import Bundle

ALL = ("SM75", "SM80", "SM86", "SM89", "SM120", "SM121")


def build(data: bytes, capability: str, pairs: int, length: int) -> int | None:
    """Size of the engine for batches of up to `pairs` and `length`; None if there is none."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(data):
        raise SystemExit("\n".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, capability), 0)
    profile = builder.create_optimization_profile()
    for side in ("src", "tgt"):
        profile.set_shape(side, (1, 1), (min(64, pairs), min(32, length)), (pairs, length))
        profile.set_shape(f"{side}_lengths", (1,), (min(64, pairs),), (pairs,))
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    return None if engine is None else int(engine.nbytes)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command.add_argument("bundle")
    command.add_argument("--capability", action="append", choices=ALL, help="default: all")
    command.add_argument("--pairs", type=int, default=512, help="largest batch")
    arguments = command.parse_args()
    bundle = Bundle.load(arguments.bundle)
    result: dict[str, Any] = {"tensorrt_rtx": trt.__version__, "bundle": bundle.digest[:12]}
    for precision in ("fp32", "fp16"):
        if precision not in bundle.precisions:
            continue
        data = bundle.graph(precision)
        for capability in arguments.capability or ALL:
            start = time.perf_counter()
            size = build(data, capability, arguments.pairs, bundle.max_length)
            seconds = round(time.perf_counter() - start, 1)
            result[f"{precision} {capability}"] = {"seconds": seconds, "bytes": size}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

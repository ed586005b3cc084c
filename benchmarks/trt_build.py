"""Compiles the fp32 and fp16 graphs of a bundle with TensorRT for RTX for named GPUs.

As the engine would: unchanged, through the same calls and with the same length classes. Works ahead
of time on a machine without a GPU; prints seconds and sizes as JSON.

    python -m mx_align.benchmarks.trt_build de-en.mx --capability SM86 --capability SM120
"""

import argparse
import json
import time
from typing import Any

from ..engine.bundle.bundle import Bundle
from ..engine.errors import BackendError
from ..engine.runtime.gpu.tensorrt_api import TensorrtApi
from ..engine.runtime.gpu.tensorrt_plans import build_ahead

ALL = ("SM75", "SM80", "SM86", "SM89", "SM120", "SM121")


def measure_build(
    api: TensorrtApi, graph: bytes, capability: str, tokens: int, length: int
) -> dict[str, Any]:
    """Return seconds, and the size of what was built or why there is nothing."""
    start = time.perf_counter()
    try:
        result = {"bytes": len(build_ahead(graph, length, tokens, [capability], api))}
    except BackendError as error:
        result = {"bytes": None, "reason": str(error)}
    return {"seconds": round(time.perf_counter() - start, 1), **result}


def main() -> None:
    """Compile for every capability and print what came out."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command.add_argument("bundle")
    command.add_argument("--capability", action="append", choices=ALL, help="default: all")
    command.add_argument("--tokens", type=int, default=16384, help="places of the largest batch")
    arguments = command.parse_args()
    bundle, api = Bundle.load(arguments.bundle), TensorrtApi("tensorrt_rtx")
    result: dict[str, Any] = {"tensorrt_rtx": api.version, "bundle": bundle.digest[:12]}
    for dtype in ("fp32", "fp16"):
        if dtype not in bundle.dtypes:
            continue
        graph = bundle.read_graph(dtype)
        for capability in arguments.capability or ALL:
            made = measure_build(api, graph, capability, arguments.tokens, bundle.max_length)
            result[f"{dtype} {capability}"] = made
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

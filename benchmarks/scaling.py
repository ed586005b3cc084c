"""Measures how aligning grows with the number of worker processes.

For each number of workers the text is aligned from file to file, in turn, several times; the best
wall time counts. Prints pairs a second, how much of one worker's speed each further core adds, CPU
seconds of all processes, microseconds a pair of the parent alone, and memory.

    python -m mx_align.benchmarks.scaling corpus.en corpus.fr --langs en-fr --workers 1 2
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..engine.aligner import Aligner
from . import records


def run_once(src: str, tgt: str, langs: str, workers: int) -> dict[str, float]:
    """Align the text in this process and its workers; return what it took."""
    aligner = Aligner.load(langs=langs, backend="cpu", threads=1)
    start, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    with open(os.devnull, "w") as sink:
        os.dup2(sink.fileno(), 1)
        summary = aligner.align_files(src, tgt, workers=workers)
    seconds = time.monotonic() - start
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    parent = own.ru_utime + own.ru_stime - used.ru_utime - used.ru_stime
    return {
        "pairs": summary.total.pairs,
        "seconds": seconds,
        "parent_cpu": parent,
        "cpu": parent + children.ru_utime + children.ru_stime,
        "parent_mb": own.ru_maxrss / 1024,
        "worker_mb": children.ru_maxrss / 1024,
    }


def describe_runs(
    workers: int, runs: list[dict[str, float]], alone: float | None
) -> dict[str, Any]:
    """Return the best of some runs; `alone` is the speed of one worker."""
    best = min(runs, key=lambda run: run["seconds"])
    speed = best["pairs"] / best["seconds"]
    cpu = min(run["cpu"] for run in runs)
    parent = min(run["parent_cpu"] for run in runs)
    return {
        "workers": workers,
        "pairs": best["pairs"],
        "pairs_per_second": round(speed),
        "efficiency_per_core": round(speed / (alone or speed) / max(workers, 1), 3),
        "pairs_per_cpu_second": round(best["pairs"] / cpu),
        "parent_us_per_pair": round(1e6 * parent / best["pairs"], 2),
        "parent_mb": round(best["parent_mb"]),
        "worker_mb": round(best["worker_mb"]),
    }


def main() -> None:
    """Run each number of workers in turn, in processes of their own."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command.add_argument("src")
    command.add_argument("tgt")
    command.add_argument("--langs", required=True)
    command.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    command.add_argument("--repeat", type=int, default=3)
    command.add_argument("--name", help="of its row in the JSON file [not kept]")
    command.add_argument("--json", type=Path, default=records.RESULTS / "scaling.json")
    command.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    given = command.parse_args()
    if given.once:
        found = run_once(given.src, given.tgt, given.langs, given.workers[0])
        sys.stderr.write(json.dumps(found))
        return
    runs: dict[int, list[dict[str, float]]] = {workers: [] for workers in given.workers}
    for _ in range(given.repeat):
        for workers, kept in runs.items():
            line = [sys.executable, "-m", "mx_align.benchmarks.scaling", given.src, given.tgt]
            line += ["--langs", given.langs, "--workers", str(workers), "--once"]
            done = subprocess.run(line, stderr=subprocess.PIPE, check=True, text=True)
            kept.append(json.loads(done.stderr.splitlines()[-1]))
    alone, rows = None, []
    for workers, kept in runs.items():
        rows.append(describe_runs(workers, kept, alone))
        alone = alone or rows[0]["pairs_per_second"] / rows[0]["workers"]
        print(json.dumps(rows[-1]))
    if given.name:
        about = records.describe_circumstances(("onnxruntime", "numpy"))
        records.add_run(given.json, given.name, {**about, "langs": given.langs, "rows": rows})


if __name__ == "__main__":
    main()

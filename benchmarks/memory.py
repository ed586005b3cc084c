"""Peak memory of mx-align for corpora of different sizes: it must not grow with them.
A corpus that is too small is repeated, so give one with as many different words as possible.

    python benchmarks/memory.py de-en.mx corpus.de corpus.en --pairs 100000 1000000
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..engine.text.files import read_lines


def repeated(path: str) -> Iterator[str]:
    while True:
        yield from read_lines(path)


def run(model: str, files: list[Path], extra: list[str]) -> dict[str, float | int | str]:
    """Runs the command; its peak resident memory in MB, time, lines and checksum."""
    out = files[0].with_name("out")
    line = [sys.executable, "-m", "mx_align.engine.commands.align", *map(str, files), "-m", model, "-o", str(out),
            "--quiet", "--restart", *extra]  # fmt: skip
    start = time.perf_counter()
    process = os.spawnv(os.P_NOWAIT, sys.executable, line)
    _, status, usage = os.wait4(process, 0)
    assert status == 0, status
    data = out.read_bytes()
    return {
        "peak_mb": round(usage.ru_maxrss / 1024, 1),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "lines": data.count(b"\n"),
        "sha256": hashlib.sha256(data).hexdigest()[:16],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("src")
    parser.add_argument("tgt")
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--scratch", help="folder for the corpora and links")
    parser.add_argument("extra", nargs="*", help="flags of mx-align, after --")
    options = parser.parse_args()
    results = {}
    for pairs in options.pairs:
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            files = [Path(folder) / name for name in ("c.src", "c.tgt")]
            for file, path in zip(files, (options.src, options.tgt), strict=True):
                with open(file, "w", encoding="utf-8", newline="\n") as stream:
                    stream.writelines(f"{line}\n" for line in islice(repeated(path), pairs))
            results[pairs] = run(options.model, files, options.extra)
            print(json.dumps({pairs: results[pairs]}), flush=True)
    first, last = results[options.pairs[0]], results[options.pairs[-1]]
    print(json.dumps({"growth": round(float(last["peak_mb"]) / float(first["peak_mb"]), 3)}))


if __name__ == "__main__":
    main()

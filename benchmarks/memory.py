"""Measures the peak memory of mx-align for corpora of different sizes: it must not grow with them.

    python -m mx_align.benchmarks.memory de-en.mx corpus.de corpus.en --pairs 100000 1000000

A corpus that is too small is repeated, so give one with as many different words as possible.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ..engine.storage import file_sha256
from ..engine.text.files import count_lines, read_lines
from .systems import module_command
from .watch import run_command


def repeat_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file again and again."""
    while True:
        yield from read_lines(path)


def measure_size(
    model: str, text: Sequence[str], pairs: int, scratch: str | None, flags: Sequence[str]
) -> dict[str, Any]:
    """Align so many pairs of two files; return peak memory in MB, seconds, lines and checksum."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        files = folder / "c.src", folder / "c.tgt"
        for file, path in zip(files, text, strict=True):
            with open(file, "w", encoding="utf-8", newline="\n") as stream:
                stream.writelines(f"{line}\n" for line in islice(repeat_lines(path), pairs))
        out = folder / "out"
        command = module_command(
            "mx_align.engine.commands.align", *files, "-m", model, "-o", out, "--quiet", *flags
        )
        cost = run_command(command, folder / "log")
        return {
            "peak_mb": round(cost.peak_mb, 1),
            "seconds": round(cost.wall, 1),
            "cpu_seconds": round(cost.cpu, 1),
            "lines": count_lines(out),
            "sha256": file_sha256(out)[:16],
        }


def main() -> None:
    """Align corpora of several sizes and print their peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("src")
    parser.add_argument("tgt")
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--scratch", help="folder for the corpora and links")
    parser.add_argument("extra", nargs="*", help="flags of mx-align, after --")
    options = parser.parse_args()
    peaks = []
    for pairs in options.pairs:
        text = options.src, options.tgt
        found = measure_size(options.model, text, pairs, options.scratch, options.extra)
        print(json.dumps({pairs: found}), flush=True)
        peaks.append(found["peak_mb"])
    print(json.dumps({"growth": round(peaks[-1] / peaks[0], 3)}))


if __name__ == "__main__":
    main()

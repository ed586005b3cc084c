"""Checks that mx-align gives the same bytes in one run, in shards, and after kills.

    python -m mx_align.benchmarks.equality de-en.mx corpus.de corpus.en -o equality.json

Runs the real command: once through, in three shards with different threads, batches and chunks, and
killed (SIGKILL) several times and resumed. Prints line counts, SHA-256 sums and whether all agree.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from ..engine.storage import hash_file
from ..engine.text.files import count_lines
from .systems import module_command


def run_align(arguments: list[str], seconds: float | None = None) -> None:
    """Run to the end, or kill it after some seconds."""
    command = module_command("mx_align.engine.commands.align", *arguments, "--quiet")
    process = subprocess.Popen(command)
    try:
        if process.wait(seconds):
            sys.exit(f"mx-align {' '.join(arguments)} failed")
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def hash_lines(files: list[Path]) -> dict[str, object]:
    """Count the lines of files and hash their bytes, one file after the other."""
    digest, lines = hashlib.sha256(), 0
    for file in files:
        hash_file(file, digest)
        lines += count_lines(file)
    return {"lines": lines, "sha256": digest.hexdigest()}


def main() -> None:
    """Align in three ways and compare the bytes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("model", "src", "tgt"):
        parser.add_argument(name)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    text = [given.src, given.tgt, "-m", given.model]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.monotonic()
        run_align([*text, "-o", f"{folder}/whole"])
        seconds = time.monotonic() - began
        shards = [folder / f"shard{i}" for i in (1, 2, 3)]
        for i, shard in enumerate(shards, 1):
            settings = ["--threads", str(i), "--batch-tokens", str(700 * i)]
            settings += ["--chunk-pairs", str(3000 * i)]
            run_align([*text, "-o", str(shard), "--shard", f"{i}/3", *settings])
        for kill in range(given.kills):
            run_align(
                [*text, "-o", f"{folder}/killed"], seconds * (kill + 1) / (given.kills + 2) / 2
            )
        run_align([*text, "-o", f"{folder}/killed"])
        result = {
            "benchmark": "equality",
            "date": date.today().isoformat(),
            "whole": hash_lines([folder / "whole"]),
            "shards": hash_lines(shards),
            "killed": hash_lines([folder / "killed"]),
            "kills": given.kills,
        }
    result["equal"] = result["whole"] == result["shards"] == result["killed"]
    print(json.dumps(result, indent=2))
    if given.output:
        given.output.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(not result["equal"])


if __name__ == "__main__":
    main()

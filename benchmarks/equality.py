"""Whether mx-align gives the same bytes for a large corpus in one run, in shards, and after kills.

    python benchmarks/equality.py de-en.mx corpus.de corpus.en -o benchmarks/results/equality.json

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

COMMAND = [sys.executable, "-m", "mx_align.engine.commands.align"]


def align(arguments: list[str], seconds: float | None = None) -> None:
    """Run to the end, or kill it after some seconds."""
    process = subprocess.Popen([*COMMAND, *arguments, "--quiet"])
    try:
        if process.wait(seconds):
            sys.exit(f"mx-align {' '.join(arguments)} failed")
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measured(files: list[Path]) -> dict[str, object]:
    """Lines and checksum of files, one after the other."""
    digest, lines = hashlib.sha256(), 0
    for file in files:
        with open(file, "rb") as data:
            while block := data.read(1 << 20):
                digest.update(block)
                lines += block.count(b"\n")
    return {"lines": lines, "sha256": digest.hexdigest()}


def main() -> None:
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
        align([*text, "-o", f"{folder}/whole"])
        seconds = time.monotonic() - began
        shards = [folder / f"shard{i}" for i in (1, 2, 3)]
        for i, shard in enumerate(shards, 1):
            settings = ["--threads", str(i), "--batch-tokens", str(700 * i)]
            settings += ["--chunk-pairs", str(3000 * i)]
            align([*text, "-o", str(shard), "--shard", f"{i}/3", *settings])
        for kill in range(given.kills):
            align([*text, "-o", f"{folder}/killed"], seconds * (kill + 1) / (given.kills + 2) / 2)
        align([*text, "-o", f"{folder}/killed"])
        result = {
            "benchmark": "equality",
            "date": date.today().isoformat(),
            "whole": measured([folder / "whole"]),
            "shards": measured(shards),
            "killed": measured([folder / "killed"]),
            "kills": given.kills,
        }
    result["equal"] = result["whole"] == result["shards"] == result["killed"]
    print(json.dumps(result, indent=2))
    if given.output:
        given.output.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(not result["equal"])


if __name__ == "__main__":
    main()

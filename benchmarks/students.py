"""What each choice in the student's design is worth: AER, cost to learn and pairs per second.

Every variant is trained on the same text from the same seed links with the same steps, exported
without gold and timed on one thread, by the commands that users have. A variant whose result is in
the JSON file already is not run again; `make tables` shows them.

    mx-seed --lowercase train.en train.fr -o /dev/null --scores seeds.links
    python benchmarks/students.py train.en train.fr --seeds seeds.links --gold test.en test.fr \\
        test.talp --work folder -o benchmarks/results/students.json
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..engine.text.files import read_lines
from . import records

# What a variant changes of `mx-train --student`; the first is the default itself. {seeds} is the
# teacher of all that name no other, {work} the folder of --work, with the bundles of earlier
# variants; mask-align.mx is to be put there.
SEEDS = ["--teacher", "{seeds}"]
VARIANTS: dict[str, list[str]] = {
    "default": [],
    "default, another seed": ["--seed", "2"],
    "default, again": [],
    "default, another seed, again": ["--seed", "2"],
    "no correction": ["--refine", "0"],
    "correction of 8 channels": ["--refine", "8"],
    "1 layer": ["--encoder-layers", "1"],
    "3 layers": ["--encoder-layers", "3"],
    "width 64": ["--width", "64", "--ff", "128"],
    "width 256": ["--width", "256", "--ff", "512"],
    "feed-forward 512": ["--ff", "512"],
    "4,000 pieces": ["--vocab-size", "4000"],
    "24,000 pieces": ["--vocab-size", "24000"],
    "32,000 pieces": ["--vocab-size", "32000"],
    "unigram pieces": ["--vocab-type", "unigram"],
    "accents folded": ["--fold-accents"],
    "no joined lines": ["--joins", "0"],
    "2 rounds": ["--rounds", "2"],
    "3 rounds": ["--rounds", "3"],
    "no agreement": ["--alpha", "0"],
    "agreement counts 1": ["--alpha", "1"],
    "dropout 0.1": ["--dropout", "0.1"],
    "batches of 2,000 pieces": ["--batch-tokens", "2000"],
    "twice the learning rates": ["--lr", "8e-3", "--matrix-lr", "0.04"],
    "half the learning rates": ["--lr", "2e-3", "--matrix-lr", "0.01"],
    "weights not averaged": ["--ema", "0"],
    "average of the 3 best checkpoints": ["--ema", "0", "--average", "3", "--eval-every", "50"],
    "two vocabularies of 4,000 pieces": ["--no-joint-vocab", "--vocab-size", "8000"],
    "two vocabularies of 8,000 pieces": ["--no-joint-vocab", "--vocab-size", "16000"],
    "soft targets": ["--soft-targets"],
    "soft targets, another seed": ["--soft-targets", "--seed", "2"],
    "no diagonal": ["--no-diagonal"],
    "no diagonal, another seed": ["--no-diagonal", "--seed", "2"],
    "a wider teacher, too": [*SEEDS, "--teacher", "{work}/width-256.mx"],
    "a wider teacher alone": ["--teacher", "{work}/width-256.mx"],
    "two other students as teachers, too": [
        *SEEDS,
        "--teacher",
        "{work}/default.mx",
        "--teacher",
        "{work}/default-another-seed.mx",
    ],
    "Mask-Align as a teacher, too": [*SEEDS, "--teacher", "{work}/mask-align.mx"],
    "Mask-Align as the only teacher": ["--teacher", "{work}/mask-align.mx"],
    "Mask-Align as the only teacher, soft targets": [
        "--teacher",
        "{work}/mask-align.mx",
        "--soft-targets",
    ],
    "a better Mask-Align as the only teacher": ["--teacher", "{work}/mask-align.mx"],
    "NULL counts 0.3": ["--null-weight", "0.3"],
    "AdamW": ["--optimizer", "adamw", "--lr", "1e-3"],
}


def run(*command: Any) -> tuple[float, float]:
    """Wall and CPU seconds of a command."""
    before, start = os.times(), time.monotonic()
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    after = os.times()
    return time.monotonic() - start, sum(after[2:4]) - sum(before[2:4])


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def folder_of(name: str, arguments: argparse.Namespace) -> Path:
    """Where the variant's bundle is; its run is beside it, without the suffix."""
    return arguments.work / f"{name.replace(' ', '-').replace(',', '')}.mx"


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    bundle = folder_of(name, arguments)
    folder = bundle.with_suffix("")
    gold_src, gold_tgt, gold = arguments.gold
    files = ["--gold-src", gold_src, "--gold-tgt", gold_tgt, "--gold", gold]
    changes = VARIANTS[name] if "--teacher" in VARIANTS[name] else [*SEEDS, *VARIANTS[name]]
    changes = [flag.format(work=arguments.work, seeds=arguments.seeds) for flag in changes]
    train = [
        tool("mx-train"), arguments.src, arguments.tgt, "-o", folder, "--student", "--lowercase",
        "--steps", arguments.steps, "--eval-every", arguments.steps, "--threads", 1, "--restart",
        *files, *changes,
    ]  # fmt: skip
    _, cpu = run(*train)
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").split("\n")[:-1]]
    last = next(line for line in reversed(log) if "aer" in line)
    run(tool("mx-export"), folder, "-o", bundle, "--kernels", "none", "--force")
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    links = arguments.work / "links"
    run(tool("mx-align"), gold_src, gold_tgt, "-m", bundle, "-o", links, "--restart")
    scored = subprocess.run(
        [tool("mx-eval"), gold, str(links), "--json", "--bootstrap", "0"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return {
        "settings": VARIANTS[name],
        "steps": arguments.steps,
        "train_cpu_seconds": round(cpu, 1),
        "pieces": last["pieces"],
        "best_aer": round(100 * last["best_aer"], 2),
        "aer": round(100 * aer_of(json.loads(scored.stdout)), 2),
        "threshold": manifest["thresholds"]["aer"],
        "precision": manifest["default_precision"],
        "pairs_per_cpu_second": speed(bundle, arguments),
        "bytes": {p: (bundle / f).stat().st_size for p, f in manifest["graphs"].items()},
    }


def speed(bundle: Path, arguments: argparse.Namespace) -> int:
    """Pairs per CPU second, which other work on the machine disturbs least; the better of two."""
    links, seconds = arguments.work / "links", []
    for _ in range(2):
        _, cpu = run(
            tool("mx-align"), *arguments.timed, "-m", bundle, "-o", links, "--threads", 1,
            "--restart",
        )  # fmt: skip
        seconds.append(cpu)
    return round(arguments.timed_pairs / min(seconds))


def aer_of(report: dict[str, Any]) -> float:
    return float(report["systems"][0]["aer"])


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command.add_argument("src")
    command.add_argument("tgt")
    command.add_argument("--seeds", required=True)
    command.add_argument("--gold", nargs=3, required=True, metavar=("SRC", "TGT", "LINKS"))
    command.add_argument("--work", type=Path, required=True)
    command.add_argument("--steps", type=int, default=500)
    command.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    command.add_argument("--speed", action="store_true", help="only time what was trained again")
    command.add_argument("-o", "--output", type=Path, required=True)
    arguments = command.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.timed = [arguments.work / "timed.src", arguments.work / "timed.tgt"]
    arguments.timed_pairs = 20_000
    for path, copy in zip((arguments.src, arguments.tgt), arguments.timed, strict=True):
        lines = [
            line for _, line in zip(range(arguments.timed_pairs), read_lines(path), strict=False)
        ]
        copy.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        arguments.timed_pairs = len(lines)
    for name in arguments.variants:
        row = records.load(arguments.output).get(name, {})
        if row.get("steps") != arguments.steps:
            row = measure(name, arguments) | records.circumstances(("torch", "onnxruntime"))
        elif arguments.speed:
            row["pairs_per_cpu_second"] = speed(folder_of(name, arguments), arguments)
        else:
            continue
        records.add(arguments.output, name, row)
    for name, row in records.load(arguments.output).items():
        print(
            f"{name:26s} AER {row['aer']:5.2f} (best {row['best_aer']:5.2f})  "
            f"{row['train_cpu_seconds']:6.0f} CPU-s  "
            f"{row.get('pairs_per_cpu_second', 0):6,} pairs a CPU-s in {row['precision']}"
        )


if __name__ == "__main__":
    main()

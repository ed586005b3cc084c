"""Measures what each choice in the student's design is worth: AER, cost to learn, pairs a second.

    mx-seed --lowercase train.en train.fr -o /dev/null --scores statistical.links
    python -m mx_align.benchmarks.students train.en train.fr --links statistical.links \\
        --gold test.en test.fr test.talp --work folder -o benchmarks/results/students.json

Every variant is trained on the same text from the same links with the same steps, exported without
gold and timed on one thread, by the commands that users have. A variant whose result is in the JSON
file already is not run again; `make tables` shows them.
"""

import argparse
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from ..engine.bundle.bundle import Bundle
from ..engine.text.files import read_lines
from . import records, watch

# What a variant changes of `mx-train --student`; the first is the default itself. {links} is the
# teacher of all that name no other, {work} the folder of --work, with the bundles of earlier
# variants; mask-align.mx is to be put there.
VARIANTS: dict[str, str] = {
    "default": "",
    "default, another seed": "--seed 2",
    "default, again": "",
    "default, another seed, again": "--seed 2",
    "no correction": "--refine 0",
    "correction of 8 channels": "--refine 8",
    "1 layer": "--encoder-layers 1",
    "3 layers": "--encoder-layers 3",
    "width 64": "--width 64 --ff 128",
    "width 256": "--width 256 --ff 512",
    "feed-forward 512": "--ff 512",
    "4,000 pieces": "--vocab-size 4000",
    "24,000 pieces": "--vocab-size 24000",
    "32,000 pieces": "--vocab-size 32000",
    "unigram pieces": "--vocab-type unigram",
    "accents folded": "--fold-accents",
    "no joined lines": "--joins 0",
    "2 rounds": "--rounds 2",
    "3 rounds": "--rounds 3",
    "no agreement": "--alpha 0",
    "agreement counts 1": "--alpha 1",
    "dropout 0.1": "--dropout 0.1",
    "batches of 2,000 pieces": "--batch-tokens 2000",
    "twice the learning rates": "--lr 8e-3 --matrix-lr 0.04",
    "half the learning rates": "--lr 2e-3 --matrix-lr 0.01",
    "weights not averaged": "--ema 0",
    "average of the 3 best checkpoints": "--ema 0 --average 3 --eval-every 50",
    "two vocabularies of 4,000 pieces": "--no-joint-vocab --vocab-size 8000",
    "two vocabularies of 8,000 pieces": "--no-joint-vocab --vocab-size 16000",
    "soft targets": "--soft-targets",
    "soft targets, another seed": "--soft-targets --seed 2",
    "no diagonal": "--no-diagonal",
    "no diagonal, another seed": "--no-diagonal --seed 2",
    "a wider teacher, too": "--teacher {links} --teacher {work}/width-256.mx",
    "a wider teacher alone": "--teacher {work}/width-256.mx",
    "two other students as teachers, too": "--teacher {links} --teacher {work}/default.mx "
    "--teacher {work}/default-another-seed.mx",
    "Mask-Align as a teacher, too": "--teacher {links} --teacher {work}/mask-align.mx",
    "Mask-Align as the only teacher": "--teacher {work}/mask-align.mx",
    "Mask-Align as the only teacher, soft targets": "--teacher {work}/mask-align.mx --soft-targets",
    "a better Mask-Align as the only teacher": "--teacher {work}/mask-align.mx",
    "NULL counts 0.3": "--null-weight 0.3",
    "AdamW": "--optimizer adamw --lr 1e-3",
}


def run_tool(arguments: argparse.Namespace, name: str, *words: Any, **more: Any) -> watch.Cost:
    """Run one of our commands, with what it says in a log."""
    command = [str(Path(sys.executable).with_name(name)), *map(str, words)]
    return watch.run_command(command, arguments.work / "log", **more)


def bundle_path(name: str, arguments: argparse.Namespace) -> Path:
    """Return where the variant's bundle is; its run is beside it, without the suffix."""
    return arguments.work / f"{name.replace(' ', '-').replace(',', '')}.mx"


def measure_variant(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, export, score and time one variant."""
    bundle = bundle_path(name, arguments)
    folder = bundle.with_suffix("")
    gold_src, gold_tgt, gold = arguments.gold
    files = ["--gold-src", gold_src, "--gold-tgt", gold_tgt, "--gold", gold]
    flags = VARIANTS[name].split()
    changes = flags if "--teacher" in flags else ["--teacher", "{links}", *flags]
    changes = [flag.format(work=arguments.work, links=arguments.links) for flag in changes]
    cost = run_tool(
        arguments, "mx-train", arguments.src, arguments.tgt, "-o", folder, "--student",
        "--lowercase", "--steps", arguments.steps, "--eval-every", arguments.steps,
        "--threads", 1, "--restart", *files, *changes,
    )  # fmt: skip
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").split("\n")[:-1]]
    last = next(line for line in reversed(log) if "aer" in line)
    run_tool(arguments, "mx-export", folder, "-o", bundle, "--force")
    manifest = Bundle.load(bundle).manifest
    links, report = arguments.work / "links", arguments.work / "report.json"
    run_tool(arguments, "mx-align", gold_src, gold_tgt, "-m", bundle, "-o", links, "--restart")
    run_tool(arguments, "mx-eval", gold, links, "--json", "--bootstrap", "0", stdout=report)
    aer = json.loads(report.read_text("utf-8"))["systems"][0]["aer"]
    return {
        "settings": flags,
        "steps": arguments.steps,
        "train_cpu_seconds": round(cost.cpu, 1),
        "pieces": last["pieces"],
        "best_aer": round(100 * last["best_aer"], 2),
        "aer": round(100 * aer, 2),
        "threshold": manifest.thresholds.aer,
        "dtype": manifest.default_dtype,
        "pairs_per_cpu_second": measure_speed(bundle, arguments),
        "bytes": {kind: (bundle / file).stat().st_size for kind, file in manifest.graphs.items()},
    }


def measure_speed(bundle: Path, arguments: argparse.Namespace) -> int:
    """Return pairs per CPU second, the better of two; other work disturbs CPU time least."""
    flags = "-m", bundle, "-o", arguments.work / "links", "--threads", 1, "--restart"
    costs = [run_tool(arguments, "mx-align", *arguments.timed, *flags) for _ in range(2)]
    return round(arguments.timed_pairs / min(cost.cpu for cost in costs))


def main() -> None:
    """Measure the variants that were not measured yet, and print all."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command.add_argument("src")
    command.add_argument("tgt")
    command.add_argument("--links", required=True, help="of mx-seed --scores: the teacher")
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
        lines = list(islice(read_lines(path), arguments.timed_pairs))
        copy.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        arguments.timed_pairs = len(lines)
    for name in arguments.variants:
        row = records.load_runs(arguments.output).get(name, {})
        if row.get("steps") != arguments.steps:
            row = measure_variant(name, arguments) | records.describe_circumstances(
                ("torch", "onnxruntime")
            )
        elif arguments.speed:
            row["pairs_per_cpu_second"] = measure_speed(bundle_path(name, arguments), arguments)
        else:
            continue
        records.add_run(arguments.output, name, row)
    for name, row in records.load_runs(arguments.output).items():
        print(
            f"{name:26s} AER {row['aer']:5.2f} (best {row['best_aer']:5.2f})  "
            f"{row['train_cpu_seconds']:6.0f} CPU-s  "
            f"{row.get('pairs_per_cpu_second', 0):6,} pairs a CPU-s in {row['dtype']}"
        )


if __name__ == "__main__":
    main()

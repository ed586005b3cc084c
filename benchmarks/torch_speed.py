"""Times `mx-align` with a student against the PyTorch form of the same network.

    python -m mx_align.benchmarks.torch_speed en-fr.mx corpus.en corpus.fr --pairs 20000

Both go from two files to a file of links, in processes of their own, in turns, with the same number
of threads. The PyTorch form is what a script does: pieces of each line, batches of 64 pairs in the
order of the file, or sorted by length first, padded, eager, the word links read off one by one.
"""

import argparse
import json
import os
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from ..engine.links.link_files import read_link_file
from ..engine.links.scoring import link_f1
from ..engine.text.files import read_lines
from ..engine.types import Link
from . import records, watch
from .systems import align_command, module_command

BATCH = 64


def align_with_torch(
    bundle: str, src: str, tgt: str, out: str, threads: int, by_length: bool
) -> None:
    """Align as a script with PyTorch would, from files to a file."""
    import torch

    from ..engine.bundle.bundle import Bundle
    from ..engine.text.words import split_words
    from ..trainer.networks.mask_align import harmonic_mean
    from ..trainer.run.initial_weights import load_start

    torch.set_num_threads(threads)
    model, opened = load_start(bundle).model.eval(), Bundle.load(bundle)
    threshold = opened.threshold("aer")
    lines = [[split_words(line) for line in read_lines(path)] for path in (src, tgt)]
    sides = [
        [tokenizer.encode_many([words]) for words in side]
        for tokenizer, side in zip(opened.tokenizers, lines, strict=True)
    ]
    order = list(range(len(lines[0])))
    if by_length:
        order.sort(key=lambda k: (len(sides[1][k].ids), len(sides[0][k].ids)))
    found = [""] * len(order)
    for start in range(0, len(order), BATCH):
        some = [k for k in order[start : start + BATCH] if lines[0][k] and lines[1][k]]
        if not some:
            continue
        feeds = []
        for side in sides:
            lengths = torch.tensor([len(side[k].ids) for k in some])
            ids = torch.zeros(len(some), int(lengths.max()), dtype=torch.long)
            for row, k in enumerate(some):
                ids[row, : lengths[row]] = torch.from_numpy(side[k].ids)
            feeds += [ids, lengths]
        with torch.inference_mode():
            fwd, bwd = model(*feeds)
            scores = harmonic_mean(fwd.weights, bwd.weights)
        for row, k in enumerate(some):
            places = (scores[row] >= threshold).nonzero().tolist()
            links = {(int(sides[0][k].words[i]), int(sides[1][k].words[j])) for j, i in places}
            found[k] = " ".join(f"{i}-{j}" for i, j in sorted(links))
    Path(out).write_text("".join(f"{line}\n" for line in found), "utf-8")


def read_links(path: Path) -> list[set[Link]]:
    return [set(links) for links in read_link_file(str(path)).all_links()]


def main() -> None:
    """Time the engine and both orders of the PyTorch form in turn."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("bundle", "src", "tgt"):
        command.add_argument(name)
    command.add_argument("--pairs", type=int, default=20_000)
    command.add_argument("--threads", type=int, default=os.cpu_count())
    command.add_argument("--repeat", type=int, default=3)
    command.add_argument("--script", nargs=2, metavar=("OUT", "ORDER"), help=argparse.SUPPRESS)
    command.add_argument("-o", "--output", type=Path, help="JSON file to write")
    given = command.parse_args()
    if given.script:
        out, order = given.script
        align_with_torch(given.bundle, given.src, given.tgt, out, given.threads, order == "sorted")
        return
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("src", "tgt")]
        for path, copy in zip((given.src, given.tgt), files, strict=True):
            lines = list(islice(read_lines(path), given.pairs))
            pairs = len(lines)
            Path(copy).write_text("".join(f"{line}\n" for line in lines), "utf-8")
        threads = ["--threads", str(given.threads)]
        outputs = {name: Path(folder) / name for name in ("engine", "in order", "sorted")}
        engine = align_command(
            *files, given.bundle, outputs["engine"], "--backend", "cpu", *threads
        )
        commands = {"engine": engine}
        for order in ("in order", "sorted"):
            own = given.bundle, *files, *threads, "--script", outputs[order], order
            commands[order] = module_command("mx_align.benchmarks.torch_speed", *own)
        costs: dict[str, list[watch.Cost]] = {name: [] for name in commands}
        for _ in range(given.repeat):
            for name, command_line in commands.items():
                costs[name].append(watch.run_command(command_line, Path(folder) / "log"))
        links = {name: read_links(path) for name, path in outputs.items()}
        same = {k: round(link_f1(links["engine"], links[k]), 4) for k in ("in order", "sorted")}
    result: dict[str, Any] = {
        "bundle": Path(given.bundle).name, "pairs": pairs, "threads": given.threads,
        "link_f1": same, **records.describe_circumstances(("torch", "onnxruntime")),
    }  # fmt: skip
    for what in ("wall", "cpu"):
        best = {name: min(getattr(one, what) for one in each) for name, each in costs.items()}
        result[f"pairs_per_{what}_second"] = {k: round(pairs / s) for k, s in best.items()}
        result[f"ratio_{what}"] = {
            k: round(s / best["engine"], 2) for k, s in best.items() if k != "engine"
        }
    print(json.dumps(result, indent=2))
    if given.output:
        given.output.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()

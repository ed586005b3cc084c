r"""Measures the ways to read Mask-Align as alignment, at every checkpoint of a run.

    python -m mx_align.benchmarks.posterior RUN \
        --gold-src test.en --gold-tgt test.fr --gold test.talp

Train with `--keep 100`, so that the checkpoints are there. AER is that of the best threshold, and
of a fixed one; the CPU seconds are those of PyTorch on the gold pairs. `--exact` adds the posterior
by the whole vocabulary for the last checkpoint, which is slow.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch
from safetensors.torch import load_file

from ..trainer.config import read_config
from ..trainer.data.gold import GoldPairs, read_gold_pairs
from ..trainer.data.vocabulary import load_tokenizers
from ..trainer.loop.evaluate import score_gold_pairs
from ..trainer.networks.weights import MODEL, Network, assign_weights, make_network
from ..trainer.run.checkpoint import list_checkpoints
from . import records
from .charts import Axes, ChartPoint, draw_chart

# What is read at a fixed threshold: the paper's for its prior; for the posterior in the middle of
# what was best on the En-Fr test pairs, so that this column flatters it by a tenth of a point.
FIXED = {"prior": 0.2, "posterior": 0.45, "exact": 0.45}


def load_checkpoint_network(run: Path, checkpoint: Path) -> Network:
    """Return the network of a checkpoint, with averaged weights if there are any."""
    model = make_network(read_config(run / "config.json").model)
    averaged = checkpoint / "averaged.safetensors"
    assign_weights(model, load_file(averaged if averaged.exists() else checkpoint / MODEL))
    return model.eval()


def measure_reading(model: Network, gold: GoldPairs, tokenizers: Any, read: str) -> dict[str, Any]:
    """Return AER in percent at the best and at a fixed threshold, and the CPU seconds it took."""
    model.config = replace(model.config, read=read)
    start = time.process_time()
    found = score_gold_pairs(model, gold, tokenizers, FIXED[read], torch.device("cpu"))
    return {
        "best": round(100 * found["best_aer"], 2),
        "best_threshold": round(found["best_threshold"], 3),
        "fixed": round(100 * found["aer"], 2),
        "precision": round(100 * found["precision"], 1),
        "recall": round(100 * found["recall"], 1),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


@click.command(help=__doc__.split("\n")[0])
@click.argument("run", type=Path)
@click.option("--gold-src", required=True)
@click.option("--gold-tgt", required=True)
@click.option("--gold", required=True)
@click.option(
    "--exact", is_flag=True, help="Read the last checkpoint by the whole vocabulary, too."
)
@click.option("--name", default="en-fr/tiny", help="What the run is called in the results.")
@click.option("--json", "path", type=Path, default=records.RESULTS / "posterior.json")
@click.option("--chart", type=Path, help="Draw the curves as SVG.")
def main(run: Path, gold_src: str, gold_tgt: str, gold: str, exact: bool, name: str, path: Path,
         chart: Path | None) -> None:  # fmt: skip
    """Read every checkpoint in every way, print and keep what was found."""
    torch.set_num_threads(1)
    pairs = read_gold_pairs(gold_src, gold_tgt, gold)
    tokenizers = load_tokenizers(run, read_config(run / "config.json"))
    checkpoints = list_checkpoints(run)
    curve: dict[str, dict[str, Any]] = {}
    for checkpoint in checkpoints:
        model = load_checkpoint_network(run, checkpoint)
        reads = ["prior", "posterior"]
        reads += ["exact"] if exact and checkpoint == checkpoints[-1] else []
        step = str(int(checkpoint.name.removeprefix("step-")))
        curve[step] = {r: measure_reading(model, pairs, tokenizers, r) for r in reads}
        for read, row in curve[step].items():
            click.echo(f"{step:>7} {read:10} {row}")
    result = {"gold_pairs": len(pairs.gold), "curve": curve, **records.describe_circumstances()}
    records.add_run(path, name, result)
    if chart:
        points = [
            ChartPoint(step, read, int(step), *[row[read]["best"]] * 3)
            for step, row in curve.items()
            for read in ("prior", "posterior")
        ]
        chart.write_text(draw_chart(Axes("AER by steps of training", "steps", "AER"), points))


if __name__ == "__main__":
    main()

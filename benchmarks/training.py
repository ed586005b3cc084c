"""Times our trainer against the straightforward implementation, in trained pieces a second.

    python -m mx_align.benchmarks.training corpus.src corpus.tgt --preset compact --preset paper

Straightforward means: pairs in random order padded to the batch maximum, attention as separate
matrix products and softmax, the vocabulary projection also for padding, keys and values projected
layer by layer, the logits kept for backward, and the default Adam. Both have the same network,
weights, losses and pieces per step, and take turns, step by step, so that a noisy machine disturbs
both alike.
"""

import dataclasses
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..trainer.config import RunConfig, resolve_config
from ..trainer.data.batches import Batches, Position, Totals, TrainingBatch, make_batch
from ..trainer.data.token_cache import TokenCache
from ..trainer.data.vocabulary import load_tokenizers
from ..trainer.loop.optimizer import make_optimizer, set_rate
from ..trainer.networks import losses as loss
from ..trainer.networks import mask_align as model
from ..trainer.networks.losses import MaskAlignLoss
from ..trainer.networks.mask_align import Attention, Decoder, MaskAlign, split_heads, valid_places
from ..trainer.run.texts import Texts
from ..trainer.run.training_data import prepare_data
from . import records

# ---- the straightforward implementation ----


def plain_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask).softmax(-1) @ v


class PlainDecoder(Decoder):
    """The static-KV decoder with keys and values projected in each layer."""

    def forward(
        self, embedded: Tensor, start: Tensor, lengths: Tensor, source: Tensor, read: Tensor
    ) -> Attention:
        mask, alone = self.attention_mask(lengths, embedded.shape[1])
        source_valid = valid_places(read, source.shape[1])
        h = start.expand_as(embedded)
        for layer, attention in enumerate(self.attention):
            pair = self.own_key_value(layer, embedded + start)
            k, v = (split_heads(part, self.config.heads) for part in pair.chunk(2, -1))
            h = attention(h, k, v, mask, alone)
            if str(layer) in self.cross:
                h, weights, null = self.cross[str(layer)](h, source, source_valid)
            h = self.feed_forward[layer](h)
        rows = valid_places(lengths, embedded.shape[1])
        cells = rows[:, :, None] & source_valid[:, None, :]
        return Attention(weights * cells, null * rows, self.norm(h))


class PlainObjective(MaskAlignLoss):
    """The loss with logits for every position, padding ignored afterwards."""

    def forward(self, batch: TrainingBatch, totals: Totals, guidance_weight: float) -> Tensor:
        fwd, bwd = self.model(batch.src, batch.src_lengths, batch.tgt, batch.tgt_lengths)
        src = valid_places(batch.src_lengths, batch.src.shape[1])
        tgt = valid_places(batch.tgt_lengths, batch.tgt.shape[1])
        nll = 0.5 * self.nll(fwd, 1, batch.tgt.masked_fill(~tgt, -100)) / totals.tgt_pieces
        nll = nll + 0.5 * self.nll(bwd, 0, batch.src.masked_fill(~src, -100)) / totals.src_pieces
        cells = tgt[:, :, None] & src[:, None, :]
        agreement = loss.agreement_loss(fwd.weights, bwd.weights) / totals.cells
        entropy = loss.entropy_loss(fwd.weights, cells, self.config.entropy_lambda)
        entropy = entropy + loss.entropy_loss(bwd.weights, cells.mT, self.config.entropy_lambda)
        total = nll + self.config.alpha * agreement + self.config.beta * entropy / totals.cells
        return total[None]

    def nll(self, output: Attention, side: int, targets: Tensor) -> Tensor:
        logits = (output.hidden @ self.model.table(side).T).flatten(0, 1)
        smoothing = self.config.label_smoothing
        return F.cross_entropy(
            logits, targets.flatten(), label_smoothing=smoothing, reduction="sum"
        )


def random_batches(
    cache: TokenCache, budget: int, random_seed: int
) -> Iterator[tuple[TrainingBatch, Totals]]:
    """Yield batches in random order, `budget` pieces of the longer side each."""
    order = np.random.default_rng(random_seed).permutation(len(cache))
    longest = np.maximum(cache.src.lengths(order), cache.tgt.lengths(order))
    ends = np.searchsorted(np.cumsum(longest), np.arange(budget, longest.sum(), budget))
    while True:
        for start, end in itertools.pairwise(ends):
            indices = order[start:end]
            src, tgt = cache.src.lengths(indices), cache.tgt.lengths(indices)
            yield (
                make_batch(cache, indices),
                Totals(int(src.sum()), int(tgt.sum()), int(src @ tgt)),
            )


# ---- measuring ----


def make_step(config: RunConfig, plain: bool) -> Callable[[TrainingBatch, Totals], float]:
    """Return a function that trains one step and returns the loss."""
    torch.manual_seed(config.train.seed)
    network = MaskAlign(config.model).train()
    if plain:
        for direction in (network.fwd,) if config.model.tied else (network.fwd, network.bwd):
            weights = direction.decoder.state_dict()
            direction.decoder = PlainDecoder(config.model)
            direction.decoder.load_state_dict(weights)
    objective = (PlainObjective if plain else MaskAlignLoss)(network, config.train)
    # The same rule for both (Adam), so that only the implementations differ.
    settings = dataclasses.replace(config.train, optimizer="adam")
    ours = make_optimizer(network, config.model.width, settings)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4) if plain else ours
    attend = plain_attention if plain else model.dot_product_attention

    def step(batch: TrainingBatch, totals: Totals) -> float:
        model.dot_product_attention = attend
        value = objective(batch, totals, 0.0)[0]
        value.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        set_rate(optimizer, 1e-4)
        optimizer.step()
        optimizer.zero_grad()
        return value.item()

    return step


def measure_speed(config: RunConfig, cache: TokenCache, steps: int) -> dict[str, float]:
    """Return median pieces a second (source + target, without padding) of both, in turn."""
    budget = config.train.batch_tokens
    ours = (
        (s.batches[0], s.totals)
        for s in Batches(cache, seed=1, budget=lambda step: budget, micro=1 << 40).steps(
            Position(), 0
        )
    )
    streams = {"ours": ours, "straightforward": random_batches(cache, budget, 1)}
    train = {"ours": make_step(config, False), "straightforward": make_step(config, True)}
    rates: dict[str, list[float]] = {name: [] for name in train}
    for round_ in range(steps + 2):
        for name in train:
            batch, totals = next(streams[name])
            began = time.perf_counter()
            train[name](batch, totals)
            spent = time.perf_counter() - began
            if round_ >= 2:  # warm-up
                rates[name].append((totals.src_pieces + totals.tgt_pieces) / spent)
    result = {name: statistics.median(values) for name, values in rates.items()}
    return {**result, "ratio": result["ours"] / result["straightforward"]}


@click.command(help=__doc__.split("\n")[0])
@click.argument("src")
@click.argument("tgt")
@click.option("--preset", "presets", multiple=True, default=("compact", "paper"), help="Sizes.")
@click.option("--steps", default=10, help="Steps of each, alternating [10].")
@click.option("--batch-tokens", default=4000, help="Pieces of the longer side per step [4000].")
@click.option("--threads", default=2, help="CPU threads [2].")
@click.option("--json", "path", type=Path, help="Write the record to this file.")
def main(
    src: str,
    tgt: str,
    presets: tuple[str, ...],
    steps: int,
    batch_tokens: int,
    threads: int,
    path: Path | None,
) -> None:
    """Measure the presets and print how many times as fast ours is."""
    torch.set_num_threads(threads)
    record = {
        "benchmark": "training",
        **records.describe_circumstances(("torch",)),
        "threads": threads,
        "batch_tokens": batch_tokens,
        "steps": steps,
        "results": {},
    }
    for preset in presets:
        base = {"lowercase": True, "warm_start": "none", "batch_tokens": batch_tokens}
        config = resolve_config(preset, base)
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder)
            prepare_data(Texts(src, tgt, valid_last=0), config, run, lambda text: None)
            sizes = [tok.vocab_size for tok in load_tokenizers(run, config)]
            shape = dataclasses.replace(config.model, src_vocab=sizes[0], tgt_vocab=sizes[1])
            cache = TokenCache.open(run / "cache" / "train")
            assert cache is not None
            result = measure_speed(dataclasses.replace(config, model=shape), cache, steps)
        record["results"][preset] = {"vocabulary": sizes[0], **result}
        print(
            f"{preset}: {result['ours']:,.0f} pieces/s, straightforward "
            f"{result['straightforward']:,.0f}: {result['ratio']:.2f} times as fast"
        )
    if path:
        path.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()

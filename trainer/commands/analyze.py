"""mx-analyze: the paper's analyses of a run or bundle on gold pairs, as tables and figures.

The numbers come from `analysis/paper.py`. Imports torch only after the flags are parsed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...engine.commands.flags import CommonFlags, FlagCommand, argument
from ...engine.errors import MxError
from ...engine.options import flag

if TYPE_CHECKING:
    from ..analysis.paper import PairWeights, WeighPair
    from ..data.gold import GoldPairs

_HELP = """Analyse MODEL, a run folder of mx-train or a bundle of mx-export, on gold pairs:
predictions against alignments (cPcA, wPcA, cPwA, wPwA), norms of transformed values, effect
of the end punctuation; and draw attention maps as SVG or PNG. Bundles and students predict no
words, so of them only the last two are known.

\b
Example:
  mx-analyze run --gold-src test.en --gold-tgt test.fr --gold test.talp --maps 1-3 -o maps
"""


def parse_line_numbers(text: str) -> tuple[int, ...]:
    """Turn `3,7-9` into 3, 7, 8 and 9."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        ends = [first, last or first]
        if not all(end.isascii() and end.isdigit() and int(end) for end in ends):
            raise ValueError(f"{text!r} is no list of lines from 1, like 3,7-9")
        numbers += range(int(ends[0]), int(ends[1]) + 1)
    return tuple(numbers)


@dataclass(frozen=True)
class AnalyzeFlags(CommonFlags):
    """The flags of mx-analyze."""

    model: str = argument(required=True)
    gold_src: str | None = flag(
        None, "Sentences with gold links, source side.", group="Input", metavar="FILE"
    )
    gold_tgt: str | None = flag(
        None, "Sentences with gold links, target side.", group="Input", metavar="FILE"
    )
    gold: str | None = flag(
        None, "Their links [default of all three: the run's own].", group="Input", metavar="FILE"
    )
    threshold: float | None = flag(
        None, "Lowest score of a link [default: the model's].",
        group="Input", metavar="T", minimum=0, maximum=1, above=True,
    )  # fmt: skip
    maps: tuple[int, ...] | None = flag(
        None, "Attention maps of these lines: 3,7-9.",
        group="Output", metavar="LINES", parse=parse_line_numbers,
    )  # fmt: skip
    png: bool = flag(False, "Write the maps as PNG, too (needs the extra `png`).", group="Output")
    output: str = flag(
        ".", "Folder of the maps [default: here].", group="Output", short="-o", metavar="FOLDER"
    )
    as_json: bool = flag(
        False, "Write JSON; AER as a fraction of 1.", group="Output", name="--json"
    )


def run_analyze(flags: AnalyzeFlags) -> None:
    """Compute the tables, print them, draw the maps."""
    from ..analysis.paper import format_report, norm_table, prediction_table, punctuation_effect

    render = load_renderer() if flags.png else None  # or it would be missed after all the work
    path = Path(flags.model)
    is_run = (path / "config.json").exists() and not (path / "manifest.json").exists()
    gold = read_gold_set(flags, path if is_run else None)
    weigh, threshold = load_observer(path) if is_run else load_aligner(flags.model)
    threshold = flags.threshold or threshold
    if flags.maps and max(flags.maps) > len(gold.src):
        raise MxError(
            f"--maps asks for line {max(flags.maps)}, but the gold set has {len(gold.src)}"
        )
    seen = [weigh(src, tgt) for src, tgt in zip(gold.src, gold.tgt, strict=True)]
    result: dict[str, Any] = {"model": flags.model, "threshold": threshold}
    if getattr(weigh, "predicts", False):
        result["prediction"] = prediction_table(seen, gold.gold)  # type: ignore[arg-type]
        result["norms"] = norm_table(weigh, gold)  # type: ignore[arg-type]
    result["punctuation"] = punctuation_effect(weigh, gold, threshold, seen)
    click.echo(json.dumps(result, indent=2) if flags.as_json else format_report(result))
    for line in flags.maps or ():
        for name, svg in draw_maps(line, gold, seen[line - 1], threshold).items():
            for file in write_map(Path(flags.output), name, svg, render):
                if not flags.quiet:
                    click.echo(f"mx-analyze: wrote {file}", err=True)


def read_gold_set(flags: AnalyzeFlags, run: Path | None) -> "GoldPairs":
    """Read the gold pairs of the flags, or without any the run's own."""
    from ..run.texts import Texts, read_texts
    from ..run.training_data import read_gold

    texts = Texts("", "", gold_src=flags.gold_src, gold_tgt=flags.gold_tgt, gold=flags.gold)
    if run and not (flags.gold_src or flags.gold_tgt or flags.gold):
        texts = read_texts(run)
    gold = read_gold(texts)
    if gold is None:
        raise MxError("give --gold-src, --gold-tgt and --gold; MODEL has no gold set of its own")
    return gold


def load_observer(run: Path) -> "tuple[WeighPair, float]":
    """Load a run's network; return what weighs a pair, and the run's threshold."""
    import torch

    from ..analysis.paper import Observer
    from ..data.vocabulary import load_tokenizers
    from ..networks.weights import load_network

    torch.set_num_threads(1)  # one pair at a time is too little work for more
    model, config = load_network(run)
    return Observer(model, load_tokenizers(run, config)), config.train.threshold


def load_aligner(path: str) -> "tuple[WeighPair, float]":
    """Load a bundle; return what weighs a pair, and the bundle's threshold."""
    from ...engine.aligner import Aligner

    aligner = Aligner.load(path, backend="cpu")
    return aligner.soft, float(aligner.rule.threshold or 0)


def draw_maps(
    line: int, gold: "GoldPairs", seen: "PairWeights", threshold: float
) -> dict[str, str]:
    """Draw the maps of a pair: forward, backward, and both as the links are made."""
    from ...engine.view.figure import draw_heat_map
    from ..analysis.paper import links_by_direction

    src, tgt = gold.src[line - 1], gold.tgt[line - 1]
    links = links_by_direction(seen, threshold)
    nulls = seen.src_null.tolist(), seen.tgt_null.tolist()
    return {
        f"{line}.fwd": draw_heat_map(src, tgt, seen.fwd.tolist(), None, nulls[1], links["fwd"]),
        f"{line}.bwd": draw_heat_map(src, tgt, seen.bwd.tolist(), nulls[0], None, links["bwd"]),
        f"{line}.soft": draw_heat_map(src, tgt, seen.scores.tolist(), *nulls, links["soft"]),
    }


def load_renderer() -> Callable[..., Any]:
    """Return the function that makes PNG of SVG."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise MxError('--png needs resvg-py: pip install "mx-align[png]"') from None
    return svg_to_bytes


def write_map(folder: Path, name: str, svg: str, render: Callable[..., Any] | None) -> list[Path]:
    """Write a map as SVG, and as PNG if there is a renderer; return the files."""
    from ...engine.storage import atomic_write

    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{name}.svg": svg.encode()}
    if render:
        # Four pixels for one: some 300 to the inch in a column of a paper.
        files[folder / f"{name}.png"] = bytes(render(svg_string=svg, zoom=4, background="white"))
    for path, data in files.items():
        with atomic_write(path) as file:
            file.write(data)
    return list(files)


main = FlagCommand("mx-analyze", AnalyzeFlags, run_analyze, help=_HELP)

if __name__ == "__main__":
    main(prog_name="mx-analyze")

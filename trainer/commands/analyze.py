"""mx-analyze: the paper's analyses of a run or bundle on gold pairs, as tables and figures.

The numbers come from `analysis/paper.py`. Imports torch only after the flags are parsed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...engine.commands.flags import CommonFlags, FlagCommand, argument
from ...engine.errors import MxError
from ...engine.options import flag
from ...engine.storage import replace_file

if TYPE_CHECKING:
    from ...engine.alignment import SoftAlignment
    from ..analysis.paper import Observer
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


_file = partial(flag, group="Input", metavar="FILE")
_output = partial(flag, group="Output")


@dataclass(frozen=True)
class AnalyzeFlags(CommonFlags):
    """The flags of mx-analyze."""

    model: str = argument(required=True)
    gold_src: str | None = _file(None, "Sentences with gold links, source side.")
    gold_tgt: str | None = _file(None, "Sentences with gold links, target side.")
    gold: str | None = _file(None, "Their links [default of all three: the run's own].")
    read: str | None = flag(
        None, "What is the alignment: prior, posterior, exact; of a run also layer=N, shift "
        "[default: the model's].", group="Input", metavar="WHAT",
    )  # fmt: skip
    threshold: float | None = flag(
        None, "Lowest score of a link [default: the model's].",
        group="Input", metavar="T", minimum=0, maximum=1, above=True,
    )  # fmt: skip
    maps: tuple[int, ...] | None = _output(
        None, "Attention maps of these lines: 3,7-9.", metavar="LINES", parse=parse_line_numbers
    )
    png: bool = _output(False, "Write the maps as PNG, too (needs the extra `png`).")
    output: str = _output(".", "Folder of the maps [default: here].", short="-o", metavar="FOLDER")
    as_json: bool = _output(False, "Write JSON; AER as a fraction of 1.", name="--json")


def run_analyze(flags: AnalyzeFlags) -> None:
    """Compute the tables, print them, draw the maps."""
    from ...engine.aligner import Aligner
    from ..analysis.paper import format_report, norm_table, prediction_table, punctuation_effect

    render = load_renderer() if flags.png else None  # or it would be missed after all the work
    path = Path(flags.model)
    is_run = (path / "config.json").exists() and not (path / "manifest.json").exists()
    gold = read_gold_set(flags, path if is_run else None)
    weigh: Any
    if is_run:
        weigh, threshold = load_observer(path, flags.read)
    else:
        aligner = Aligner.load(path, read=flags.read, backend="cpu")
        weigh, threshold = aligner.soft, float(aligner.rule.threshold or 0)
    threshold = flags.threshold or threshold
    if flags.maps and max(flags.maps) > len(gold.src):
        raise MxError(
            f"--maps asks for line {max(flags.maps)}, but the gold set has {len(gold.src)}"
        )
    seen = [weigh(src, tgt) for src, tgt in zip(gold.src, gold.tgt, strict=True)]
    result: dict[str, Any] = {"model": flags.model, "threshold": threshold}
    if is_run and weigh.predicts:
        result["prediction"] = prediction_table(seen, gold.gold)
        result["norms"] = norm_table(weigh, gold)
    result["punctuation"] = punctuation_effect(weigh, gold, threshold, seen)
    click.echo(json.dumps(result, indent=2) if flags.as_json else format_report(result))
    for line in flags.maps or ():
        for name, image in draw_maps(seen[line - 1], threshold, render).items():
            file = Path(flags.output) / f"{line}.{name}"
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, image)
            if not flags.quiet:
                click.echo(f"mx-analyze: wrote {file}", err=True)


def read_gold_set(flags: AnalyzeFlags, run: Path | None) -> "GoldPairs":
    """Read the gold pairs of the flags, or without any the run's own."""
    from ..data.gold import read_gold_pairs
    from ..run.texts import read_texts

    named: Any = flags
    if run and not (flags.gold_src or flags.gold_tgt or flags.gold):
        named = read_texts(run)
    if not (named.gold_src and named.gold_tgt and named.gold):
        raise MxError("give --gold-src, --gold-tgt and --gold; MODEL has no gold set of its own")
    return read_gold_pairs(named.gold_src, named.gold_tgt, named.gold)


def load_observer(run: Path, read: str | None) -> "tuple[Observer, float]":
    """Load a run's network; return what weighs a pair, and the run's threshold."""
    import torch

    from ..analysis.paper import Observer
    from ..data.vocabulary import load_tokenizers
    from ..networks.weights import load_network

    torch.set_num_threads(1)  # one pair at a time is too little work for more
    model, config = load_network(run, read)
    return Observer(model, load_tokenizers(run, config)), config.train.threshold


def draw_maps(
    seen: "SoftAlignment", threshold: float, render: Callable[..., Any] | None
) -> dict[str, bytes]:
    """Draw the maps of a pair, forward, backward and both as the links are made: {name: file}."""
    from ...engine.view.figure import draw_heat_map
    from ..analysis.paper import links_by_direction

    links = links_by_direction(seen, threshold)
    src_null, tgt_null = seen.src_null.tolist(), seen.tgt_null.tolist()
    maps = {
        "fwd": (seen.fwd, None, tgt_null),
        "bwd": (seen.bwd, src_null, None),
        "soft": (seen.scores, src_null, tgt_null),
    }
    files = {}
    for name, (cells, src_nulls, tgt_nulls) in maps.items():
        svg = draw_heat_map(seen.src, seen.tgt, cells.tolist(), src_nulls, tgt_nulls, links[name])
        files[f"{name}.svg"] = svg.encode()
        if render:
            # Four pixels for one: some 300 to the inch in a column of a paper.
            files[f"{name}.png"] = bytes(render(svg_string=svg, zoom=4, background="white"))
    return files


def load_renderer() -> Callable[..., Any]:
    """Return the function that makes PNG of SVG."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise MxError('--png needs resvg-py: pip install "mx-align[png]"') from None
    return svg_to_bytes


main = FlagCommand("mx-analyze", AnalyzeFlags, run_analyze, help=_HELP)

if __name__ == "__main__":
    main(prog_name="mx-analyze")

"""mx-analyze: the paper's analyses of a run or bundle on gold pairs, as tables and figures.

Knows flags and files; the numbers are `analysis.py`'s. No torch before the flags are parsed.
"""

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from ...engine.errors import MxError
from ...engine.version import __version__


class Lines(click.ParamType):
    """`3,7-9` as numbers of lines."""

    name = "lines"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        numbers: list[int] = []
        for part in str(value).split(","):
            first, _, last = part.partition("-")
            ends = [first, last or first]
            if not all(end.isascii() and end.isdigit() and int(end) for end in ends):
                self.fail(f"{value!r} is no list of lines from 1, like 3,7-9", param, ctx)
            numbers += range(int(ends[0]), int(ends[1]) + 1)
        return numbers


@click.command(context_settings={"max_content_width": 96})
@click.argument("model")
@click.option("--gold-src", metavar="FILE", help="Sentences with gold links, source side.")
@click.option("--gold-tgt", metavar="FILE", help="Sentences with gold links, target side.")
@click.option("--gold", metavar="FILE", help="Their links [default of all three: the run's own].")
@click.option("--maps", type=Lines(), metavar="LINES", help="Attention maps of these lines: 3,7-9.")
@click.option("--png", is_flag=True, help="Write the maps as PNG, too (needs the extra `png`).")
@click.option(
    "-o", "--output", metavar="FOLDER", default=".", help="Folder of the maps [default: here]."
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="T",
    help="Lowest score of a link [default: the model's].",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON; AER as a fraction of 1.")
@click.option("--quiet", is_flag=True, help="No notes on stderr.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mx-analyze")
def main(debug: bool, **flags: Any) -> None:
    """Analyse MODEL, a run folder of mx-train or a bundle of mx-export, on gold pairs:
    predictions against alignments (cPcA, wPcA, cPwA, wPwA), norms of transformed values, effect
    of the end punctuation; and draw attention maps as SVG or PNG. Bundles and students predict no
    words, so of them only the last two are known.

    \b
    Example:
      mx-analyze run --gold-src test.en --gold-tgt test.fr --gold test.talp --maps 1-3 -o maps
    """
    try:
        analyse(flags)
    except MxError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"mx-analyze: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        click.echo("mx-analyze: interrupted", err=True)
        sys.exit(130)


def analyse(flags: dict[str, Any]) -> None:
    from ..analysis.paper import norm_table, prediction_table, punctuation_effect, report

    renderer(flags["png"])  # or it would be missed only after all the work
    run = Path(flags["model"])
    gold = gold_pairs(flags, run if is_run(run) else None)
    weigh, threshold = watcher(run) if is_run(run) else bundle(flags["model"])
    threshold = flags["threshold"] or threshold
    check(flags["maps"], len(gold.src))
    seen = [weigh(*pair) for pair in zip(gold.src, gold.tgt, strict=True)]
    result: dict[str, Any] = {"model": flags["model"], "threshold": threshold}
    if getattr(weigh, "predicts", False):
        result["prediction"] = prediction_table(seen, gold.gold)
        result["norms"] = norm_table(weigh, gold)
    result["punctuation"] = punctuation_effect(weigh, gold, threshold, seen)
    click.echo(json.dumps(result, indent=2) if flags["as_json"] else report(result))
    for line in flags["maps"] or ():
        drawn = maps(line, gold, seen[line - 1], threshold)
        write(Path(flags["output"]), drawn, flags["png"], flags["quiet"])


def is_run(path: Path) -> bool:
    return (path / "config.json").exists() and not (path / "manifest.json").exists()


def gold_pairs(flags: dict[str, Any], run: Path | None) -> Any:
    from ..data.corpus import Texts, read_gold

    named = {name: flags[name] for name in ("gold_src", "gold_tgt", "gold")}
    texts = Texts("", "", **named)
    if run and not any(named.values()):
        from ..run.folder import opened

        texts = opened(run)[1]
    gold = read_gold(texts)
    if gold is None:
        raise MxError("give --gold-src, --gold-tgt and --gold; MODEL has no gold set of its own")
    return gold


def watcher(run: Path) -> tuple[Any, float]:
    import torch

    from ..analysis.paper import Watcher
    from ..data.corpus import tokenizers
    from ..run.checkpoint import load_model

    torch.set_num_threads(1)  # one pair at a time is too little work for more
    model, config = load_model(run)
    return Watcher(model, tokenizers(run, config)), config.train.threshold


def bundle(path: str) -> tuple[Any, float]:
    from ...engine.aligner import Aligner

    aligner = Aligner.load(path, backend="cpu")
    return aligner.soft, float(aligner.rule.threshold or 0)


def check(lines: list[int] | None, n: int) -> None:
    if lines and max(lines) > n:
        raise MxError(f"--maps asks for line {max(lines)}, but the gold set has {n}")


def maps(line: int, gold: Any, seen: Any, threshold: float) -> dict[str, str]:
    """The maps of a pair: forward, backward, and both as the links are made."""
    from ...engine.view.figure import heat_svg
    from ..analysis.paper import links_of

    src, tgt = gold.src[line - 1], gold.tgt[line - 1]
    links = links_of(seen, threshold)
    nulls = seen.src_null.tolist(), seen.tgt_null.tolist()
    return {
        f"{line}.fwd": heat_svg(src, tgt, seen.fwd.tolist(), None, nulls[1], links["fwd"]),
        f"{line}.bwd": heat_svg(src, tgt, seen.bwd.tolist(), nulls[0], None, links["bwd"]),
        f"{line}.soft": heat_svg(src, tgt, seen.scores.tolist(), *nulls, links["soft"]),
    }


def renderer(wanted: bool) -> Any:
    """Makes PNG of SVG; None if nobody asks for it."""
    if not wanted:
        return None
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise MxError('--png needs resvg-py: pip install "mx-align[png]"') from None
    return svg_to_bytes


def write(folder: Path, drawn: dict[str, str], png: bool, quiet: bool) -> None:
    from ...engine.text.files import atomic_write

    render = renderer(png)
    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        files = {f"{name}.svg": svg.encode()}
        if render:
            # Four pixels for one: some 300 to the inch in a column of a paper.
            files[f"{name}.png"] = bytes(render(svg_string=svg, zoom=4, background="white"))
        for path, data in files.items():
            with atomic_write(folder / path) as file:
                file.write(data)
            if not quiet:
                click.echo(f"mx-analyze: wrote {folder / path}", err=True)


if __name__ == "__main__":
    main(prog_name="mx-analyze")

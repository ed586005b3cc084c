"""mx-seed: two parallel files to links by statistics alone, learned from these very files.
The aligner is seed.py's, files and link lines are the engine's; NumPy loads after the flags."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, MxError
from ..version import __version__

if TYPE_CHECKING:
    from ..statistical.learning import SeedModel

# What a model is learned with, and therefore cannot be chosen once it is there.
_LEARNING = ("lowercase", "max_pairs", "max_cells", "max_words")


@dataclass(frozen=True)
class Options:
    """The flags, as parsed."""

    src: str
    tgt: str
    output: str
    scores: str | None
    lowercase: bool
    threshold: float
    max_pairs: int | None
    max_cells: int | None
    max_words: int | None
    save: str | None
    load: str | None
    signature: bool
    quiet: bool


@click.command(context_settings={"max_content_width": 96})
@click.argument("src")
@click.argument("tgt")
@click.option("-o", "--output", metavar="FILE", default="-", help="Link lines [default: stdout].")
@click.option("--scores", metavar="FILE", help="Also write links with confidence: 0-0:0.9312.")
@click.option("--lowercase", is_flag=True, help="Compare words in lower case (advised).")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="T",
    default=0.4,
    help="Least confidence of a link, in (0, 1] [default: 0.4].",
)
@click.option(
    "--max-pairs",
    type=click.IntRange(min=2),
    metavar="N",
    help="Learn from an even sample of at most N pairs; all are aligned [default: 1000000].",
)
@click.option(
    "--max-cells",
    type=click.IntRange(min=1),
    metavar="N",
    help="The same for source words x target words, summed over the pairs; bounds time and "
    "memory [default: 100000000].",
)
@click.option(
    "--max-words",
    type=click.IntRange(min=1),
    metavar="N",
    help="Do not learn from sentences with more words; they are aligned [default: 100].",
)
@click.option("--save", metavar="MODEL", help="Keep what was learned (.npz).")
@click.option(
    "--load",
    metavar="MODEL",
    help="Learn nothing: use what --save kept, in lower case or not as it was learned; excludes "
    "--lowercase, --max-... and --save.",
)
@click.option("--signature", is_flag=True, help="Say on stderr how the links were made.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mx-seed")
def main(debug: bool, **flags: Any) -> None:
    """Link the words of two parallel files SRC and TGT, one sentence a line, words separated by
    spaces; either may be .gz or .zst. Writes a line `0-0 1-2 ...` for each pair, empty where
    nothing is linked.

    The links come from two hidden Markov models that learn to agree, from these files alone: no
    neural network, no GPU, one core. They are meant as the first teacher of mx-train.

    \b
    Example:
      mx-seed --lowercase corpus.en corpus.fr > corpus.links
    """
    try:
        _run(Options(**flags))
    except MxError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"mx-seed: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run(options: Options) -> None:
    if "-" in (options.src, options.tgt):
        raise InputError("'-' cannot be read twice, to learn and to align; give SRC and TGT paths")
    _check_targets(options)
    report = _reporter(options)
    model = _model(options, report)
    _write(options, model, report)
    if options.signature:
        click.echo(_signature(options, model), err=True)


def _check_targets(options: Options) -> None:
    """Files to be written must be different, and none of the input."""
    names = [name for name in (options.output, options.scores, options.save) if name]
    taken = {os.path.realpath(name) for name in (options.src, options.tgt)}
    for name in names:
        path = os.path.realpath(name)
        if name != "-" and path != os.devnull and path in taken:
            raise InputError(f"{name} is an input or would be written twice; give another name")
        taken.add(path)


def _reporter(options: Options) -> Callable[[str], None]:
    """Prints messages with the time since the start; silent when nobody watches."""
    if options.quiet or not sys.stderr.isatty():
        return lambda message: None
    start = time.monotonic()
    return lambda message: click.echo(
        f"mx-seed: {time.monotonic() - start:6.1f} s  {message}", err=True
    )


def _pairs(options: Options) -> Iterator[tuple[list[str], list[str]]]:
    from ..text.files import read_pairs
    from ..text.words import split

    for src, tgt in read_pairs(options.src, options.tgt):
        yield split(src), split(tgt)


def _model(options: Options, report: Callable[[str], None]) -> SeedModel:
    from ..statistical.learning import SeedConfig, SeedModel

    given = {name: value for name in _LEARNING if (value := getattr(options, name))}
    if options.load is not None:
        refused = [*given, *(["save"] if options.save is not None else [])]
        if refused:
            flags = ", ".join("--" + name.replace("_", "-") for name in refused)
            raise InputError(
                f"--load {options.load} learns nothing, so that {flags} cannot be heeded; leave "
                "that out, or leave out --load to learn anew"
            )
        return SeedModel.load(options.load)
    model = SeedModel.learn(_pairs(options), SeedConfig(**given), report=report)
    if options.save is not None:
        model.save(options.save)
    return model


def _write(options: Options, model: SeedModel, report: Callable[[str], None]) -> None:
    from ..links.link_files import format_pharaoh, format_scored
    from ..text.files import open_output

    report("aligning")
    n = -1
    with ExitStack() as stack:
        output = stack.enter_context(open_output(options.output, whole=True))
        scored = open_output(options.scores, whole=True) if options.scores else nullcontext()
        scores = stack.enter_context(scored)
        for n, links in enumerate(model.align(_pairs(options), threshold=options.threshold)):
            output.write(format_pharaoh((i, j) for i, j, _ in links).encode() + b"\n")
            if scores is not None:
                scores.write(format_scored(links).encode() + b"\n")
            if n % 100_000 == 99_999:
                report(f"aligned {n + 1:,} pairs")
    report(f"aligned {n + 1:,} pairs, all")


def _signature(options: Options, model: SeedModel) -> str:
    case = "lower" if model.config.lowercase else "kept"
    return (
        f"mx-seed|v:{__version__}|pairs:{model.n_learned}|case:{case}|"
        f"rounds:{model.config.ibm1_rounds}+{model.config.hmm_rounds}|sym:geometric|"
        f"thr:{options.threshold:g}"
    )


if __name__ == "__main__":
    main()

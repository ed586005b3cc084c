"""mx-seed: links two parallel files by statistics alone, learned from these very files or before.

Needs NumPy and no torch; it loads after the flags are parsed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from typing import Any, Literal

import click

from ..errors import InputError
from ..statistical.settings import THRESHOLD, LearningLimits
from ..storage import check_target
from .flags import CommonFlags, FlagCommand, argument, flag, flag_name

_HELP = """Link the words of two parallel files SRC and TGT, one sentence a line, words separated by
spaces; either may be .gz or .zst. Writes a line `0-0 1-2 ...` for each pair, empty where nothing is
linked.

The links come from two hidden Markov models that learn to agree, from these files alone: no neural
network, no GPU, one core. With --save and --load they are learned once and align other text of the
same languages. They are also the first teacher of mx-train.

\b
Examples:
  mx-seed --lowercase corpus.en corpus.fr > corpus.links
  mx-seed --load model.npz new.en new.fr > new.links     # after mx-seed --save model.npz ...
"""


@dataclass(frozen=True)
class SeedFlags(LearningLimits, CommonFlags):
    """The flags of mx-seed."""

    src: str = argument(required=True)
    tgt: str = argument(required=True)
    output: str = flag(
        "-", "Link lines [default: stdout].", group="Output", short="-o", metavar="FILE"
    )
    scores: str | None = flag(
        None, "Also write links with confidence: 0-0:0.9312.", group="Output", metavar="FILE"
    )
    threshold: float = flag(
        THRESHOLD, "Least confidence of a link, in (0, 1].",
        group="Output", metavar="T", minimum=0, above=True, maximum=1,
    )  # fmt: skip
    symmetrize: Literal[
        "soft", "intersect", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"
    ] = flag("soft", "How the directions are joined [default: soft, the mean].", group="Output")
    forward: bool = flag(False, "Best source word of each target word only.", group="Output")
    backward: bool = flag(False, "Best target word of each source word only.", group="Output")
    write_directions: str | None = flag(
        None, "Also write the links of each direction, PREFIX.fwd and PREFIX.bwd, in one pass.",
        group="Output", metavar="PREFIX",
    )  # fmt: skip
    signature: bool = flag(False, "Say on stderr how the links were made.", group="Output")
    save: str | None = flag(None, "Keep what was learned (.npz).", group="Model", metavar="MODEL")
    load: str | None = flag(
        None,
        "Learn nothing: use what --save kept, in lower case or not as it was learned; excludes "
        "--lowercase, --max-... and, without --add-counts, --save.",
        group="Model", metavar="MODEL",
    )  # fmt: skip
    priors: str | None = flag(
        None, "Begin to learn with what --save kept of other text, and add to it.",
        group="Model", metavar="MODEL",
    )  # fmt: skip
    save_counts: str | None = flag(
        None, "With --load: do not align, but count the links of SRC and TGT, a part of a text.",
        group="Model", metavar="FILE",
    )  # fmt: skip
    add_counts: tuple[str, ...] = flag(
        (), "With --load: learn from the sum of these counts, made with that model.",
        group="Model", metavar="FILE",
    )  # fmt: skip


def run_seed(flags: SeedFlags) -> None:
    """Learn or load an aligner, keep it if asked to, align the files."""
    check_paths(flags)
    limits = {field.name: getattr(flags, field.name) for field in fields(LearningLimits)}
    check_model_flags(flags, limits)

    from ..statistical.aligner import StatisticalAligner
    from ..statistical.model_file import load_counts, save_counts

    report = make_reporter(flags)
    how: dict[str, Any] = {"threshold": flags.threshold, "symmetrize": find_mode(flags)}
    if flags.load is not None:
        aligner = StatisticalAligner.load(flags.load, **how)
        if flags.save_counts is not None:
            report("counting")
            save_counts(aligner.count_files(flags.src, flags.tgt), flags.save_counts)
            return
        if flags.add_counts:
            parts = map(load_counts, flags.add_counts)
            aligner = aligner.learn_counts(reduce(add, parts))
        report(aligner.describe())
    else:
        priors = StatisticalAligner.load(flags.priors) if flags.priors is not None else None
        aligner = StatisticalAligner.learn_files(
            flags.src, flags.tgt, priors=priors, on_progress=report, **how, **limits
        )
    if flags.save is not None:
        aligner.save(flags.save)
    more: dict[str, Any] = {"scores": flags.scores, "directions": flags.write_directions}
    aligner.align_files(flags.src, flags.tgt, flags.output, on_progress=report, **more)
    if flags.signature:
        click.echo(aligner.signature(), err=True)


def check_model_flags(flags: SeedFlags, limits: dict[str, Any]) -> None:
    """Fail if flags that learn go with --load, or those that need it are alone."""
    counts = [name for name in ("save_counts", "add_counts") if getattr(flags, name)]
    if flags.load is None:
        if counts:
            raise InputError(
                f"{flag_name(counts[0])} needs the model that the links are counted with; "
                "add --load MODEL"
            )
        return
    if len(counts) > 1:
        raise InputError("--save-counts and --add-counts exclude each other; run mx-seed twice")
    refused = [name for name, value in limits.items() if value != getattr(LearningLimits, name)]
    refused += ["save"] if flags.save is not None and not flags.add_counts else []
    refused += ["priors"] if flags.priors is not None else []
    if refused:
        raise InputError(
            f"--load {flags.load} learns nothing, so that {', '.join(map(flag_name, refused))} "
            "cannot be heeded; leave that out, or leave out --load to learn anew"
        )


def check_paths(flags: SeedFlags) -> None:
    """Fail unless the files to write are different and none of the input."""
    if flags.load is None and "-" in (flags.src, flags.tgt):
        raise InputError("'-' cannot be read twice, to learn and to align; give SRC and TGT paths")
    prefix = flags.write_directions
    both = (f"{prefix}.fwd", f"{prefix}.bwd") if prefix is not None else ()
    outputs = flags.output, flags.scores, flags.save, flags.save_counts, *both
    names = [name for name in outputs if name]
    sources = flags.src, flags.tgt, flags.load, flags.priors, *flags.add_counts
    inputs = [name for name in sources if name]
    taken = {os.path.realpath(name) for name in inputs}
    for name in names:
        path = os.path.realpath(name)
        if name != "-" and path != os.devnull and path in taken:
            raise InputError(f"{name} is an input or would be written twice; give another name")
        taken.add(path)
        if name != "-":
            check_target(name)


def find_mode(flags: SeedFlags) -> str:
    """Return how directions are joined, or which one is taken."""
    given = [name for name in ("forward", "backward") if getattr(flags, name)]
    given += ["symmetrize"] if flags.symmetrize != "soft" else []
    if len(given) > 1:
        raise click.UsageError("--{} and --{} exclude each other".format(*given))
    return given[0] if given and given[0] != "symmetrize" else flags.symmetrize


def make_reporter(flags: SeedFlags) -> Callable[[str], None]:
    """Return what prints messages with the time since the start; silent when nobody watches."""
    if flags.quiet or not sys.stderr.isatty():
        return lambda message: None
    start = time.monotonic()
    return lambda message: click.echo(
        f"mx-seed: {time.monotonic() - start:6.1f} s  {message}", err=True
    )


main = FlagCommand(
    "mx-seed", SeedFlags, run_seed, help=_HELP, titles=("Output", "Learning", "Model")
)

if __name__ == "__main__":
    main()

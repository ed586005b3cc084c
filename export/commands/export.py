"""mx-export: turn a training run into a bundle. Loads torch and onnx only after the flags are
parsed."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ...engine.commands.flags import CommonFlags, FlagCommand, argument, flag
from ...engine.errors import MxError

if TYPE_CHECKING:
    from ..bundling import ExportOptions

_HELP = """Turn the training run in the folder RUN into a bundle, which `mx-align` needs and nothing
else: ONNX graphs verified against PyTorch, vocabulary, thresholds, model card.

\b
Example:
  mx-export run -o de-en.mx --langs de-en
"""


@dataclass(frozen=True)
class ExportFlags(CommonFlags):
    """The flags of mx-export."""

    run: str = argument(required=True)
    output: str | None = flag(
        None, "The folder to write, or a single file if the name ends in .zip.",
        group="Bundle", short="-o", metavar="BUNDLE",
    )  # fmt: skip
    langs: str | None = flag(
        None, "Language codes, such as de-en, or de+fr-en for a model of several; kept in the "
        "bundle.", group="Bundle", metavar="SRC-TGT",
    )  # fmt: skip
    name: str = flag("", "Name of the model [default: that of the bundle].", group="Bundle")
    dtype: tuple[Literal["fp32", "fp16", "int8"], ...] = flag(
        (), "Graphs to write; may be given again [default: fp32, fp16, and int8 if its links are "
        "nearly those of fp32].", group="Bundle",
    )  # fmt: skip
    kernels: str | None = flag(
        None, "GPUs to compile kernels for, like sm_80,sm_90, or none; needs triton, no GPU "
        "[default: all, if triton is installed].", group="Bundle", metavar="LIST",
    )  # fmt: skip
    zipped: bool = flag(
        False, "Write one zip file: adds .zip to the name.", group="Bundle", name="--zip"
    )
    force: bool = flag(False, "Replace a bundle that is there already.", group="Bundle")
    probe: tuple[str, str] | None = flag(
        None, "Text to measure on, two parallel files [default: the run's validation text].",
        group="Measuring", metavar="SRC TGT",
    )  # fmt: skip
    gold: str | None = flag(
        None, "Gold links, to choose thresholds and calibrate by.", group="Measuring",
        metavar="FILE",
    )  # fmt: skip
    gold_src: str | None = flag(None, "Their source sentences.", group="Measuring", metavar="FILE")
    gold_tgt: str | None = flag(None, "Their target sentences.", group="Measuring", metavar="FILE")
    test: tuple[tuple[str, str, str], ...] = flag(
        (), "Gold pairs to measure the AER on that the model card tells; may be given again "
        "[default: those of --gold].", group="Measuring", metavar="SRC TGT LINKS",
    )  # fmt: skip
    data: str | None = flag(None, "What it was trained on.", group="Card", metavar="TEXT")
    licence: str | None = flag(None, "Licence of the data.", group="Card", metavar="TEXT")
    hardware: str | None = flag(None, "The machine that trained it.", group="Card", metavar="TEXT")
    limits: str | None = flag(None, "What it is not good at.", group="Card", metavar="TEXT")
    text: str | None = flag(
        None, "For `mx-align --train-on-input`: which text.", group="Card", metavar="DIGEST"
    )


def run_export(flags: ExportFlags) -> None:
    """Check the flags and packages, then export."""
    if flags.output is None:
        raise MxError("give the bundle to write with -o BUNDLE")
    options = flags_to_options(flags, Path(flags.output))
    from ..bundling import export_run

    export_run(options, lambda line: None if flags.quiet else click.echo(line, err=True))


def flags_to_options(flags: ExportFlags, output: Path) -> ExportOptions:
    """Check the flags against each other; an error names missing packages before any work."""
    from ...engine.bundle.languages import parse_languages

    gold = (flags.gold_src, flags.gold_tgt, flags.gold)
    if any(gold) and not all(gold):
        raise MxError("--gold, --gold-src and --gold-tgt belong together; give all three")
    if flags.zipped and output.suffix != ".zip":
        output = output.with_name(output.name + ".zip")
    languages = parse_languages(flags.langs) if flags.langs else ("und", "und")
    architectures = parse_architectures(flags.kernels)
    needed = ("torch", "onnx", "safetensors")
    missing = [name for name in needed if not importlib.util.find_spec(name)]
    if missing:
        raise MxError(
            f"mx-export needs {', '.join(missing)}; install: pip install 'mx-align[export]'"
        )
    from ..bundling import ExportOptions

    told = ("data", "licence", "hardware", "limits", "text")
    return ExportOptions(
        run=Path(flags.run),
        output=output,
        dtypes=tuple(dict.fromkeys(flags.dtype)),
        languages=languages,
        name=flags.name,
        probe=flags.probe or None,
        gold=gold if all(gold) else None,  # type: ignore[arg-type]
        tests=flags.test,
        about={name: said for name in told if (said := getattr(flags, name))},
        force=flags.force,
        kernels=architectures,
    )


def parse_architectures(names: str | None) -> tuple[str, ...] | None:
    """Return GPU architectures from a list with commas; None for all that there are."""
    if names is None:
        return None
    if names == "none":
        return ()
    from ..kernels import check_architectures, has_triton

    found = check_architectures(name.strip() for name in names.split(","))
    if not has_triton():
        raise MxError("--kernels needs triton; install: pip install triton")
    return found


main = FlagCommand(
    "mx-export",
    ExportFlags,
    run_export,
    help=_HELP,
    titles=("Bundle", "Measuring", "Card"),
    renamed={"--precision": "--dtype"},
    interrupted=lambda flags: "stopped; nothing was written",
)

if __name__ == "__main__":
    main(prog_name="mx-export")

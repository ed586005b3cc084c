"""mx-export: flags into options. No torch or onnx before the flags are parsed."""

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from ...engine.errors import MxError
from ...engine.version import __version__


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: mx-export run -o de-en.mx --langs de-en",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="BUNDLE",
    type=click.Path(path_type=Path),
    help="The folder to write, or a single file if the name ends in .zip.",
)
@click.option(
    "--langs",
    metavar="SRC-TGT",
    help="Language codes, such as de-en, or de+fr-en for a model of several; kept in the bundle.",
)
@click.option("--name", default="", help="Name of the model [default: that of the bundle].")
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice(["fp32", "fp16", "int8"]),
    help="Graphs to write; may be given again [default: fp32, fp16, and int8 if its links are "
    "nearly those of fp32].",
)
@click.option(
    "--probe",
    nargs=2,
    metavar="SRC TGT",
    help="Text to measure on, two parallel files [default: the run's validation text].",
)
@click.option("--gold", metavar="FILE", help="Gold links, to choose thresholds and calibrate by.")
@click.option("--gold-src", metavar="FILE", help="Their source sentences.")
@click.option("--gold-tgt", metavar="FILE", help="Their target sentences.")
@click.option(
    "--test",
    "tests",
    nargs=3,
    multiple=True,
    metavar="SRC TGT LINKS",
    help="Gold pairs to measure the AER on that the model card tells; may be given again "
    "[default: those of --gold].",
)
@click.option("--data", metavar="TEXT", help="For the card: what it was trained on.")
@click.option("--licence", metavar="TEXT", help="For the card: licence of the data.")
@click.option("--hardware", metavar="TEXT", help="For the card: the machine that trained it.")
@click.option("--limits", metavar="TEXT", help="For the card: what it is not good at.")
@click.option("--text", metavar="DIGEST", help="For `mx-align --train-on-input`: which text.")
@click.option(
    "--kernels",
    metavar="LIST",
    help="GPUs to compile kernels for, like sm_80,sm_90, or none; needs triton, no GPU [default: "
    "all, if triton is installed].",
)
@click.option("--zip", "zipped", is_flag=True, help="Write one zip file: adds .zip to the name.")
@click.option("--force", is_flag=True, help="Replace a bundle that is there already.")
@click.option("-q", "--quiet", is_flag=True, help="Only say what went wrong.")
@click.option("--debug", is_flag=True, help="Show where in the code an error arose.")
@click.version_option(__version__, prog_name="mx-export")
def main(debug: bool, quiet: bool, **flags: Any) -> None:
    """Turn the training run in the folder RUN into a bundle, which `mx-align` needs and nothing
    else: ONNX graphs verified against PyTorch, vocabulary, thresholds, model card."""
    try:
        checked = parse(**flags)
        need_packages()
        from ..bundling import Options, export

        export(Options(**checked), (lambda line: None) if quiet else say)
    except MxError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"mx-export: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        click.echo("mx-export: stopped; nothing was written", err=True)
        sys.exit(130)


def say(line: str) -> None:
    click.echo(line, err=True)


def need_packages() -> None:
    """Missing parts of the extra are named before any work is done."""
    missing = [
        name for name in ("torch", "onnx", "safetensors") if not importlib.util.find_spec(name)
    ]
    if missing:
        raise MxError(
            f"mx-export needs {', '.join(missing)}; install: pip install 'mx-align[export]'"
        )


def parse(
    run: Path,
    output: Path,
    langs: str | None,
    name: str,
    precisions: tuple[str, ...],
    probe: tuple[str, str] | None,
    gold: str | None,
    gold_src: str | None,
    gold_tgt: str | None,
    zipped: bool,
    force: bool,
    kernels: str | None,
    tests: tuple[tuple[str, str, str], ...],
    **about: str | None,
) -> dict[str, Any]:
    """The flags, checked against each other, as fields of `bundling.Options`."""
    from ...engine.bundle.languages import parse_languages

    given = [gold, gold_src, gold_tgt]
    if any(given) and not all(given):
        raise MxError("--gold, --gold-src and --gold-tgt belong together; give all three")
    if zipped and output.suffix != ".zip":
        output = output.with_name(output.name + ".zip")
    return {
        "run": run,
        "output": output,
        "precisions": tuple(dict.fromkeys(precisions)),
        "languages": parse_languages(langs) if langs else ("und", "und"),
        "name": name,
        "probe": probe or None,
        "gold": (gold_src, gold_tgt, gold) if gold else None,
        "tests": tests,
        "about": {name: said for name, said in about.items() if said},
        "force": force,
        "kernels": _architectures(kernels),
    }


def _architectures(names: str | None) -> tuple[str, ...] | None:
    """GPU architectures from a list with commas."""
    if names is None or names == "none":
        return () if names else None
    from ..kernels import check_architectures, has_triton

    found = check_architectures(name.strip() for name in names.split(","))
    if not has_triton():
        raise MxError("--kernels needs triton; install: pip install triton")
    return found


if __name__ == "__main__":
    main()

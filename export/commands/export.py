"""mx-export: turn a training run into a bundle. Loads torch and onnx only after the flags are
parsed."""

import importlib.util

import click

from ...engine.commands.flags import FlagCommand
from ...engine.errors import MxError
from ..options import ExportOptions

_HELP = """Turn the training run in the folder RUN into a bundle, which `mx-align` needs and nothing
else: ONNX graphs verified against PyTorch, vocabulary, thresholds, model card.

\b
Example:
  mx-export run -o de-en.mx --langs de-en
"""


def run_export(options: ExportOptions) -> None:
    """Check that the packages are there, then export."""
    needed = ("torch", "onnx", "safetensors")
    missing = [name for name in needed if not importlib.util.find_spec(name)]
    if missing:
        raise MxError(
            f"mx-export needs {', '.join(missing)}; install: pip install 'mx-align[export]'"
        )
    from ..bundling import export_run

    export_run(options, lambda line: None if options.quiet else click.echo(line, err=True))


main = FlagCommand(
    "mx-export",
    ExportOptions,
    run_export,
    help=_HELP,
    titles=("Bundle", "Measuring", "Card"),
    renamed={"--precision": "--dtype"},
    interrupted=lambda options: "stopped; nothing was written",
)

if __name__ == "__main__":
    main(prog_name="mx-export")

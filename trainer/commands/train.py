"""mx-train: flags into a config, a config into a run. No torch before the flags are parsed.

The flags of the settings are made from the fields of `config.py`.
"""

import dataclasses
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from ...engine.commands.help import SectionedCommand
from ...engine.errors import MxError
from ...engine.version import __version__
from ..config import PRESETS, ModelConfig, TrainConfig, read_object

# Each group of settings begins at this field and ends before the next.
_TITLES = {
    "kind": "Model",
    "vocab_size": "Text",
    "alpha": "Losses",
    "steps": "Optimisation",
    "eval_every": "Bookkeeping",
}
_TEXTS = (
    "valid_src", "valid_tgt", "valid_last", "gold_src", "gold_tgt", "gold", "vocab", "teacher",
    "start", "langs",
)  # fmt: skip


# ---- flags from fields ----


def setting_options() -> Iterator[tuple[str, click.Option]]:
    """Title and flag of every setting."""
    title = ""
    for field in (*dataclasses.fields(ModelConfig), *dataclasses.fields(TrainConfig)):
        title = _TITLES.get(field.name, title)
        if "help" in field.metadata:
            yield title, setting_option(field)


def setting_option(field: dataclasses.Field) -> click.Option:
    flag = "--" + field.name.replace("_", "-")
    kind: Any = field.type
    if get_origin(kind) is Literal:
        kind = click.Choice(get_args(kind))
    declared = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
    # Without a default of its own: only flags that were given override the preset.
    return click.Option(
        [declared, field.name],
        type=kind,
        default=None,
        help=f"{field.metadata['help']} [{defaults(field)}]",
    )


def defaults(field: dataclasses.Field) -> str:
    """The field's value in each preset; just once if it is the same in all."""
    values = [preset.get(field.name, field.default) for preset in PRESETS.values()]
    if all(value == values[0] for value in values):
        return f"default: {shown(field.default)}"
    pairs = zip(PRESETS, map(shown, values), strict=True)
    return ", ".join(f"{name}: {value}" for name, value in pairs)


def shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"{value}"


class TrainCommand(SectionedCommand):
    """Adds the flags of the settings to those of the command."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        sections = {
            "Run": ["output", "resume", "plot", "restart", "preset", "student", "config"],
            "Files": [*_TEXTS],
            "Machine": ["device", "gpus", "threads"],
        }
        super().__init__(*args, sections=sections, **kwargs)
        for title, option in setting_options():
            assert option.name
            sections.setdefault(title, []).append(option.name)
            self.params.append(option)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = list(args)  # for the processes of --gpus
        return super().parse_args(ctx, args)


# ---- the command ----


@click.command(cls=TrainCommand, context_settings={"max_content_width": 100})
@click.argument("src", required=False)
@click.argument("tgt", required=False)
@click.option("-o", "--output", metavar="RUN", help="Run folder; an unfinished run in it goes on.")
@click.option("--resume", metavar="RUN", help="Go on with a run, on its files and no others.")
@click.option("--plot", metavar="RUN", help="Draw how a run went, in RUN/plot.html; no training.")
@click.option("--restart", is_flag=True, help="Delete the run in the folder and begin anew.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="Settings to begin with, listed below [default: compact].",
)
@click.option(
    "--student", is_flag=True, help="Learn the small, fast symmetric model: --preset student."
)
@click.option(
    "--config", metavar="FILE", help="Settings from a JSON file, such as another run's config.json."
)
@click.option("--valid-src", metavar="FILE", help="Validation text, source side.")
@click.option("--valid-tgt", metavar="FILE", help="Validation text, target side.")
@click.option(
    "--valid-last",
    type=click.IntRange(min=0),
    metavar="N",
    help="Validate on the last N pairs, which are not trained on (at most a tenth of the text; "
    "0: no validation) [default: 500 without --valid-src].",
)
@click.option("--gold-src", metavar="FILE", help="Sentences with gold links, source side.")
@click.option("--gold-tgt", metavar="FILE", help="Sentences with gold links, target side.")
@click.option("--gold", metavar="FILE", help="Their links (talp or NAACL): reports AER.")
@click.option(
    "--teacher",
    multiple=True,
    metavar="seed|LINKS|BUNDLE|RUN",
    help="Who knows links of the text: the statistical aligner, a file of links (`i-j` or "
    "`i-j:score`, one line per pair; `-` is standard input), an exported model, another run. "
    "Several are averaged [default: seed, where the settings want links].",
)
@click.option("--vocab", metavar="SPM", help="Use this SentencePiece model, do not learn one.")
@click.option(
    "--start",
    metavar="RUN|BUNDLE",
    help="Begin with the weights, vocabulary, shape, --lowercase and --fold-accents of another run "
    "or of an exported student, not with random weights. Peak rates that are not given are then a "
    "quarter of the preset's, to keep what it knows. The preset is by default that of its kind.",
)
@click.option(
    "--langs",
    metavar="XX-YY",
    help="Languages of SRC and TGT: a --teacher that was exported for them in the other order is "
    "turned round.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="Where to train [default: auto, CUDA if there is any].",
)
@click.option(
    "--gpus",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    help="Processes on this machine, one for each GPU [default: 1].",
)
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads [default: all cores]."
)
@click.option("--quiet", is_flag=True, help="Report errors only; RUN/log.jsonl has the rest.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mx-train")
@click.pass_context
def main(ctx: click.Context, debug: bool, **flags: Any) -> None:
    """Learn to align the words of SRC and TGT, two files with one sentence per line and words
    between spaces, and keep the model in the folder RUN for `mx-export`.

    Files may be plain or .gz or .zst; `-` is standard input. The same command again goes on where
    it stopped, even after a crash. On several machines that share the disk of RUN:
    torchrun [...] -m mx_align.trainer SRC TGT -o RUN.

    Exit status: 0 finished; 2 a mistake, explained in one line; 130 or 143 stopped by Ctrl-C or
    SIGTERM, with everything saved.

    \b
    Examples:
      mx-train corpus.en corpus.fr -o run --preset tiny
      mx-train corpus.en corpus.fr -o run --student --lowercase
      mx-train corpus.en corpus.fr -o run --start en-fr.mx --steps 1000
      mx-train corpus.en.zst corpus.fr.zst -o run --preset paper --gpus 4 --lr 7e-4
      mx-train --resume run --steps 80000
    """
    try:
        sys.exit(begin(ctx.meta["arguments"], flags))
    except MxError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"mx-train: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        click.echo("mx-train: interrupted", err=True)
        sys.exit(130)


def begin(arguments: list[str], flags: dict[str, Any]) -> int:
    """Check the flags, then train here or in several processes; gives the exit code."""
    if flags["plot"]:
        from ..analysis.plot import plot

        click.echo(plot(Path(flags["plot"])))
        return 0
    flags["teacher"] = list(flags["teacher"]) or None
    if flags["student"]:
        if flags["preset"] not in (None, "student"):
            raise MxError(f"--student and --preset {flags['preset']} exclude each other")
        flags["preset"] = "student"
    check_files(flags)
    overrides = settings(flags)
    missing = [name for name in ("torch", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise MxError(
            f"training needs {' and '.join(missing)}, which the base install leaves out: "
            'pip install "mx-align[train]"'
        )
    if flags["gpus"] > 1 and "LOCAL_RANK" not in os.environ:
        from ..loop.devices import launch

        return launch(flags["gpus"], flags["device"], arguments)
    return work(flags, overrides)


def check_files(flags: dict[str, Any]) -> None:
    """An error if the files named do not make a whole."""
    if flags["resume"]:
        named = ("src", "tgt", "output", "preset", *_TEXTS)
        given = [shown_flag(name) for name in named if flags[name] is not None]
        given += ["--restart"] if flags["restart"] else []
        if given:
            raise MxError(
                "--resume takes the folder alone, and settings to change; "
                f"give the whole command with -o to name {', '.join(given)}"
            )
        return
    if not (flags["src"] and flags["tgt"] and flags["output"]):
        raise MxError("give SRC, TGT and -o RUN, or --resume RUN; `mx-train --help` tells more")
    for names in (("valid_src", "valid_tgt"), ("gold_src", "gold_tgt", "gold")):
        absent = [shown_flag(name) for name in names if not flags[name]]
        if 0 < len(absent) < len(names):
            raise MxError(f"{' and '.join(absent)} must be given too")
    if flags["valid_src"] and flags["valid_last"]:
        raise MxError("--valid-src and --valid-last exclude each other")
    if flags["start"] and flags["vocab"]:
        raise MxError("--start and --vocab exclude each other: a model has its own vocabulary")


def shown_flag(name: str) -> str:
    return name.upper() if name in ("src", "tgt") else "--" + name.replace("_", "-")


def settings(flags: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `--config` says, and what the flags say."""
    from_file: dict[str, Any] = {}
    if flags["config"]:
        for name, value in read_object(Path(flags["config"])).items():
            part = name in ("model", "train") and isinstance(value, dict)  # of a config.json
            from_file |= value if part else {name: value}
    for name in ("src_vocab", "tgt_vocab"):  # of the other run's vocabulary
        from_file.pop(name, None)
    names = {option.name for _, option in setting_options()}
    return from_file, {k: v for k, v in flags.items() if k in names and v is not None}


def work(flags: dict[str, Any], overrides: tuple[dict[str, Any], ...]) -> int:
    """Train as one process, alone or of many; gives the exit code."""
    import torch

    from ..data.corpus import Texts, open_prepared
    from ..loop.devices import joined
    from ..loop.progress import Monitor
    from ..loop.train import train
    from ..run.folder import Command, held, opened, settle

    texts = None
    if not flags["resume"]:
        last = flags["valid_last"]
        if last is None:
            last = 0 if flags["valid_src"] else 500
        named = {name: flags[name] for name in _TEXTS if flags[name] is not None}
        texts = Texts(flags["src"], flags["tgt"], **{**named, "valid_last": last})
    run = Path(flags["resume"] or flags["output"])
    command = Command(run, texts, flags["preset"], overrides, flags["restart"])
    if flags["resume"] and not run.is_dir():
        raise MxError(f"{run} does not exist; there is nothing to resume")
    if flags["threads"]:
        torch.set_num_threads(flags["threads"])
    with faded_as_zero(), joined(flags["device"]) as world:
        monitor = Monitor(run, quiet=flags["quiet"], active=world.rank == 0)
        with held(run, world.rank == 0):
            problem = None
            if world.rank == 0:
                try:
                    settle(command, monitor.note)
                except MxError as error:
                    problem = error
            if world.any(problem is not None):  # the others wait here until all is settled
                if problem:
                    raise problem
                return 2
            config, texts = opened(run)
            number = train(config, run, open_prepared(texts, config, run), world, monitor)
    return 128 + number if number else 0


@contextmanager
def faded_as_zero() -> Iterator[None]:
    """The momentum of what is never used fades to numbers so small that CPUs take a hundred times
    as long for them. Threads take this over when they are made, so it is set before any are."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)

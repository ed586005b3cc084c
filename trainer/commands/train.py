"""mx-train: learns a model from parallel text. Imports torch only after the flags are parsed."""

import dataclasses
import importlib.util
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from ...engine.commands.flags import CommonFlags, FlagCommand, argument
from ...engine.errors import MxError
from ...engine.options import flag, flag_name
from ..config import (
    OLD_NAMES,
    PRESETS,
    STATISTICAL,
    ModelConfig,
    TrainConfig,
    list_defaults,
    read_json_object,
    rename_old_settings,
)
from ..run.texts import Texts

_HELP = """Learn to align the words of SRC and TGT, two files with one sentence per line and words
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
_TITLES = ("Run", "Files", "Machine", "Model", "Text", "Losses", "Optimisation", "Bookkeeping")


_run = partial(flag, group="Run")
_machine = partial(flag, group="Machine")


@dataclass(frozen=True)
class TrainFlags(Texts, CommonFlags):
    """The flags of mx-train, besides those of the settings."""

    src: str = argument()
    tgt: str = argument()
    output: str | None = _run(
        None, "Run folder; an unfinished run in it goes on.", short="-o", metavar="RUN"
    )
    resume: str | None = _run(None, "Go on with a run, on its files and no others.", metavar="RUN")
    plot: tuple[str, ...] = _run(
        (), "Draw how a run went, in RUN/plot.html; no training. Several times: runs side by side.",
        metavar="RUN",
    )  # fmt: skip
    restart: bool = _run(False, "Delete the run in the folder and begin anew.")
    preset: Literal[tuple(PRESETS)] | None = _run(  # type: ignore[valid-type]
        None, "Settings to begin with, listed below [default: compact]."
    )
    student: bool = _run(False, "Learn the small, fast symmetric model: --preset student.")
    config: str | None = _run(
        None, "Settings from a JSON file, such as another run's config.json.", metavar="FILE"
    )
    valid_last: int | None = flag(  # type: ignore[assignment]
        None,
        "Validate on the last N pairs, which are not trained on (at most a tenth of the text; "
        "0: no validation) [default: 500 without --valid-src].",
        group="Files",
        minimum=0,
    )
    device: Literal["auto", "cpu", "cuda"] = _machine(
        "auto", "Where to train [default: auto, CUDA if there is any]."
    )
    gpus: int = _machine(1, "Processes on this machine, one for each GPU.", minimum=1)
    threads: int | None = _machine(None, "CPU threads [default: all cores].", minimum=1)
    given: dict[str, Any] = field(default_factory=dict)  # settings, by flags
    arguments: tuple[str, ...] = ()  # as they were typed


def show_presets(setting: dataclasses.Field[Any]) -> str:
    """Return a setting's value in each preset; just once if it is the same in all."""
    values = [preset.get(setting.name, setting.default) for preset in PRESETS.values()]
    shown = [("on" if v else "off") if isinstance(v, bool) else str(v) for v in values]
    if len(set(shown)) == 1:
        return f"default: {shown[0]}"
    return ", ".join(f"{name}: {value}" for name, value in zip(PRESETS, shown, strict=True))


def run_train(flags: TrainFlags) -> int:
    """Check the flags, then train here or in several processes; return the exit code."""
    if flags.plot:
        from ..analysis.plot import plot_runs

        click.echo(plot_runs(list(map(Path, flags.plot))))
        return 0
    if flags.student:
        if flags.preset not in (None, "student"):
            raise MxError(f"--student and --preset {flags.preset} exclude each other")
        flags = dataclasses.replace(flags, preset="student")
    check_files(flags)
    overrides = (read_settings(flags.config) if flags.config else {}, flags.given)
    missing = [name for name in ("torch", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise MxError(
            f"training needs {' and '.join(missing)}, which the base install leaves out: "
            'pip install "mx-align[train]"'
        )
    if flags.gpus > 1 and "LOCAL_RANK" not in os.environ:
        from ..loop.devices import launch_processes

        return launch_processes(flags.gpus, flags.device, list(flags.arguments))
    return train_here(flags, overrides)


def check_files(flags: TrainFlags) -> None:
    """Raise an error if the files named do not make a whole."""
    if flags.resume:
        usual = list_defaults(TrainFlags)
        fixed = (*list_defaults(Texts), "output", "preset", "restart")
        given = [show_name(name) for name in fixed if getattr(flags, name) != usual[name]]
        if given:
            raise MxError(
                "--resume takes the folder alone, and settings to change; "
                f"give the whole command with -o to name {', '.join(given)}"
            )
        return
    if not (flags.src and flags.tgt and flags.output):
        raise MxError("give SRC, TGT and -o RUN, or --resume RUN; `mx-train --help` tells more")
    for names in (["valid_src", "valid_tgt"], ["gold_src", "gold_tgt", "gold"]):
        absent = [show_name(name) for name in names if not getattr(flags, name)]
        if 0 < len(absent) < len(names):
            raise MxError(f"{' and '.join(absent)} must be given too")
    if flags.valid_src and flags.valid_last:
        raise MxError("--valid-src and --valid-last exclude each other")
    if flags.start and flags.vocab:
        raise MxError("--start and --vocab exclude each other: a model has its own vocabulary")


def show_name(name: str) -> str:
    """Spell a field as the help does: `SRC`, `--gold-src`."""
    return name.upper() if name in ("src", "tgt") else flag_name(name)


def read_settings(path: str) -> dict[str, Any]:
    """Read the settings of a JSON file, flat or as in a run's `config.json`."""
    found: dict[str, Any] = {}
    for name, value in read_json_object(Path(path)).items():
        is_part = name in ("model", "train") and isinstance(value, dict)
        found |= value if is_part else {name: value}
    for name in ("src_vocab", "tgt_vocab"):  # of the other run's vocabulary
        found.pop(name, None)
    return rename_old_settings(found)


def train_here(flags: TrainFlags, overrides: tuple[dict[str, Any], ...]) -> int:
    """Train as one process, alone or of many; return the exit code."""
    import torch

    from ..loop.devices import join_world
    from ..loop.progress import Monitor
    from ..loop.train import train_network
    from ..run.folder import RunCommand, hold_run, load_run, prepare_run
    from ..run.training_data import load_data

    texts = None
    if not flags.resume:
        values = {f.name: getattr(flags, f.name) for f in dataclasses.fields(Texts)}
        if flags.valid_last is None:
            values["valid_last"] = 0 if flags.valid_src else 500
        texts = Texts(**values)
    run = Path(flags.resume or flags.output or "")
    command = RunCommand(run, texts, flags.preset, overrides, flags.restart)
    if flags.resume and not run.is_dir():
        raise MxError(f"{run} does not exist; there is nothing to resume")
    if flags.threads:
        torch.set_num_threads(flags.threads)
    with ExitStack() as stack:
        # The momentum of what is never used fades to numbers so small that CPUs take a hundred
        # times as long for them. Threads take this over when they are made: set before any are.
        torch.set_flush_denormal(True)
        stack.callback(torch.set_flush_denormal, False)
        world = stack.enter_context(join_world(flags.device))
        monitor = Monitor(run, quiet=flags.quiet, active=world.rank == 0)
        problem = None
        if world.rank == 0:
            stack.enter_context(hold_run(run))
            try:
                prepare_run(command, monitor.note)
            except MxError as error:
                problem = error
        if world.any(problem is not None):  # the others wait here until all is prepared
            if problem:
                raise problem
            return 2
        config, texts = load_run(run)
        data = load_data(texts, config, run)
        number = train_network(config, run, data, world, monitor)
    return 128 + number if number else 0


main = FlagCommand(
    "mx-train",
    TrainFlags,
    run_train,
    help=_HELP,
    settings=(ModelConfig, TrainConfig),
    show_default=show_presets,
    titles=_TITLES,
    renamed={
        **{flag_name(old): flag_name(new) for old, new in OLD_NAMES.items()},
        "--warm-start seed": f"--warm-start {STATISTICAL}",
        "--teacher seed": f"--teacher {STATISTICAL}",
    },
)

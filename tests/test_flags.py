"""All flags of all commands, as people type them: `tests/data/flags.txt` holds the list.

A flag that is added, dropped or changed shows there. `python -m mx_align.tests.test_flags` writes
the list anew, for the commit that changes it.
"""

import importlib
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ..engine.commands.flags import FlagCommand

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).parent / "data" / "flags.txt"


def load_commands() -> dict[str, click.Command]:
    """Import the commands of pyproject.toml, by name."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    found = re.findall(r'^(mx-\w+) = "([\w.]+):(\w+)"$', text, re.MULTILINE)
    return {name: getattr(importlib.import_module(module), main) for name, module, main in found}


def describe_option(option: click.Option) -> str:
    """Write names, values and default of a flag in one line."""
    names = " ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        values = "switch"
    elif isinstance(option.type, click.Choice):
        values = "|".join(map(str, option.type.choices))
    else:
        values = option.metavar or option.type.name.upper()
    if isinstance(option.type, (click.IntRange, click.FloatRange)):
        low, high = option.type.min, option.type.max
        low = "" if low is None else f"{low}<" if option.type.min_open else f"{low}<="
        high = "" if high is None else f"<{high}" if option.type.max_open else f"<={high}"
        values += f" ({low}x{high})"
    values += " each" if option.nargs > 1 else ""
    values += ", several times" if option.multiple else ""
    default = getattr(option, "declared_default", None)
    told = isinstance(default, str | int | float | tuple) and default != () and default is not False
    return f"{names}: {values}" + (f" = {default!r}" if told else "")


def list_flags() -> str:
    """List arguments and flags of every command, a line each."""
    lines = []
    for name, command in sorted(load_commands().items()):
        for param in command.params:
            if isinstance(param, click.Option):
                lines.append(f"{name} {describe_option(param)}")
            else:
                several = "..." if param.nargs == -1 else ""
                need = "" if param.required else " (optional)"
                lines.append(f"{name} {param.name.upper()}{several}{need}")
    return "\n".join(lines) + "\n"


def test_the_list_of_flags_is_up_to_date():
    """If a flag was meant to change: python -m mx_align.tests.test_flags."""
    assert list_flags() == LIST.read_text("utf-8")


@pytest.mark.parametrize("name", load_commands())
def test_every_command_has_help_and_can_be_quiet(name):
    command = load_commands()[name]
    assert isinstance(command, FlagCommand)  # built from a dataclass of flags
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert all(option.help for option in options)
    assert any(option.opts == ["-q", "--quiet"] for option in options)
    short, long = (CliRunner().invoke(command, [flag]) for flag in ("-h", "--help"))
    assert short.exit_code == 0 and short.output == long.output
    assert all(option.opts[-1] in long.output for option in options)


def test_old_flags_name_the_new_ones():
    align = load_commands()["mx-align"]
    for old in ("precision", "recall"):
        result = CliRunner().invoke(align, ["a", "b", f"--{old}"])
        assert result.exit_code == 2
        assert result.stderr == f"mx-align: --{old} is now --optimize-for {old}\n"


if __name__ == "__main__":
    LIST.write_text(list_flags(), "utf-8")

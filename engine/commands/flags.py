"""Builds commands from dataclasses: a flag is one field, written once.

Parsing, limits, help by groups, what a resumed run compares, and the frozen list of all flags
(`tests/test_flags.py`) come from the field. Does not know what any flag means.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import click

from ..errors import MxError
from ..version import __version__


@dataclasses.dataclass(frozen=True)
class Flag:
    """What a field says about its flag, besides its name, type and default."""

    help: str
    group: str = "General"
    short: str = ""  # "-o"
    name: str = ""  # "--zip" where the field cannot be called so
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    above: bool = False  # the minimum itself is too low
    parse: Callable[[str], Any] | None = None  # raises ValueError with what is wrong
    off: str = ""  # the flag that says no: "--restart" beside "--resume"
    changes_output: bool = False  # a resumed run must have the same value


def flag(default: Any, help: str, **more: Any) -> Any:
    """Declare a field that is a flag; `more` are the fields of `Flag`."""
    return dataclasses.field(default=default, metadata={"flag": Flag(help, **more)})


def argument(default: Any = None, *, required: bool = False) -> Any:
    """Declare a field that is a positional argument."""
    return dataclasses.field(default=default, metadata={"argument": required})


@dataclasses.dataclass(frozen=True)
class CommonFlags:
    """The flags that every command has, besides -h and --version."""

    quiet: bool = flag(False, "No notes and no summary on stderr.", short="-q")
    debug: bool = flag(False, "Show the traceback of an error.")


def flag_name(name: str) -> str:
    """Spell a field as people type its flag: `batch_tokens` is `--batch-tokens`."""
    return "--" + name.replace("_", "-")


def output_settings(flags: Any) -> dict[str, Any]:
    """Return the values that change the bytes of the output, by field."""
    fields = dataclasses.fields(flags)
    marked = [f.name for f in fields if f.metadata.get("flag", Flag("")).changes_output]
    return {name: getattr(flags, name) for name in marked}


# ---- from fields to click ----


class _Parsed(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A flag whose text is turned into a value by a function of its own."""

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self.name = "text"
        self._parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _value_type(kind: Any, declared: Flag) -> tuple[Any, bool, int]:
    """Return click's type, whether the flag may be repeated, and how many values it takes."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    repeated, count = False, 1
    if declared.parse is not None:
        return _Parsed(declared.parse), False, 1
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        if inner[-1] is Ellipsis:
            repeated, kind = True, inner[0]
        else:
            count, kind = len(inner), inner[0]
    if get_origin(kind) is tuple:  # several values, several times
        count, kind = len(get_args(kind)), get_args(kind)[0]
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind)), repeated, count
    limits = {"min": declared.minimum, "max": declared.maximum, "min_open": declared.above}
    if kind in (int, float) and (declared.minimum, declared.maximum) != (None, None):
        return (click.IntRange if kind is int else click.FloatRange)(**limits), repeated, count
    return kind, repeated, count


def click_options(flags: type, *, unset: bool = False) -> list[tuple[str, click.Option]]:
    """Make group and option of every flag of a dataclass, in the order of its fields.

    With `unset` a flag that is not given is None, whatever its field's default.
    """
    kinds = get_type_hints(flags)
    made = []
    for field in dataclasses.fields(flags):
        declared = field.metadata.get("flag")
        if declared is None:
            continue
        kind, repeated, count = _value_type(kinds[field.name], declared)
        long = declared.name or flag_name(field.name)
        switch = kind is bool
        default = field.default
        more: dict[str, Any] = {"multiple": True} if repeated else {}
        if switch:
            more = {"is_flag": True}
            if unset and not declared.off:
                declared = dataclasses.replace(declared, off="--no-" + long[2:])
        else:
            more |= {"type": kind, "nargs": count, "metavar": declared.metavar}
        names = [declared.short] if declared.short else []
        names += [f"{long}/{declared.off}" if declared.off else long, field.name]
        default = None if unset else default
        made.append(
            (declared.group, click.Option(names, default=default, help=declared.help, **more))
        )
    return made


class GroupedCommand(click.Command):
    """A command whose help lists its options under the titles of their groups."""

    def __init__(self, *args: Any, groups: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups  # field -> title

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        titles = dict.fromkeys([*self.groups.values(), "General"])
        titles["General"] = titles.pop("General")  # at the end
        for title in titles:
            own = [o for o in options if self.groups.get(o.name or "", "General") == title]
            records = [record for option in own if (record := option.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def build_command(
    name: str,
    flags: type,
    run: Callable[[Any], int | None],
    *,
    help: str,
    settings: tuple[type, ...] = (),
    rewrite: Callable[[list[str]], list[str]] | None = None,
    interrupted: Callable[[Any], str] = lambda flags: "interrupted",
) -> click.Command:
    """Make the command `name`: it parses its arguments into `flags` and calls `run` with them.

    `run` gives the exit code, None for 0. A mistake of the user's (`MxError`) is told in one line,
    exit 2. `settings` are further dataclasses whose flags are None unless given; those that were
    given reach `run` as the field `given` of the flags. `rewrite` changes the arguments first.
    """
    options = click_options(flags)
    more = [row for part in settings for row in click_options(part, unset=True)]
    groups = {option.name or "": title for title, option in options + more}
    arguments = [
        click.Argument([field.name], required=field.metadata["argument"])
        for field in dataclasses.fields(flags)
        if "argument" in field.metadata
    ]
    own = {field.name for field in dataclasses.fields(flags)}

    def call(**values: Any) -> NoReturn:
        given = {k: v for k, v in values.items() if k not in own and v is not None}
        parsed = {k: v for k, v in values.items() if k in own}
        if settings:
            parsed["given"] = given
        return _leave(name, flags(**parsed), run, interrupted)

    class Command(GroupedCommand):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            return super().parse_args(ctx, rewrite(args) if rewrite else args)

    command = Command(
        name,
        params=[*arguments, *(option for _, option in options + more)],
        callback=call,
        help=help,
        groups=groups,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    return click.version_option(__version__, prog_name=name)(command)


def _leave(
    name: str, flags: Any, run: Callable[[Any], int | None], interrupted: Callable[[Any], str]
) -> NoReturn:
    """Run a command and end the process with its exit code."""
    try:
        code = run(flags) or 0
    except MxError as error:
        if flags.debug:
            traceback.print_exc()
        click.echo(f"{name}: {error}", err=True)
        code = 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141  # what a shell says of a program that wrote into a closed pipe
    except KeyboardInterrupt:
        click.echo(f"{name}: {interrupted(flags)}", err=True)
        code = 130
    sys.exit(code)

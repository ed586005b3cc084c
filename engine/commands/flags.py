"""Builds commands from dataclasses whose fields are flags (`engine/options.py`).

Parsing, limits, help by groups and the frozen list of all flags (`tests/test_flags.py`) come from
the fields. Does not know what any flag means.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import click

from ..errors import MxError
from ..options import Flag, flag, flag_name, output_settings, strip_optional
from ..version import __version__

__all__ = ["CommonFlags", "argument", "build_command", "flag", "flag_name", "output_settings"]


def argument(default: Any = None, *, required: bool = False) -> Any:
    """Declare a field that is a positional argument; of type `tuple[str, ...]` it takes several."""
    return dataclasses.field(default=default, metadata={"argument": required})


@dataclasses.dataclass(frozen=True)
class CommonFlags:
    """The flags that every command has, besides -h and --version."""

    quiet: bool = flag(False, "No notes and no summary on stderr.", short="-q")
    debug: bool = flag(False, "Show the traceback of an error.")


# ---- from fields to click ----


class _ParsedText(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A flag whose text is turned into a value by a function of its own."""

    name = "text"

    def __init__(self, parse: Callable[[str], Any]) -> None:
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
    kind = strip_optional(kind)
    repeated, count = False, 1
    if declared.parse is not None:
        return _ParsedText(declared.parse), False, 1
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        repeated, kind = True, get_args(kind)[0]
    if get_origin(kind) is tuple:  # tuple[tuple[str, str], ...]: two values, several times
        count, kind = len(get_args(kind)), get_args(kind)[0]
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind)), repeated, count
    if kind in (int, float) and (declared.minimum, declared.maximum) != (None, None):
        in_range: Any = click.IntRange if kind is int else click.FloatRange
        ends = (declared.minimum, declared.maximum, declared.above, declared.below)
        return in_range(*ends), repeated, count
    return kind, repeated, count


def _help_text(declared: Flag, default: Any) -> str:
    """Return the help of a flag, with its default unless the text tells one or it says nothing."""
    told = "[default:" in declared.help
    if told or isinstance(default, bool) or not isinstance(default, str | int | float):
        return declared.help
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{declared.help.rstrip('.')} [default: {shown}]." if shown else declared.help


class DeclaredOption(click.Option):
    """An option that knows its field's default, also where click is not told."""

    declared_default: Any = None


def click_options(
    flags: type,
    *,
    unset: bool = False,
    show_default: Callable[[dataclasses.Field[Any]], str] | None = None,
) -> list[tuple[str, DeclaredOption]]:
    """Make group and option of every flag of a dataclass, in the order of its fields.

    With `unset` a flag that is not given is None, whatever its field's default. `show_default`
    gives what the help says about the default, where that is more than one value.
    """
    kinds = get_type_hints(flags)
    made = []
    for field in dataclasses.fields(flags):
        declared = field.metadata.get("flag")
        if declared is None:
            continue
        kind, repeated, count = _value_type(kinds[field.name], declared)
        long = declared.name or flag_name(field.name)
        more: dict[str, Any] = {"multiple": True} if repeated else {}
        off = declared.off
        if kind is bool:
            more = {"is_flag": True}
            off = off or ("--no-" + long[2:] if unset else "")
        else:
            number = {int: "N", float: "X"}.get(strip_optional(kinds[field.name]))
            more |= {"type": kind, "nargs": count, "metavar": declared.metavar or number}
        names = [declared.short] if declared.short else []
        names += [f"{long}/{off}" if off else long, field.name]
        option = DeclaredOption(
            names,
            default=None if unset else field.default,
            help=f"{declared.help} [{show_default(field)}]"
            if show_default
            else _help_text(declared, field.default),
            **more,
        )
        option.declared_default = field.default
        made.append((declared.group, option))
    return made


def _click_arguments(flags: type) -> list[click.Argument]:
    """Make the positional arguments of a dataclass, in the order of its fields."""
    kinds = get_type_hints(flags)
    return [
        click.Argument(
            [field.name],
            required=field.metadata["argument"],
            nargs=-1 if get_origin(kinds[field.name]) is tuple else 1,
        )
        for field in dataclasses.fields(flags)
        if "argument" in field.metadata
    ]


# ---- the command ----


class GroupedCommand(click.Command):
    """A command that lists its options by groups, and knows what its old flags are called now."""

    def __init__(
        self,
        *args: Any,
        titles: Sequence[str],
        groups: Mapping[str, str],
        rewrite: Callable[[list[str]], list[str]] | None,
        renamed: Mapping[str, str],
        exit_at_once: bool,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.groups = groups  # field -> title
        self.titles = dict.fromkeys([*titles, *groups.values(), "General"])
        self.titles["General"] = self.titles.pop("General")  # at the end
        self._rewrite = rewrite
        self._renamed = renamed
        self._exit_at_once = exit_at_once

    def main(self, args: Any = None, *rest: Any, **more: Any) -> Any:
        """Run as a program (`args` is None), or with the given arguments."""
        try:
            return super().main(args, *rest, **more)
        except SystemExit as stop:
            if args is None and self._exit_at_once and stop.code:
                for stream in (sys.stdout, sys.stderr):
                    with suppress(OSError):
                        stream.flush()
                os._exit(stop.code if isinstance(stop.code, int) else 1)
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = tuple(args)
        flags = args[: args.index("--")] if "--" in args else args
        for arg, value in zip(flags, [*flags[1:], ""], strict=False):
            # `--flag`, `--flag value` and `--flag=value` are asked for.
            for old in (arg.partition("=")[0], f"{arg} {value}", arg.replace("=", " ", 1)):
                if old in self._renamed:
                    click.echo(f"{self.name}: {old} is now {self._renamed[old]}", err=True)
                    ctx.exit(2)
        return super().parse_args(ctx, self._rewrite(args) if self._rewrite else args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for title in self.titles:
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
    show_default: Callable[[dataclasses.Field[Any]], str] | None = None,
    titles: Sequence[str] = (),
    rewrite: Callable[[list[str]], list[str]] | None = None,
    renamed: Mapping[str, str] | None = None,
    interrupted: Callable[[Any], str] = lambda flags: "interrupted",
    exit_at_once: bool = False,
) -> click.Command:
    """Make the command `name`: it parses its arguments into `flags` and calls `run` with them.

    `run` gives the exit code, None for 0. A mistake of the user's (`MxError`) is told in one line,
    exit 2.

    Args:
        settings: further dataclasses whose flags are None unless given; those that were given
            reach `run` as the field `given` of the flags.
        show_default: what the help says about the default of a field of the settings.
        titles: groups of the help in their order; others follow, General comes last.
        rewrite: changes the arguments before they are parsed.
        renamed: old flag, or flag and value -> what to type now; ends the command with that line.
        interrupted: what is said after Ctrl-C.
        exit_at_once: after an error do not wait for threads; one may be reading standard input.
    """
    options = click_options(flags)
    more = [
        row
        for part in settings
        for row in click_options(part, unset=True, show_default=show_default)
    ]
    own = {field.name for field in dataclasses.fields(flags)}

    def call(**values: Any) -> NoReturn:
        parsed = {k: v for k, v in values.items() if k in own}
        if settings:
            given = {k: v for k, v in values.items() if k not in own and v is not None}
            parsed["given"] = given
        if "arguments" in own:  # as they were typed, to start the same command elsewhere
            parsed["arguments"] = click.get_current_context().meta["arguments"]
        _run_to_exit(name, flags, parsed, run, interrupted)

    command = GroupedCommand(
        name,
        params=[*_click_arguments(flags), *(option for _, option in options + more)],
        callback=call,
        help=help,
        titles=titles,
        groups={option.name or "": title for title, option in options + more},
        rewrite=rewrite,
        renamed=renamed or {},
        exit_at_once=exit_at_once,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
    )
    return click.version_option(__version__, prog_name=name)(command)


def _run_to_exit(
    name: str,
    flags: type,
    values: Mapping[str, Any],
    run: Callable[[Any], int | None],
    interrupted: Callable[[Any], str],
) -> NoReturn:
    """Run a command and end with its exit code."""
    parsed = None
    try:
        parsed = flags(**values)  # which may check its values
        code = run(parsed) or 0
    except MxError as error:
        if values["debug"]:
            traceback.print_exc()
        click.echo(f"{name}: {error}", err=True)
        code = 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141  # what a shell says of a program that wrote into a closed pipe
    except KeyboardInterrupt:
        click.echo(f"{name}: {interrupted(parsed) if parsed else 'interrupted'}", err=True)
        code = 130
    sys.exit(code)

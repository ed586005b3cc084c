"""Builds commands from dataclasses whose fields are flags (`engine/options.py`).

Parsing, limits, help by groups and the frozen list of all flags (`tests/test_flags.py`) come from
the fields. Does not know what any flag means.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import click

from ..errors import MxError, clean_text
from ..options import Flag, flag, flag_name, strip_optional
from ..version import __version__

__all__ = ["CommonFlags", "FlagCommand", "argument", "flag", "flag_name"]


def argument(default: Any = None, *, required: bool = False) -> Any:
    """Declare a field that is a positional argument; of type `tuple[str, ...]` it takes several."""
    return dataclasses.field(default=default, metadata={"argument": required})


@dataclasses.dataclass(frozen=True)
class CommonFlags:
    """The flags that every command has, besides -h and --version."""

    quiet: bool = flag(False, "No notes and no summary on stderr.", short="-q")
    debug: bool = flag(False, "Show the traceback of an error.")


# ---- from fields to click ----


class FlagOption(click.Option):
    """The option of a field; remembers its group and its default, also where click is not told.

    With `unset` it is None unless given. `shown_default` is what the help says of the default.
    """

    def __init__(
        self, field: dataclasses.Field[Any], kind: Any, unset: bool, shown_default: str | None
    ) -> None:
        declared: Flag = field.metadata["flag"]
        self.group, self.declared_default = declared.group, field.default
        self._parse = declared.parse
        long, off = declared.name or flag_name(field.name), declared.off
        kind = strip_optional(kind)
        if kind is bool:
            more: dict[str, Any] = {"is_flag": True}
            off = off or ("--no-" + long[2:] if unset else "")
        else:
            metavar = declared.metavar or {int: "N", float: "X"}.get(kind)
            more = {"metavar": metavar, **_describe_values(kind, declared)}
        names = [declared.short] if declared.short else []
        names += [f"{long}/{off}" if off else long, field.name]
        text = f"{declared.help} [{shown_default}]"
        if shown_default is None:
            text = _help_text(declared, field.default)
        super().__init__(names, default=None if unset else field.default, help=text, **more)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Turn what was typed into a value; defaults are values already."""
        try:
            parsed = self._parse(value) if self._parse and isinstance(value, str) else value
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, self) from None
        return super().type_cast_value(ctx, parsed)


def _describe_values(kind: Any, declared: Flag) -> dict[str, Any]:
    """Return what click must know of a flag's values: their type, how many, how often."""
    if declared.parse is not None:
        return {"type": click.UNPROCESSED}
    found: dict[str, Any] = {}
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        found["multiple"], kind = True, get_args(kind)[0]
    if get_origin(kind) is tuple:  # tuple[tuple[str, str], ...]: two values, several times
        found["nargs"], kind = len(get_args(kind)), get_args(kind)[0]
    if get_origin(kind) is Literal:
        kind = click.Choice(get_args(kind))
    elif kind in (int, float) and (declared.minimum, declared.maximum) != (None, None):
        in_range: Any = click.IntRange if kind is int else click.FloatRange
        kind = in_range(declared.minimum, declared.maximum, declared.above, declared.below)
    return {**found, "type": kind}


def _help_text(declared: Flag, default: Any) -> str:
    """Return the help of a flag, with its default unless the text tells one or it says nothing."""
    told = "[default:" in declared.help
    if told or isinstance(default, bool) or not isinstance(default, str | int | float):
        return declared.help
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{declared.help.rstrip('.')} [default: {shown}]." if shown else declared.help


# ---- how programs end ----

# As in sysexits.h. Others: 0 done, 2 a mistake of the user's or a full disk, 130 Ctrl-C,
# 141 nobody reads the output any more, 143 SIGTERM. docs/reliability.md says so to users.
INTERNAL_ERROR = 70


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a program as Ctrl-C does, with another exit code."""


def _raise_terminated(number: int, frame: object) -> NoReturn:
    raise Terminated


def replace_closed_streams() -> None:
    """Put something behind closed standard streams, so that no file of ours gets their numbers.

    What is read from, or written to, one of them is then an error. Messages go nowhere.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDWR)):
        try:
            os.fstat(number)
        except OSError:
            handle = os.open(os.devnull, flags)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _drop_output() -> None:
    """Forget what could not be written; else Python would try once more at its end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ---- the command ----


class FlagCommand(click.Command):
    """A command that parses its arguments into a dataclass of flags and runs with them.

    Args:
        flags: the dataclass.
        run: gets the flags, gives the exit code, None for 0. A mistake of the user's (`MxError`) is
            told in one line, exit 2.
        settings: further dataclasses whose flags are None unless given; those that were given
            reach `run` as the field `given` of the flags.
        show_default: what the help says about the default of a field of the settings.
        titles: groups of the help in their order; others follow, General comes last.
        rewrite: changes the arguments before they are parsed.
        renamed: old flag, or flag and value -> what to type now; ends the command with that line.
        interrupted: what is said after Ctrl-C.
        exit_at_once: after an error do not wait for threads; one may be reading standard input.
    """

    def __init__(
        self,
        name: str,
        flags: type,
        run: Callable[[Any], int | None],
        *,
        help: str,
        settings: tuple[type, ...] = (),
        show_default: Callable[[dataclasses.Field[Any]], str] | None = None,
        titles: Sequence[str] = (),
        rewrite: Callable[[list[str]], list[str]] = list,
        renamed: Mapping[str, str] | None = None,
        interrupted: Callable[[Any], str] = lambda flags: "interrupted",
        exit_at_once: bool = False,
    ) -> None:
        self._flags, self._run, self._titles = flags, run, titles
        self._rewrite, self._renamed = rewrite, renamed or {}
        self._interrupted, self._exit_at_once = interrupted, exit_at_once
        arguments: list[click.Parameter] = []
        options: list[click.Parameter] = []
        for part in (flags, *settings):
            kinds = get_type_hints(part)
            unset = part is not flags
            for field in dataclasses.fields(part):
                kind = kinds[field.name]
                if "flag" in field.metadata:
                    shown = show_default(field) if unset and show_default else None
                    options.append(FlagOption(field, kind, unset, shown))
                elif "argument" in field.metadata:
                    nargs = -1 if get_origin(kind) is tuple else 1
                    required = field.metadata["argument"]
                    arguments.append(click.Argument([field.name], nargs=nargs, required=required))
        super().__init__(
            name,
            params=arguments + options,
            help=help,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
        )
        click.version_option(__version__, prog_name=name)(self)

    def main(self, args: Any = None, *rest: Any, **more: Any) -> Any:
        """Run as a program (`args` is None), or with the given arguments."""
        if args is None:
            replace_closed_streams()
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, _raise_terminated)
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
        return super().parse_args(ctx, self._rewrite(args))

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run with the parsed values and end with the exit code."""
        own = {field.name for field in dataclasses.fields(self._flags)}
        values = {name: value for name, value in ctx.params.items() if name in own}
        if "given" in own:
            others = {k: v for k, v in ctx.params.items() if k not in own}
            values["given"] = {k: v for k, v in others.items() if v is not None}
        if "arguments" in own:  # as they were typed, to start the same command elsewhere
            values["arguments"] = ctx.meta["arguments"]
        parsed = None
        try:
            parsed = self._flags(**values)  # which may check its values
            code = self._run(parsed) or 0
            sys.stdout.flush()  # a full disk behind it is noticed here
        except Terminated:
            code = self._say("terminated; unfinished output is kept", 128 + signal.SIGTERM)
        except KeyboardInterrupt:
            said = self._interrupted(parsed) if parsed else "interrupted"
            code = self._say(said, 128 + signal.SIGINT)
        except BrokenPipeError:
            code = 141  # what a shell says of a program that wrote into a closed pipe
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            code = self._tell_error(error, values["debug"])
        if code:
            _drop_output()
        sys.exit(code)

    def _tell_error(self, error: Exception, debug: bool) -> int:
        """Print one line about an error, with its traceback if wanted; return the exit code."""
        if debug:
            traceback.print_exc()
        if isinstance(error, MxError):
            return self._say(str(error), 2)
        if isinstance(error, MemoryError):
            return self._say("not enough memory; give it more, or fewer --threads", 2)
        if isinstance(error, OSError):
            name = error.filename or ("a file" if error.errno != errno.EBADF else "a closed stream")
            return self._say(f"cannot use {name}: {error.strerror or error}", 2)
        kind = type(error).__name__
        what = (str(error).split("\n")[0] or "no message")[:300]
        more = "" if debug else "; the same command with --debug shows where"
        return self._say(
            f"internal error, {kind}: {what}. Please open an issue of the project with this line, "
            f"the command and its version{more}",
            INTERNAL_ERROR,
        )

    def _say(self, text: str, code: int) -> int:
        with suppress(OSError, ValueError):  # nobody reads
            click.echo(f"{self.name}: {clean_text(text)}", err=True)
        return code

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        by_title: dict[str, list[tuple[str, str]]] = {title: [] for title in self._titles}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                by_title.setdefault(getattr(param, "group", "General"), []).append(record)
        by_title["General"] = by_title.pop("General")  # at the end
        for title, records in by_title.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

"""Declares options as dataclass fields: help, group, type and limits stand in one place.

`commands/flags.py` makes command-line flags of them, `check_limits` judges values that come from
Python, `output_settings` says what a resumed run must repeat. Does not know what an option means.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import MxError

Options = TypeVar("Options")


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
    below: bool = False  # the maximum itself is too high
    parse: Callable[[str], Any] | None = None  # raises ValueError with what is wrong
    off: str = ""  # the flag that says no: "--restart" beside "--resume"
    changes_output: bool = False  # a resumed run must have the same value


def flag(default: Any, help: str, **more: Any) -> Any:
    """Declare a field that is a flag; `more` are the fields of `Flag`."""
    return dataclasses.field(default=default, metadata={"flag": Flag(help, **more)})


def flag_name(name: str) -> str:
    """Spell a field as people type its flag: `batch_tokens` is `--batch-tokens`."""
    return "--" + name.replace("_", "-")


def output_settings(options: Any) -> dict[str, Any]:
    """Return the values that change the bytes of the output, by field."""
    fields = dataclasses.fields(options)
    marked = [f.name for f in fields if f.metadata.get("flag", Flag("")).changes_output]
    return {name: getattr(options, name) for name in marked}


def make_options(kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Build options from keywords of a caller; an unknown one is an error that lists all."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    unknown = [name for name in values if name not in names]
    if unknown:
        raise MxError(f"there is no option {unknown[0]!r}; there are {', '.join(names)}")
    return kind(**values)


def strip_optional(kind: Any) -> Any:
    """Return X for `X | None`, any other type as it is."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind


def check_limits(options: Any) -> None:
    """Raise MxError if a value is none of its field's choices, or outside its field's limits."""
    for problem in broken_limits(options):
        raise MxError(problem)


def broken_limits(options: Any) -> Iterator[str]:
    """Yield a line for each value that is none of its field's choices, or outside its limits."""
    kinds = get_type_hints(type(options))
    for field in dataclasses.fields(options):
        declared, value = field.metadata.get("flag"), getattr(options, field.name)
        if declared is None or value is None:
            continue
        kind = strip_optional(kinds[field.name])
        if get_origin(kind) is Literal and value not in get_args(kind):
            choices = ", ".join(map(str, get_args(kind)))
            yield f"{field.name} must be one of {choices}, not {value!r}"
        if get_origin(kind) is tuple and isinstance(value, str):
            yield f"{field.name} must be a list, not the string {value!r}"
        low, high = declared.minimum, declared.maximum
        # Asked this way round, so that NaN is refused as well.
        if low is not None and not (value > low if declared.above else value >= low):
            yield f"{field.name} must be {'above' if declared.above else 'at least'} {low}"
        elif high is not None and not (value < high if declared.below else value <= high):
            limit = "below" if declared.below else "at most"
            yield f"{field.name} must be {limit} {high}, not {value}"
        elif low is not None and value == math.inf:
            yield f"{field.name} must be a finite number"

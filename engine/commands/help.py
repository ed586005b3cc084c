"""Help texts with titles: a click command that lists its options by subject.
Knows names of options only; which subject each belongs to is the command's matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

Sections = Mapping[str, Sequence[str]]  # title -> names of options


class SectionedCommand(click.Command):
    """A command with the options of each section under its title, and all others at the end."""

    def __init__(self, *args: Any, sections: Sections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {option.name: option.get_help_record(ctx) for option in options}
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names if (record := records.pop(name))])
        with formatter.section("General"):
            formatter.write_dl([record for record in records.values() if record])

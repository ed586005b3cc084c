"""Builds the documentation site: the pages of `docs/`, and a reference made from the code.

    python -m mx_align.docs.build_site build/docs

Warnings, such as a link that leads nowhere, are errors. The site needs no network: search works
when its files are opened from a disk. Does not write into `docs/`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from ..__main__ import SUMMARIES
from ..engine.commands.flags import FlagCommand

DOCS = Path(__file__).parent
ROOT = DOCS.parent
# A link of a page; those to files outside docs/ lead nowhere on the site.
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


# ---- reference pages ----


def load_commands() -> Iterator[tuple[str, FlagCommand]]:
    """Yield name and command of each program in pyproject.toml, in its order."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for name, module, main in re.findall(r'^(mx-[\w-]+) = "([\w.]+):(\w+)"$', text, re.MULTILINE):
        command = getattr(import_module(module), main)
        if isinstance(command, FlagCommand):
            yield name, command


def describe_command(name: str, command: FlagCommand) -> str:
    """Write the reference page of a command, from its flags."""
    context = click.Context(command, info_name=name, **command.context_settings)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    help_text = (command.help or "").replace("\b\n", "\b")
    prose, *examples = help_text.split("\bExamples:\n")
    lines = [f"# {name}", "", f"{SUMMARIES.get(name, '').capitalize()}.", ""]
    lines += ["```text", usage, "```", "", escape_text(prose.strip()), ""]
    if examples:
        shown = (line.removeprefix("  ") for line in examples[0].rstrip().split("\n"))
        lines += ["```sh", *shown, "```", ""]
    for title, options in group_options(command).items():
        lines += [f"## {title}", "", "| flag | what it does |", "|---|---|"]
        for option in options:
            names, text = option.get_help_record(context) or ("", "")
            lines.append(f"| `{escape_cell(names)}` | {escape_cell(escape_text(text))} |")
        lines.append("")
    return "\n".join(lines)


def group_options(command: FlagCommand) -> dict[str, list[click.Option]]:
    """Return the options of a command by the titles of its help; general ones come last."""
    groups: dict[str, list[click.Option]] = {}
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            groups.setdefault(getattr(param, "group", "General"), []).append(param)
    if general := groups.pop("General", None):
        groups["General"] = general
    return groups


def escape_cell(text: str) -> str:
    """Keep a bar from ending a cell of a table."""
    return text.replace("|", "\\|")


def escape_text(text: str) -> str:
    """Keep signs of plain text from being read as Markdown; what stands in backticks stays."""
    parts = text.split("`")
    parts[::2] = (re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts[::2])
    return "`".join(parts)


API = """# Python

```{eval-rst}
.. automodule:: mx_align
   :no-members:

.. autoclass:: mx_align.Aligner
   :members:

.. autoclass:: mx_align.StatisticalAligner
   :members:

.. autoclass:: mx_align.Alignment
   :members:

.. autoclass:: mx_align.SoftAlignment
   :members:

.. autoexception:: mx_align.MxError
```
"""


# ---- the site ----


def prepare_pages(source: Path) -> None:
    """Copy the pages, without links that lead out of docs/, and add the reference."""
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copy(DOCS / "conf.py", source)
    for page in source.rglob("*.md"):
        text = drop_outside_links(page.read_text("utf-8"), page.parent, source.resolve())
        page.write_text(text, "utf-8")
    folder = source / "reference" / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for name, command in load_commands():
        (folder / f"{name}.md").write_text(describe_command(name, command), "utf-8")
        names.append(name)
    toc = "\n".join(["# Commands", "", "```{toctree}", ":maxdepth: 1", "", *names, "```", ""])
    (folder / "index.md").write_text(toc, "utf-8")
    (source / "reference" / "python.md").write_text(API, "utf-8")


def drop_outside_links(text: str, folder: Path, source: Path) -> str:
    """Leave the words of links to files that the site does not have, such as code."""

    def check(found: re.Match[str]) -> str:
        words, target = found.groups()
        path = target.partition("#")[0]
        if not path or "://" in path or source in (folder / path).resolve().parents:
            return found.group()
        return words

    return _LINK.sub(check, text)


def build_site(folder: Path) -> int:
    """Build the site into a folder; return the exit code of Sphinx."""
    from sphinx.cmd.build import build_main

    source, html = folder / "source", folder / "html"
    for old in (source, html):
        shutil.rmtree(old, ignore_errors=True)
    prepare_pages(source)
    return build_main(["-q", "-W", "--keep-going", "-b", "html", str(source), str(html)])


def main() -> None:
    """Build the site and say where it is."""
    command = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    command.add_argument("folder", type=Path)
    folder = command.parse_args().folder
    if code := build_site(folder):
        sys.exit(code)
    print(f"open {folder / 'html' / 'index.html'}")


if __name__ == "__main__":
    main()

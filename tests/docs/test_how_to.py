"""Every example of the how-to pages runs, and says what its page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.measure_style import ROOT

PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))


def read_examples(page: Path) -> list[tuple[str, str]]:
    """Return the console blocks of a page: what is typed after `$ `, and what comes back."""
    examples = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.split("\n")
            end = next(n for n, line in enumerate(lines) if not line.endswith("\\"))
            if "<<" in lines[0]:
                mark = lines[0].rpartition("<<")[2].strip().strip("'").split()[0].rstrip("'")
                end = lines.index(mark)
            examples.append(("\n".join(lines[: end + 1]), "\n".join(lines[end + 1 :])))
    return examples


def write_commands(folder: Path) -> None:
    """Make scripts of the commands in pyproject.toml, installed or not."""
    folder.mkdir()
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for name, module in re.findall(r'^(mx-[\w-]+) = "([\w.]+):main"$', text, re.MULTILINE):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (folder / name).chmod(0o755)


@pytest.mark.slow
@pytest.mark.parametrize("page", list(filter(read_examples, PAGES)), ids=lambda page: page.stem)
def test_examples_say_what_the_page_says(page, tmp_path):
    commands = tmp_path / "bin"
    write_commands(commands)
    path = f"{commands}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    examples = read_examples(page)
    for typed, told in examples:
        done = subprocess.run(
            ["bash", "-c", typed], cwd=tmp_path, capture_output=True, text=True, timeout=120,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
        assert done.returncode == 0, f"{typed}\n{done.stderr}"
        assert done.stdout.strip() == told.strip(), typed

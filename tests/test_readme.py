"""README.md against the repository: its tree names every module, its commands exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PACKAGES = ("trainer", "export", "engine", "benchmarks")


def listed() -> set[str]:
    """The files of the tree in the README: two spaces of indent for each folder."""
    block = README.split("## The code")[1].split("```")[1]
    found, folders = set(), [""]
    for line in block.split("\n")[1:]:
        match = re.match(r"( *)(\S+)", line)
        if not match:
            continue
        depth, name = len(match[1]) // 2, match[2]
        folders[depth + 1 :] = []
        if name.endswith("/"):
            folders.append(folders[depth] + name)
        else:
            found.add(folders[depth] + name)
    return found


def test_the_tree_is_the_real_one():
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert listed() == files


def test_every_command_is_in_the_readme():
    section = (ROOT / "pyproject.toml").read_text("utf-8").split("[project.scripts]")[1]
    commands = re.findall(r"^(mx-[a-z]+) = ", section.split("\n[")[0], re.MULTILINE)
    assert len(commands) >= 5
    assert not [name for name in commands if f"`{name}`" not in README]
    assert "make demo" in README and "make test" in README

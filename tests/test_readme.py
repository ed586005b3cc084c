"""README and CONTRIBUTING against the repository: the tree has every room, commands exist."""

import re

from .support.measure_style import ROOT
from .support.rooms import list_rooms

README = (ROOT / "README.md").read_text("utf-8")
TREE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def list_folders() -> set[str]:
    """Return the folders of the tree: two spaces of indent for each level."""
    block = next(part for part in TREE.split("```") if part.startswith("\nengine/"))
    found, parent = set(), ""
    for indent, name in re.findall(r"^( *)(\w+)/", block, re.MULTILINE):
        parent = parent if indent else name
        found.add(f"{parent}/{name}" if indent else name)
    return found


def test_the_tree_names_every_room():
    rooms = {room for room in list_rooms() if (ROOT / room).is_dir()}
    assert list_folders() == rooms | {"engine", "trainer", "export", "benchmarks", "tests"}


def test_every_command_is_in_the_readme():
    section = (ROOT / "pyproject.toml").read_text("utf-8").split("[project.scripts]")[1]
    commands = re.findall(r"^(mx-[a-z]+) = ", section.split("\n[")[0], re.MULTILINE)
    assert len(commands) >= 5
    assert not [name for name in commands if f"`{name}`" not in README]
    assert any(line.startswith("mx-align ") for line in README.split("\n")[:12])
    assert "make demo" in README and "make test" in README

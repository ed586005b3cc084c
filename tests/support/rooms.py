"""The rooms of the code and the imports between them, read from the source.

A room is a folder of modules in `engine/`, `trainer/` or `export/`; a module that lies directly
in one of these is a room of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .measure_style import ROOT, imported_modules, source_files

# Top to bottom: a room imports only from rooms below it.
ORDER = (
    "export/commands", "export/bundling", "export/card", "export/check", "export/kernels",
    "export/graph", "export/options",
    "trainer/__main__", "trainer/commands", "trainer/analysis", "trainer/loop", "trainer/run",
    "trainer/teachers", "trainer/networks", "trainer/data", "trainer/config",
    "engine/serve", "engine/commands", "engine/json_pairs", "engine/train_on_input",
    "engine/cluster", "engine/dropin", "engine/apply", "engine/aligner", "engine/jobs",
    "engine/method", "engine/statistical", "engine/alignment", "engine/view", "engine/align",
    "engine/runtime", "engine/bundle", "engine/links", "engine/text", "engine/storage",
    "engine/options", "engine/protobuf", "engine/types", "engine/errors", "engine/version",
)  # fmt: skip


def room_of(module: str) -> str:
    """Name the room of a module like `engine/text/words`: `engine/text`."""
    return "/".join(module.split("/")[:2])


def list_imports() -> Iterator[tuple[str, str, str]]:
    """Yield importing room, imported room and the importing file, once for each import."""
    for part in ("engine", "trainer", "export"):
        for path in source_files(part):
            room = room_of(path.relative_to(ROOT).with_suffix("").as_posix())
            for module in imported_modules(path):
                if room_of(module) != room:
                    yield room, room_of(module), path.relative_to(ROOT).as_posix()


def direct_arrows(rooms: Sequence[str] = ORDER) -> dict[str, list[str]]:
    """Return for each room those it imports, without the ones that it reaches through others."""
    imports: dict[str, set[str]] = {room: set() for room in rooms}
    for room, other, _ in list_imports():
        if room in imports and other in imports:
            imports[room].add(other)
    reached: dict[str, set[str]] = {}
    for room in reversed(rooms):  # from the bottom, so that what lies below is known
        reached[room] = imports[room].union(*(reached.get(o, set()) for o in imports[room]))
    return {
        room: sorted(
            (o for o in others if not any(o in reached.get(via, ()) for via in others - {o})),
            key=ORDER.index,
        )
        for room, others in imports.items()
    }


def describe_room(room: str) -> str:
    """Return the first line of the room's docstring."""
    path = ROOT / room
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n")[0]


def list_rooms() -> set[str]:
    """Find the rooms that there are."""
    found = set()
    for part in ("engine", "trainer", "export"):
        for path in source_files(part):
            relative = path.relative_to(ROOT).with_suffix("")
            if relative.name != "__init__" or len(relative.parts) > 2:
                found.add(room_of(relative.as_posix()))
    return found

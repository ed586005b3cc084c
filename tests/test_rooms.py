"""The rooms: imports point downward, the map is complete, names explain themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..docs.draw_rooms import PAGE, PICTURE, draw_picture, renew_page
from .support.measure_style import (
    PARTS,
    ROOT,
    measure_files,
    source_files,
)
from .support.rooms import ORDER, describe_room, list_imports, list_rooms


def test_imports_point_downward_only():
    wrong = {
        f"{file}: {room} imports {other}"
        for room, other, file in list_imports()
        if ORDER.index(room) >= ORDER.index(other)
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_every_room_has_its_place_and_a_line_about_it():
    assert list_rooms() == set(ORDER)
    assert not [room for room in ORDER if not describe_room(room)]


def test_code_for_gpus_is_entered_from_one_side():
    """Only the choice of a backend, the doctor and the compiler of kernels know the room."""
    doors = {"engine/runtime/backends.py", "engine/runtime/examination.py", "export/kernels.py"}
    inside = "engine/runtime/gpu"
    users = set()
    for part in ("engine", "trainer", "export"):
        for path in source_files(part):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(inside) and "runtime.gpu" in path.read_text("utf-8").replace(
                "from .gpu", "runtime.gpu"
            ):
                users.add(name)
    assert users <= doors


def test_folders_and_files_are_small_enough_to_read():
    for part in ("engine", "trainer", "export"):
        folders: dict[Path, int] = {}
        for path in source_files(part):
            assert len(path.read_text("utf-8").splitlines()) <= 500, path
            folders[path.parent] = folders.get(path.parent, 0) + (path.name != "__init__.py")
        assert not {str(folder): count for folder, count in folders.items() if count > 9}


@pytest.mark.slow
def test_names_explain_themselves():
    found = measure_files([file for part in PARTS for file in source_files(part)])
    assert found.one_word_share <= 0.30, f"{found.one_word_share:.1%} are one word"
    assert not found.participles, "\n".join(found.participles)


def test_docstrings_stand_on_their_own():
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for part in PARTS
        for path in source_files(part)
        for line in path.read_text("utf-8").splitlines()
        if line.strip().startswith('"""The same')
    ]
    assert not wrong, "\n".join(wrong)


def test_the_picture_of_the_rooms_is_current():
    assert PICTURE.read_text("utf-8") == draw_picture(), "run `make rooms`"
    page = PAGE.read_text("utf-8")
    assert renew_page(page) == page, "run `make rooms`"

"""The files that a run reads: their flags, how they are found again later, which are copied.

Does not import torch or NumPy: the flags of `mx-train` are read here.
"""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...engine.errors import InputError
from ...engine.options import flag
from ...engine.storage import atomic_write
from ...engine.text.files import read_lines
from ..config import STATISTICAL, read_json_object

_file = partial(flag, group="Files", metavar="FILE")
_learned = partial(_file, changes_output=True)  # what a resumed run must not change


@dataclass(frozen=True)
class Texts:
    """The files a run was started on; saved in `command.json`."""

    src: str
    tgt: str
    valid_src: str | None = _learned(None, "Validation text, source side.")
    valid_tgt: str | None = _learned(None, "Validation text, target side.")
    valid_last: int = 500  # pairs at the end that are validated on, not trained on
    gold_src: str | None = _file(None, "Sentences with gold links, source side.")
    gold_tgt: str | None = _file(None, "Sentences with gold links, target side.")
    gold: str | None = _file(None, "Their links (talp or NAACL): reports AER.")
    vocab: str | None = _learned(
        None, "Use this SentencePiece model, do not learn one.", metavar="SPM"
    )
    teacher: tuple[str, ...] = _learned(
        (),
        "Who knows links of the text: the statistical aligner, a file of links (`i-j` or "
        "`i-j:score`, one line per pair; `-` is standard input), an exported model, another run. "
        "Several are averaged [default: statistical, where the settings want links].",
        metavar="statistical|LINKS|BUNDLE|RUN",
    )
    start: str | None = _learned(
        None,
        "Begin with the weights, vocabulary, shape, --lowercase and --fold-accents of another run "
        "or of an exported student, not with random weights. Peak rates that are not given are "
        "then a quarter of the preset's, to keep what it knows. The preset is by default that of "
        "its kind.",
        metavar="RUN|BUNDLE",
    )
    langs: str | None = _learned(
        None,
        "Languages of SRC and TGT: a --teacher that was exported for them in the other order is "
        "turned round.",
        metavar="XX-YY",
    )

    def list_read(self) -> list[str]:
        """Return the files that are learned from or validated on."""
        return [f for f in (self.src, self.tgt, self.valid_src, self.valid_tgt) if f]


_FILES = ("src", "tgt", "valid_src", "valid_tgt", "gold_src", "gold_tgt", "gold", "vocab")


def read_texts(run: Path) -> Texts:
    """Read the texts of a run folder, also of an earlier version."""
    saved = read_json_object(run / "command.json")["texts"]
    return Texts(**{**saved, "teacher": tuple(map(rename_old_teacher, saved.get("teacher", ())))})


def rename_old_teacher(name: str) -> str:
    """Return a teacher's name in a file of a run as it is called today."""
    return STATISTICAL if name == "seed" else name


def resolve_paths(texts: Texts, run: Path) -> Texts:
    """Return the texts as they are found again later.

    Paths become absolute; for standard input and pipes they are those of the copies that
    `copy_streams` makes in the run folder.
    """
    named = list_files(texts)
    if list(named.values()).count("-") > 1:
        raise InputError("only one of the files can be `-`: standard input is read once")
    for name in texts.teacher:
        if name not in (STATISTICAL, "-") and not os.path.exists(name):
            raise InputError(
                f"--teacher {name}: there is no such link file, bundle or run folder; "
                f"`{STATISTICAL}` is the statistical aligner"
            )
    # Relative paths would mean other files when the run is resumed from another folder.
    found: dict[str, Any] = {
        n: os.path.abspath(run / "text" / n if is_read_once(p) else p) for n, p in named.items()
    }
    teachers = [found.pop(f"teacher-{k}", STATISTICAL) for k in range(len(texts.teacher))]
    start = os.path.abspath(texts.start) if texts.start is not None else None
    return replace(texts, teacher=tuple(teachers), start=start, **found)


def list_files(texts: Texts) -> dict[str, str]:
    """Return the files that a run reads, by the names that their copies would have."""
    found = {name: getattr(texts, name) for name in _FILES}
    found |= {f"teacher-{k}": n for k, n in enumerate(texts.teacher) if n != STATISTICAL}
    return {name: path for name, path in found.items() if path is not None}


def is_read_once(path: str) -> bool:
    """Tell whether a file can be read one time only: standard input, pipes."""
    there = os.path.isfile(path) or os.path.isdir(path)
    return path == "-" or (os.path.exists(path) and not there)


def is_copy(name: str, run: Path) -> bool:
    """Tell whether a resolved path is that of a copy, which `copy_streams` makes."""
    return os.path.dirname(name) == os.path.abspath(run / "text")


def copy_streams(given: Texts, run: Path) -> None:
    """Copy what can be read only once into the run folder."""
    for name, path in list_files(given).items():
        if not is_read_once(path):
            continue
        copy = run / "text" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(copy) as file:
            file.writelines(f"{line}\n".encode() for line in read_lines(path))

"""Remember on the disk what is finished of an output, so that a killed run can go on.

A folder holds a `journal`: the settings of the output, then a record of each finished piece, one
JSON object a line. A piece is synced before its record, so whatever a record speaks of is there.
Does not know what pieces are: `output_files` lays them out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ..errors import MxError
from ..storage import atomic_write, hold_lock, write_error

JOURNAL, MANIFEST, LOCK = "journal", "manifest.json", "lock"
# All other files that we make, and what a kill leaves of one; no others are ever deleted.
_PIECE = r"part-?\d+(\.\w+)?"
_OWN_NAMES = re.compile(rf"{_PIECE}|\.({_PIECE}|{JOURNAL}|{re.escape(MANIFEST)})\.[\w.]+\.tmp")
# What a manifest has besides the settings.
_RESULTS = ("pairs", "counts", "shards")
# Settings that people know by another name, and those whose values would tell them nothing.
_SHOWN_AS = {"how": "signature", "targets": "files to write"}
_IN_WORDS = {
    "mx-align": "another version of mx-align",
    "model": "another model",
    "average": "other files given with --average",
    "separator": "another --separator, or another number of files",
}

Record = dict[str, Any]
AnyJournal = TypeVar("AnyJournal", bound="Journal")


class Journal:
    """The finished pieces of one output, in a folder that no other process writes meanwhile.

    Use as a context. On entry `records` are those of earlier runs with the same settings, and
    `complete` says that no piece is missing. Subclasses say how the pieces lie in the folder.
    """

    version = 1  # of the settings and records
    record_keys: frozenset[str]  # that every record has

    def __init__(
        self, folder: Path, output: Path, settings: Mapping[str, Any], restart: bool
    ) -> None:
        self.folder = folder
        self.output = output  # as people know it
        self.header: Record = {"mx-align": self.version, **settings}
        self.records: list[Record] = []
        self.complete = False
        self._restart = restart

    def __enter__(self: AnyJournal) -> AnyJournal:
        with ExitStack() as self._open_files, self._name_errors():
            self._claim_folder()
            busy = f"another mx-align is writing {self.output}; wait for it"
            self._open_files.enter_context(hold_lock(self.folder / LOCK, busy))
            if not self._restart:
                self._load_records()
            if not self.complete:
                self._start_log()
            # All went well: what is open stays so until __exit__.
            self._open_files = self._open_files.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open_files.close()

    def append(self, record: Record) -> None:
        """Add the record of a piece that is on the disk."""
        write_synced(self._log, encode_record(record))
        self.records.append(record)

    @contextmanager
    def _name_errors(self) -> Iterator[None]:
        """Turn what goes wrong with a disk inside the block into an MxError that names the file."""
        try:
            yield
        except BrokenPipeError:  # not a disk: the reader of standard output has gone
            raise
        except OSError as error:
            full = "what is finished stays: free some space and repeat the command"
            raise write_error(error.filename or self.output, error, full) from error

    def _piece_names(self) -> Collection[str]:
        """Return the names of the files that the records speak of."""
        raise NotImplementedError

    def _check_pieces(self, records: list[Record]) -> list[Record]:
        """Return the records whose pieces are as they were left; the others are made again."""
        raise NotImplementedError

    def _claim_folder(self) -> None:
        """Make the folder, or make sure that it is one of ours."""
        try:
            self.folder.mkdir(exist_ok=True)
        except FileExistsError:
            raise MxError(
                f"{self.folder} is in the way: mx-align keeps unfinished output there; remove it"
            ) from None
        names = {path.name for path in self.folder.iterdir()}
        # A run that was killed at its very beginning leaves a lock, and half a journal at most.
        strange = {name for name in names - {LOCK} if not name.startswith(f".{JOURNAL}.")}
        if strange and not names & {JOURNAL, MANIFEST}:
            raise MxError(
                f"{self.folder} has files but no links of mx-align; move them away, or give "
                "another output"
            )

    def _load_records(self) -> None:
        """Take over what earlier runs have finished; an error if they had other settings."""
        path = self.folder / MANIFEST
        if path.exists():  # a folder of numbered files that is complete has no journal
            (header,) = read_records(path)
            records = [{"block": n, **row} for n, row in enumerate(header.get("shards", [{}]))]
            self.complete = True
        else:
            path = self.folder / JOURNAL
            # Files that grow say in a last line that all is written, and only names are missing.
            header, *records = (read_records(path) if path.exists() else []) or [{}]
            self.complete = bool(records) and "complete" in records[-1]
            records = records[: len(records) - self.complete]
        if not all(self.record_keys <= record.keys() for record in records):
            raise damage_error(path)
        if records and not records[-1].get("whole", True) and not self.complete:
            records.pop()  # it ended with the input, which may have grown since, or been mended
        # Without a finished piece, a first try must not be in the way of the second.
        if records or self.complete:
            new = json.loads(encode_record(self.header))  # as it is read again: lists, no tuples
            changes = describe_changes(header, new, "{name} {old!r}, now {new!r}", ignore=_RESULTS)
            if changes:
                raise MxError(
                    f"{self.folder} was begun with {'; '.join(changes)}; "
                    "repeat the first command, or give --restart to begin anew"
                )
        self.records = self._check_pieces(records)

    def _start_log(self) -> None:
        """Write what is known anew, without a line that a kill may have cut, and go on behind it.

        The journal comes before the pieces: killed in between, there is more than it speaks of.
        """
        write_records(self.folder / JOURNAL, [self.header, *self.records])
        (self.folder / MANIFEST).unlink(missing_ok=True)
        self._remove_pieces(keep=self._piece_names())
        self._log = self._open_file(self.folder / JOURNAL)

    def _remove_pieces(self, keep: Collection[str] = ()) -> None:
        for path in list(self.folder.iterdir()):
            if _OWN_NAMES.fullmatch(path.name) and path.name not in keep:
                path.unlink()

    def _open_file(self, path: Path) -> BinaryIO:
        """Open a file for appending that is closed with the journal."""
        file: BinaryIO = open(path, "ab")  # noqa: SIM115
        self._open_files.callback(_close_file, file)
        return file


# ---- files ----


def read_records(path: Path) -> list[Record]:
    """Read the lines of a journal, but for one that a kill cut; other files hold one record."""
    data = path.read_bytes()
    texts = data.split(b"\n")[:-1] if path.name == JOURNAL else [data]
    try:
        records = list(map(json.loads, texts))
    except ValueError:
        raise damage_error(path) from None
    if not all(isinstance(record, dict) for record in records):
        raise damage_error(path)
    return records


def write_records(path: Path, records: Sequence[Record], indent: int | None = None) -> None:
    """Write a file of records that is there as a whole or not at all."""
    with atomic_write(path) as file:
        file.write(b"".join(encode_record(record, indent) for record in records))


def encode_record(values: Record, indent: int | None = None) -> bytes:
    """Return a record as JSON, on one line unless indented."""
    # Sorted, so that the same records give the same bytes whoever writes them.
    text = json.dumps(values, ensure_ascii=False, sort_keys=True, indent=indent)
    return text.encode() + b"\n"


def write_synced(file: BinaryIO, data: bytes) -> None:
    """Append bytes and wait until they are on the disk."""
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _close_file(file: BinaryIO) -> None:
    with suppress(OSError):  # a full disk: the write that met it has said so
        file.close()


# ---- errors ----


def describe_changes(
    old: Record, new: Record, wording: str, ignore: Collection[str] = ()
) -> list[str]:
    """Say which settings differ, by a `wording` with {name}, {old} and {new}."""
    keys = [k for k in sorted({*old, *new}.difference(ignore)) if old.get(k) != new.get(k)]
    if "mx-align" in keys:
        keys = ["mx-align"]  # other versions may call the others by other names
    names = {key: _SHOWN_AS.get(key, key).replace("_", "-") for key in keys}
    return [
        _IN_WORDS.get(key) or wording.format(name=names[key], old=old.get(key), new=new.get(key))
        for key in keys
    ]


def damage_error(path: Path) -> MxError:
    """Return the error for a file that is not what mx-align wrote."""
    return MxError(f"{path} is damaged; give mx-align --restart to begin anew")

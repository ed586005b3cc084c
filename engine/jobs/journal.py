"""Remember on the disk what is finished of an output, so that a killed run can go on.

A folder holds a `journal`: the settings of the output, then a record of each finished piece, one
JSON object a line. A piece is synced before its record, so whatever a record speaks of is there.
Each line has a checksum of itself and of all lines before it: what follows a damaged one is made
again. Does not know what pieces are: `output_files` lays them out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ..errors import MxError
from ..storage import atomic_write, hold_lock, is_own, open_own_file, write_error

JOURNAL, MANIFEST, LOCK = "journal", "manifest.json", "lock"
# All other files that we make, and what a kill leaves of one; no others are ever deleted.
_PIECE = r"part-?\d+(\.\w+)?"
_OWN_NAMES = re.compile(rf"{_PIECE}|\.({_PIECE}|{JOURNAL}|{re.escape(MANIFEST)})\.[\w.]+\.tmp")
# What a manifest has besides the settings.
_RESULTS = ("pairs", "counts", "shards")
CHECK = "check"  # the last value of a line: its checksum
# Settings that people know by another name, and those whose values would tell them nothing.
_SHOWN_AS = {"how": "signature", "targets": "files to write"}
_IN_WORDS = {
    "mx-align": "another version of mx-align",
    "model": "another model",
    "average": "other files given with --average",
    "input": "another text",
    "separator": "another --separator, or another number of files",
}

Record = dict[str, Any]
AnyJournal = TypeVar("AnyJournal", bound="Journal")


class Journal:
    """The finished pieces of one output, in a folder that no other process writes meanwhile.

    Use as a context. On entry `records` are those of earlier runs with the same settings, and
    `complete` says that no piece is missing. Subclasses say how the pieces lie in the folder.
    """

    version = 3  # of the settings and records; 2 had no checksums
    record_keys: frozenset[str]  # that every record has
    mode = 0o777  # of the folder, less what the user's mask takes away

    def __init__(
        self, folder: Path, output: Path, settings: Mapping[str, Any], restart: bool
    ) -> None:
        self.folder = folder
        self.output = output  # as people know it
        self.header: Record = {"mx-align": self.version, **settings}
        self.records: list[Record] = []
        self.complete = False
        self._restart = restart
        self._check = ""  # of the last line of the journal

    def __enter__(self: AnyJournal) -> AnyJournal:
        with ExitStack() as self._open_files, self._name_errors():
            self._claim_folder()
            busy = f"another mx-align is writing {self.output}; wait for it"
            try:
                self._open_files.enter_context(hold_lock(self.folder / LOCK, busy))
            except FileNotFoundError:  # it has just finished and removed the folder
                raise MxError(busy) from None
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
        line, self._check = seal_record(record, self._check)
        write_synced(self._log, line)
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
        with suppress(FileExistsError):
            self.folder.mkdir(self.mode)
        info = os.lstat(self.folder)
        if not stat.S_ISDIR(info.st_mode) or not is_own(info, self.folder.parent):
            raise MxError(
                f"{self.folder} is in the way: mx-align keeps unfinished output there, in a folder "
                "of this user's own; move it away"
            )
        names = {path.name for path in self.folder.iterdir()}
        # A run that was killed at its very beginning leaves a lock, and half a journal at most.
        strange = {name for name in names - {LOCK} if not name.startswith(f".{JOURNAL}.")}
        if strange and not any(is_ours(self.folder / name) for name in (JOURNAL, MANIFEST)):
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
        self._check = write_records(self.folder / JOURNAL, [self.header, *self.records])
        (self.folder / MANIFEST).unlink(missing_ok=True)
        self._remove_pieces(keep=self._piece_names())
        self._log = self._open_file(self.folder / JOURNAL)

    def _remove_pieces(self, keep: Collection[str] = ()) -> None:
        for path in list(self.folder.iterdir()):
            if _OWN_NAMES.fullmatch(path.name) and path.name not in keep:
                path.unlink()

    def _open_file(self, path: Path) -> BinaryIO:
        """Open a file for appending that is closed with the journal."""
        file: BinaryIO = os.fdopen(open_own_file(path, os.O_APPEND), "ab")
        self._open_files.callback(_close_file, file)
        return file


# ---- files ----


def read_records(path: Path) -> list[Record]:
    """Read the lines of a journal up to the first that is damaged; other files hold one record."""
    data = path.read_bytes()
    texts = data.split(b"\n")[:-1] if path.name == JOURNAL else [data]
    records: list[Record] = []
    check = ""
    for text in texts:
        try:
            record = json.loads(text)
            if not records and CHECK not in record and "mx-align" in record:
                raise MxError(
                    f"{path} was begun with another version of mx-align; end it with that one, or "
                    "give --restart to begin anew"
                )
            found = record.pop(CHECK)
            check = checksum(record, check)
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            break
        if found != check:
            break
        records.append(record)
    if texts and not records:
        raise damage_error(path)
    return records


def is_ours(path: Path) -> bool:
    """Tell whether a journal or a manifest is one that we wrote, whole or damaged."""
    try:
        with open(path, "rb") as file:
            return b'"mx-align": ' in file.read(1 << 24)
    except OSError:
        return False


def write_records(path: Path, records: Sequence[Record], indent: int | None = None) -> str:
    """Write a file of records that is there as a whole or not at all; return the last checksum."""
    check = ""
    with atomic_write(path) as file:
        for record in records:
            line, check = seal_record(record, check, indent)
            file.write(line)
    return check


def seal_record(record: Record, before: str, indent: int | None = None) -> tuple[bytes, str]:
    """Return the line of a record, and its checksum, which goes on from that of the one before."""
    check = checksum(record, before)
    return encode_record({**record, CHECK: check}, indent), check


def checksum(record: Record, before: str) -> str:
    """Return the checksum of a record and of all before it, whose own checksum is `before`."""
    data = before.encode() + encode_record(record)
    return hashlib.blake2b(data, digest_size=16).hexdigest()


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

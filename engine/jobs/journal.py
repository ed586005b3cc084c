"""Output that survives a kill: `OUT.partial/` holds what is finished and a journal of it.
Knows bytes, records and renames; which lines are written is the matter of others.

Each chunk is appended to the part files and synced before its record is, so whatever a record
speaks of is on the disk; what a killed run wrote beyond the last record is cut off. Besides what
gets a name in the end, a run may keep notes for itself, which go with the folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import MxError
from ..text.files import atomic_write, open_output, sync_folder

_VERSION = 1
# Settings that are not called as people know them, and those whose values would tell them nothing.
_NAMES = {"how": "signature", "targets": "files to write"}
_IN_WORDS = {
    "mx-align": "another version of mx-align",
    "model": "another model",
    "average": "other files given with --average",
    "separator": "another --separator, or another number of files",
}


@dataclass(frozen=True)
class Record:
    """A finished chunk: its number of pairs, a digest of its input, its counts, the sizes of all
    part files after it, and whether it ended where a chunk ends or only because the input did."""

    pairs: int
    digest: str
    counts: list[int]
    sizes: list[int]
    whole: bool


class Journal:
    """The unfinished output of one command; use as `with Journal.open(...) as journal`."""

    def __init__(
        self, targets: Sequence[Path], records: list[Record], complete: bool, notes: bool = False
    ) -> None:
        self.targets = targets
        self._notes = notes
        self.folder = folder_of(targets[0])
        self.share: Mapping[str, Any] | None = None
        self.records = records
        self.complete = complete
        self._parts: list[BinaryIO] = []
        self._log: BinaryIO | None = None

    @classmethod
    @contextmanager
    def open(
        cls, targets: Sequence[Path], settings: Mapping[str, Any], *, restart: bool = False,
        notes: bool = False,
    ) -> Iterator[Journal]:  # fmt: skip
        """The journal beside the first target: a new one, or the one of a run with the same
        settings, which goes on. Other settings, or a run under way, are errors. With `notes` a
        chunk has, after the bytes of its targets, some that are only kept to be read again."""
        folder = folder_of(targets[0])
        header = {"mx-align": _VERSION, "targets": [path.name for path in targets], **settings}
        with ExitStack() as stack:
            with _writing(folder):
                _make_folder(folder, targets[0])
                stack.enter_context(locked(folder, targets[0]))
                if restart:
                    (folder / "journal").unlink(missing_ok=True)
                journal = cls(targets, *_read(folder, header, targets[0]), notes)
                if settings.get("shard", "1/1") != "1/1":
                    journal.share = settings
                stack.callback(journal._close)
                journal._start(header)
            yield journal

    def _part(self, n: int) -> Path:
        return self.folder / f"part{n}"

    def _start(self, header: Mapping[str, Any]) -> None:
        """Open the part files, cut to what the records speak of; drop a half record."""
        wanted = len(self.targets) + self._notes
        sizes = self.records[-1].sizes if self.records else [0] * wanted
        if len(sizes) < wanted:
            raise MxError(
                f"{self.folder} was begun without --report or --html, which must see every pair; "
                "leave them out or give --restart to begin anew"
            )
        if self.complete:
            return
        for n, size in enumerate(sizes[:wanted]):
            path = self._part(n)
            found = path.stat().st_size if path.exists() else 0
            if found < size:
                raise MxError(
                    f"{path} has {found:,} bytes where the journal says {size:,}; it was changed "
                    "since: give --restart to begin anew"
                )
            file = open(path, "r+b" if path.exists() else "x+b")  # noqa: SIM115
            self._parts.append(file)
            file.truncate(size)
            file.seek(size)
        lines = [header, *(vars(record) for record in self.records)]
        temp = self.folder / "journal.new"
        with open(temp, "wb") as log:
            log.write(b"".join(map(_line, lines)))
            log.flush()
            os.fsync(log.fileno())
        os.replace(temp, self.folder / "journal")
        sync_folder(self.folder)
        self._log = open(self.folder / "journal", "ab")  # noqa: SIM115

    def append(
        self, parts: Sequence[bytes], pairs: int, digest: str, counts: Sequence[int], whole: bool
    ) -> None:
        """Add a chunk: its bytes for each target, and its notes if there are any."""
        with _writing(self.targets[0]):
            for file, data in zip(self._parts, parts, strict=True):
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            sizes = [file.tell() for file in self._parts]
            record = Record(pairs, digest, list(counts), sizes, whole)
            self._note(vars(record))
        self.records.append(record)

    def notes(self) -> Iterator[bytes]:
        """The lines of the notes of all records, without their ends."""
        path = self._part(len(self.targets))
        # Killed while its folder was being removed, a run may have lost them.
        if not self._notes or not self.records or not path.exists():
            return
        with open(path, "rb") as file:
            left = self.records[-1].sizes[-1]
            while left > 0 and (line := file.readline()):
                left -= len(line)
                yield line.rstrip(b"\n")

    def _note(self, values: Mapping[str, Any]) -> None:
        assert self._log is not None
        self._log.write(_line(values))
        self._log.flush()
        os.fsync(self._log.fileno())

    def finish(self) -> None:
        """Put everything under its final name, compressed if the name says so, and remove the
        folder. Killed in between, the same command does the rest. Beside each output of a shard
        a record says what it is, for `merge`; it comes last, so what has one is complete."""
        with _writing(self.targets[0]):
            if not self.complete:
                self._note({"complete": True})
                self._close()
            for n, target in enumerate(self.targets):
                part = self._part(n)
                if not part.exists():
                    continue  # moved before a kill
                _publish(part, target)
            if self.share is not None:
                pairs = sum(record.pairs for record in self.records)
                for target in self.targets:
                    write_record(target, self.share, pairs)
            shutil.rmtree(self.folder)
            sync_folder(self.folder.parent)

    def _close(self) -> None:
        for file in [*self._parts, *([self._log] if self._log else [])]:
            with suppress(OSError):
                file.close()
        self._parts, self._log = [], None


def folder_of(target: Path) -> Path:
    """Where the unfinished output of a target is kept."""
    return target.with_name(target.name + ".partial")


def record_of(target: Path) -> Path:
    """Where a finished shard says what it is."""
    return target.with_name(target.name + ".shard.json")


def write_record(target: Path, settings: Mapping[str, Any], pairs: int) -> None:
    """Say which share of which work a file holds, and its digest as it lies on the disk."""
    digest = hashlib.sha256()
    with open(target, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
        size = file.tell()
    record = {"mx-align": _VERSION, **settings, "pairs": pairs, "bytes": size}
    with atomic_write(record_of(target)) as file:
        file.write(_line({**record, "sha256": digest.hexdigest()}))


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, sort_keys=True).encode() + b"\n"


def _publish(part: Path, target: Path) -> None:
    """Move a part to its target, through the compressor if the name says so."""
    if target.name.endswith((".gz", ".zst")):
        packed = part.with_name(part.name + target.suffix)
        with open(part, "rb") as plain, open_output(packed) as out:
            shutil.copyfileobj(plain, out, 1 << 20)
        _move(packed, target)
        part.unlink()
    else:
        _move(part, target)


def _move(path: Path, target: Path) -> None:
    target = Path(os.path.realpath(target))  # write through a link instead of replacing it
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        try:
            os.replace(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with atomic_write(target) as copy:  # a sidecar may be on another disk
                shutil.copyfileobj(file, copy, 1 << 20)
            path.unlink()
    sync_folder(target.parent)


def _read(folder: Path, header: Mapping[str, Any], target: Path) -> tuple[list[Record], bool]:
    """The records of a journal, and whether it was complete; none if there is no journal, or no
    finished chunk in it, whatever it was begun with."""
    path = folder / "journal"
    if not path.exists():
        for part in folder.glob("part*"):
            part.unlink()
        return [], False
    lines = []
    for line in path.read_bytes().split(b"\n")[:-1]:  # a line without its end was cut by a kill
        try:
            lines.append(json.loads(line))
        except ValueError:
            raise _damaged(path) from None
    if not lines:
        return [], False
    complete = "complete" in lines[-1]
    try:
        records = [Record(**line) for line in lines[1 : len(lines) - complete]]
    except TypeError:
        raise _damaged(path) from None
    if records and not records[-1].whole and not complete:
        records.pop()  # the input may have grown since, or been mended
    if records or complete:
        _compare(lines[0], json.loads(_line(header)), target)
    return records, complete


def _make_folder(folder: Path, target: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise MxError(
            f"cannot write {target}: its folder does not exist; create it first"
        ) from None
    except FileExistsError:
        raise MxError(
            f"{folder} is in the way: mx-align keeps unfinished output there; remove it"
        ) from None


def _damaged(path: Path) -> MxError:
    return MxError(f"{path} is damaged; give --restart to begin anew")


def _compare(old: Mapping[str, Any], new: Mapping[str, Any], target: Path) -> None:
    changed = [
        _IN_WORDS.get(key)
        or f"{_NAMES.get(key, key).replace('_', '-')} {old.get(key)!r}, now {new.get(key)!r}"
        for key in sorted(set(old) | set(new))
        if old.get(key) != new.get(key)
    ]
    if changed:
        raise MxError(
            f"{folder_of(target)} was begun with {'; '.join(changed)}; "
            "repeat the first command, or give --restart to begin anew"
        )


@contextmanager
def locked(folder: Path, target: Path) -> Iterator[None]:
    """Only one process writes into the folder; a killed one leaves no lock."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    with open(folder / "lock", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise MxError(f"another mx-align is writing {target}; wait for it") from None
        yield


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        hint = "; what is finished stays: free some space and repeat the command"
        raise MxError(
            f"cannot write {error.filename or path}: {error.strerror or error}"
            f"{hint if error.errno == errno.ENOSPC else ''}"
        ) from error

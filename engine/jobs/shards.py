"""A folder of numbered files, written in any order and safe against a kill, with a manifest.
Knows bytes, names and digests; what is in the files is the matter of others.

A file is complete before the journal speaks of it, and the manifest comes last: a folder that
has one is complete. Files sort by name in the order of their lines."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import MxError
from ..text.files import atomic_write, sync_folder
from .journal import locked

VERSION = 1
_JOURNAL, _MANIFEST, _LOCK = "journal", "manifest.json", "lock"


class Shards:
    """The output of one command; use as `with Shards.open(...) as shards`."""

    def __init__(self, folder: Path, suffix: str, header: Mapping[str, Any]) -> None:
        self.folder = folder
        self.suffix = suffix
        self.header = dict(header)
        self.records: dict[int, dict[str, Any]] = {}
        self.complete = False
        self._log: BinaryIO | None = None

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path, suffix: str, settings: Mapping[str, Any], *, restart: bool = False
    ) -> Iterator[Shards]:
        """A new folder, or that of a run with the same settings, which goes on."""
        shards = cls(folder, suffix, {"mx-align": VERSION, **settings})
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise MxError(f"cannot make the folder {folder}: {error.strerror or error}") from None
        with ExitStack() as stack:
            shards._claim()
            stack.enter_context(locked(folder, folder))
            if restart:
                shards._clear()
            shards._read()
            stack.callback(shards._close)
            if not shards.complete:
                shards._start()
            yield shards

    def _claim(self) -> None:
        """An error if the folder has files that are not ours."""
        names = {path.name for path in self.folder.iterdir()} - {_LOCK}
        if names and not names & {_JOURNAL, _MANIFEST}:
            raise MxError(
                f"{self.folder} has files but no links of mx-align; give a new or empty folder"
            )

    def _clear(self) -> None:
        for path in [*self.folder.glob("part-*"), *self.folder.glob(".part-*.tmp")]:
            path.unlink()
        for name in (_JOURNAL, _MANIFEST):
            (self.folder / name).unlink(missing_ok=True)

    def _read(self) -> None:
        manifest, journal = self.folder / _MANIFEST, self.folder / _JOURNAL
        if manifest.exists():
            found = _parsed(manifest, manifest.read_bytes())
            shards = found.pop("shards", None)
            if not isinstance(shards, list):
                raise MxError(f"{manifest} is damaged; give --restart to begin anew")
            self._compare({key: value for key, value in found.items() if key in self.header})
            self.records = dict(enumerate(shards))
            self.complete = True
        elif journal.exists():
            lines = journal.read_bytes().split(b"\n")[:-1]  # what a kill cut off has no end
            records = [_parsed(journal, line) for line in lines]
            if not records:
                return
            self._compare(records[0])
            for record in records[1:]:
                path = self.folder / str(record.get("file"))
                # A file that was deleted or cut since is simply made again.
                if path.exists() and path.stat().st_size == record.get("bytes"):
                    self.records[int(record.pop("block"))] = record

    def _compare(self, old: Mapping[str, Any]) -> None:
        new = json.loads(json.dumps(self.header))
        changed = [
            f"{key} {old.get(key)!r}, now {new.get(key)!r}"
            for key in sorted(set(old) | set(new))
            if old.get(key) != new.get(key)
        ]
        if changed:
            raise MxError(
                f"{self.folder} was begun with {'; '.join(changed)}; "
                "repeat the first command, or give --restart to begin anew"
            )

    def _start(self) -> None:
        for path in self.folder.glob(".part-*.tmp"):
            path.unlink()  # half written by a killed run
        rows = [{"block": n, **record} for n, record in self.records.items()]
        with atomic_write(self.folder / _JOURNAL) as file:
            file.write(b"".join(map(_line, [self.header, *rows])))
        self._log = open(self.folder / _JOURNAL, "ab")  # noqa: SIM115

    def add(self, number: int, data: bytes, values: Mapping[str, Any]) -> None:
        """Keep a file and what `values` says of it."""
        name = f"part-{number:06d}{self.suffix}"
        with atomic_write(self.folder / name) as file:
            file.write(data)
        digest = hashlib.sha256(data).hexdigest()
        record = {"file": name, "bytes": len(data), "sha256": digest, **values}
        assert self._log is not None
        self._log.write(_line({"block": number, **record}))
        self._log.flush()
        os.fsync(self._log.fileno())
        self.records[number] = record

    def finish(self, number: int, summary: Mapping[str, Any]) -> None:
        """Write the manifest, if there are as many files as there should be."""
        if sorted(self.records) != list(range(number)):
            raise MxError(
                f"{self.folder} has {len(self.records):,} of {number:,} shards; "
                "run the command again"
            )
        shards = [self.records[n] for n in range(number)]
        with atomic_write(self.folder / _MANIFEST) as file:
            text = json.dumps({**self.header, **summary, "shards": shards}, indent=1)
            file.write(text.encode() + b"\n")
        self._close()
        (self.folder / _JOURNAL).unlink()
        sync_folder(self.folder)

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, sort_keys=True).encode() + b"\n"


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise MxError(f"{path} is damaged; give --restart to begin anew")
    return found

"""Write output that survives a kill: files that grow together, or a folder of numbered files.

Files that grow get their names when all is there, a folder gets a manifest. Does not know what is
in the files.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import MxError
from ..storage import atomic_write, file_sha256, keep_mode, open_own_file, sync_folder
from ..text.files import open_output
from ..types import Counts
from .journal import JOURNAL, LOCK, MANIFEST, Journal, Record, write_records, write_synced


class OutputFiles(Journal):
    """Files that grow chunk by chunk in `OUT.partial/` and get their names when all is there.

    A record has the `pairs` of a chunk, the `digest` of its input, its `counts`, the `sizes` and
    running checksums (`sums`) of all files after it, and whether it ended where a chunk ends
    (`whole`) or only because the input did. With `notes` there is one file more, which is only read
    again and goes with the folder.
    """

    record_keys = frozenset({"pairs", "digest", "counts", "sizes", "sums", "whole"})
    mode = 0o700  # nobody else may plant a file there

    def __init__(
        self, targets: Sequence[Path], settings: Mapping[str, Any], *, restart: bool = False,
        notes: bool = False,
    ) -> None:  # fmt: skip
        settings = {"targets": [path.name for path in targets], **settings}
        super().__init__(partial_folder(targets[0]), targets[0], settings, restart)
        self.targets = targets
        self._parts = [self.folder / f"part{n}" for n in range(len(targets) + notes)]
        self._notes = self._parts[-1] if notes else None
        self._files: list[BinaryIO] = []
        self._sums = [new_sum() for _ in self._parts]  # of all bytes so far

    def append_chunk(
        self, parts: Sequence[bytes], counts: Counts, digest: str, whole: bool
    ) -> None:
        """Add a chunk: its bytes for each target, and then its notes if there are any."""
        with self._name_errors():
            # A kill before the record leaves bytes that no record speaks of, which are dropped.
            for file, running, data in zip(self._files, self._sums, parts, strict=True):
                write_synced(file, data)
                running.update(data)
            sizes = [file.tell() for file in self._files]
            sums = [running.hexdigest() for running in self._sums]
            chunk = {"pairs": counts.pairs, "digest": digest, "counts": list(astuple(counts))}
            self.append({**chunk, "whole": whole, "sizes": sizes, "sums": sums})

    def read_notes(self) -> Iterator[bytes]:
        """Yield the lines of the notes of all records, without their ends."""
        # Killed while its folder was being removed, a run may have lost them.
        if self._notes is None or not self.records or not self._notes.exists():
            return
        with open(self._notes, "rb") as file:
            left = self.records[-1]["sizes"][-1]
            while left > 0 and (line := file.readline()):
                left -= len(line)
                yield line.rstrip(b"\n")

    def finish(self) -> None:
        """Put everything under its name, compressed if that says so, and remove the folder.

        Killed in between, the same command does the rest. A shard gets a record beside each of its
        files that says what it is, for `merge`; it comes last, so what has one is complete.
        """
        pairs = sum(record["pairs"] for record in self.records)
        share = join_digests(record["digest"] for record in self.records)
        with self._name_errors():
            if not self.complete:
                # From here on a file may have gone to its target; nobody must look for it here.
                self.append({"complete": True})
            for part, target in zip(self._parts, self.targets, strict=False):
                if part.exists():  # else it was moved before a kill
                    publish_part(part, target)
            if self.header.get("shard", "1/1") != "1/1":
                settings = {k: v for k, v in self.header.items() if k != "targets"}
                for target in self.targets:
                    size, digest = target.stat().st_size, file_sha256(target)
                    record = {**settings, "share": share, "pairs": pairs, "bytes": size}
                    record["sha256"] = digest
                    write_records(shard_record_path(target), [record])
            self._remove_pieces()
            for name in (JOURNAL, LOCK):  # not before: pieces without a journal are nobody's
                (self.folder / name).unlink()
            with suppress(OSError):  # somebody has put a file there
                self.folder.rmdir()
            sync_folder(self.folder.parent)

    def _piece_names(self) -> Collection[str]:
        # Notes that nobody wants this time are kept: somebody may, next time.
        return {f"part{n}" for n in range(len(self._sizes(self.records)))}

    def _sizes(self, records: list[Record]) -> list[int]:
        return records[-1]["sizes"] if records else [0] * len(self._parts)

    def _check_pieces(self, records: list[Record]) -> list[Record]:
        sizes = self._sizes(records)
        if len(sizes) < len(self._parts):
            raise MxError(
                f"{self.folder} was begun without --report or --html, which must see every pair; "
                "leave them out or give --restart to begin anew"
            )
        if self.complete:
            names = zip(self._parts, self.targets, strict=False)
            left = [(n, part) for n, part in enumerate(self._parts) if part.exists()]
            if all(part.exists() or name.exists() for part, name in names) and all(
                self._count_intact(records, n)[0] == len(records) for n, _ in left
            ):
                return records
            self.complete = False  # somebody has changed or removed a file: it is made again
        found = [self._count_intact(records, n) for n in range(len(self._parts))]
        records = records[: min(count for count, _ in found)]
        self._sums = [
            running if count == len(records) else self._count_intact(records, n)[1]
            for n, (count, running) in enumerate(found)
        ]
        return records

    def _count_intact(self, records: list[Record], n: int) -> tuple[int, Any]:
        """Return how many records a part bears out, and the checksum of its bytes of those."""
        running, place = new_sum(), 0
        if not os.path.lexists(self._parts[n]):  # nor is it made: the journal comes first
            return 0, running
        with os.fdopen(open_own_file(self._parts[n]), "rb") as file:
            for done, record in enumerate(records):
                before, left = running.copy(), record["sizes"][n] - place
                while left > 0 and (data := file.read(min(left, 1 << 20))):
                    running.update(data)
                    left -= len(data)
                if left or running.hexdigest() != record["sums"][n]:
                    return done, before
                place = record["sizes"][n]
        return len(records), running

    def _start_log(self) -> None:
        super()._start_log()
        for path, size in zip(self._parts, self._sizes(self.records), strict=False):
            file = self._open_file(path)
            file.truncate(size)  # a kill may have come between a chunk and its record
            file.seek(size)  # else `tell` would give the old end until something is written
            self._files.append(file)


class OutputFolder(Journal):
    """A folder of numbered files, written in any order; a manifest in the end.

    Files sort by name in the order of their lines. A record has the number of its `block`, name,
    size and SHA-256 of its `file`, and what else is known of it. The manifest, which only complete
    folders have, holds the settings and all records.
    """

    record_keys = frozenset({"block", "file", "bytes", "sha256"})

    def __init__(
        self, folder: Path, suffix: str, settings: Mapping[str, Any], *, restart: bool = False
    ) -> None:
        super().__init__(folder, folder, settings, restart)
        self.suffix = suffix

    def write_block(self, number: int, data: bytes, values: Mapping[str, Any]) -> None:
        """Write the file of a block, and what `values` says of it."""
        name = f"part-{number:06d}{self.suffix}"
        with self._name_errors():
            with atomic_write(self.folder / name) as file:
                file.write(data)
            digest = hashlib.sha256(data).hexdigest()
            record = {"block": number, "file": name, "bytes": len(data), "sha256": digest}
            self.append({**record, **values})

    def finish(self, blocks: int, summary: Mapping[str, Any]) -> None:
        """Write the manifest, if there are as many files as there should be."""
        records = {record["block"]: record for record in self.records}
        if sorted(records) != list(range(blocks)):
            raise MxError(
                f"{self.folder} has {len(records):,} of {blocks:,} shards; run the command again"
            )
        shards = [{k: v for k, v in records[n].items() if k != "block"} for n in range(blocks)]
        with self._name_errors():
            # Killed between these two, the manifest counts and the journal is not looked at.
            manifest = {**self.header, **summary, "shards": shards}
            write_records(self.folder / MANIFEST, [manifest], indent=1)
            (self.folder / JOURNAL).unlink()
            sync_folder(self.folder)

    def _piece_names(self) -> Collection[str]:
        return {record["file"] for record in self.records}

    def _check_pieces(self, records: list[Record]) -> list[Record]:
        """Leave out those whose file was deleted or changed: it is made again."""
        paths = [self.folder / Path(str(record["file"])).name for record in records]
        sums = [file_sha256(path) if path.is_file() else None for path in paths]
        return [r for r, found in zip(records, sums, strict=True) if found == r["sha256"]]


# ---- files ----


def partial_folder(target: Path) -> Path:
    """Return where the unfinished output of a file is kept."""
    return target.with_name(target.name + ".partial")


def shard_record_path(target: Path) -> Path:
    """Return where a finished shard says what it is."""
    return target.with_name(target.name + ".shard.json")


def new_sum() -> Any:
    """Return a running checksum of an output."""
    return hashlib.blake2b(digest_size=16)


def join_digests(digests: Iterable[str]) -> str:
    """Return one digest for a share of a text from those of its chunks."""
    joined = new_sum()
    for digest in digests:
        joined.update(digest.encode())
    return str(joined.hexdigest())


def publish_part(part: Path, target: Path) -> None:
    """Move a file to its target, through the compressor if the name says so."""
    ready = part
    if target.suffix in (".gz", ".zst"):
        # Packed in the folder: what a kill leaves behind goes with it.
        ready = part.with_name(part.name + target.suffix)
        ready.unlink(missing_ok=True)  # of a run that was killed while it packed
        with open(part, "rb") as plain, open_output(ready) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
    real = Path(os.path.realpath(target))  # write through a link instead of replacing it
    with open(ready, "rb") as file:
        # Before the rename: after a power cut the name must not stand for an empty file.
        os.fsync(file.fileno())
        try:
            keep_mode(real, ready)
            os.replace(ready, real)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with atomic_write(real) as copy:  # --scores may be on another disk
                shutil.copyfileobj(file, copy, 1 << 20)
    sync_folder(real.parent)
    part.unlink(missing_ok=True)

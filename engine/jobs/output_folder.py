"""Write a folder of numbered files, in any order, that survives a kill and ends with a manifest.

Does not know what is in the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..errors import MxError
from ..storage import atomic_write, sync_folder
from .journal import JOURNAL, MANIFEST, Journal, Record, name_write_errors, write_records


class OutputFolder(Journal):
    """A folder of numbered files, written in any order; a manifest in the end.

    Files sort by name in the order of their lines. A record has the number of its `block`, name,
    size and SHA-256 of its `file`, and what else is known of it. The manifest, which only complete
    folders have, holds the settings and all records.
    """

    version = 2  # 1 had other names for symmetrize and optimize_for
    record_keys = frozenset({"block", "file", "bytes", "sha256"})

    def __init__(
        self, folder: Path, suffix: str, settings: Mapping[str, Any], *, restart: bool = False
    ) -> None:
        super().__init__(folder, folder, settings, restart)
        self.suffix = suffix

    def write_block(self, number: int, data: bytes, values: Mapping[str, Any]) -> None:
        """Write the file of a block, and what `values` says of it."""
        name = f"part-{number:06d}{self.suffix}"
        with name_write_errors(self.output):
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
        with name_write_errors(self.output):
            # Killed between these two, the manifest counts and the journal is not looked at.
            manifest = {**self.header, **summary, "shards": shards}
            write_records(self.folder / MANIFEST, [manifest], indent=1)
            (self.folder / JOURNAL).unlink()
            sync_folder(self.folder)

    def _piece_names(self) -> Collection[str]:
        return {record["file"] for record in self.records}

    def _check_pieces(self, records: list[Record]) -> list[Record]:
        """Leave out those whose file was deleted or cut: it is made again."""
        paths = [self.folder / str(record["file"]) for record in records]
        sizes = [path.stat().st_size if path.exists() else None for path in paths]
        return [r for r, size in zip(records, sizes, strict=True) if size == r["bytes"]]

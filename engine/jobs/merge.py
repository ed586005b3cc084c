"""Join the finished shards of a corpus into one file, if they are all there and intact.

A record says what a shard is: `OUT.shard.json` beside it, or a part of the manifest of its folder.
Does not look at links, only at bytes and numbers of lines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError, MxError
from ..storage import atomic_write, check_target
from .journal import MANIFEST, Record, damage_error, describe_changes, read_records
from .output_files import partial_folder, shard_record_path

# In the record of every shard, and different in each of them.
_OWN_KEYS = {"first_line", "pairs", "bytes", "sha256"}
# In that of a shard only: its place, digests of the whole input and of its share.
_SHARD_KEYS = {*_OWN_KEYS, "shard", "input", "share"}


def merge_shards(paths: Sequence[Path], out: Path) -> tuple[int, int, int]:
    """Join shards, given in any order, or the folder of a cluster, into `out`.

    Returns the numbers of shards, pairs and lines; lines of packed files are counted as pairs.
    """
    check_target(out)
    if len(paths) == 1 and paths[0].is_dir() and not paths[0].name.endswith(".partial"):
        shards = read_folder(paths[0])
    else:
        shards = read_array(paths, out)
    packings = {packing_of(path) for path in (out, *shards)}
    if len(packings) > 1:
        raise MxError(
            f"{out} and its shards must all be plain, all .gz or all .zst, "
            f"but there are {' and '.join(sorted(p or 'plain ones' for p in packings))}"
        )
    line = 1  # that the next shard must begin with
    for path, record in shards.items():
        if record["first_line"] != line:
            raise InputError(
                f"{path} begins at line {record['first_line']:,} but the shards before it end "
                f"at line {line - 1:,}: the corpus has changed in between; make the shards again"
            )
        line += record["pairs"]
    # Bytes are checked while they are copied: a damaged shard leaves `out` as it was.
    with atomic_write(out) as file:
        lines = sum(copy_shard(path, record, file) for path, record in shards.items())
    return len(shards), line - 1, lines


def packing_of(path: Path) -> str:
    """Return how a file is compressed: ".gz", ".zst" or "" for plain text."""
    return path.suffix if path.suffix in (".gz", ".zst") else ""


def read_folder(folder: Path) -> dict[Path, Record]:
    """Return the files of a folder, in order, and what its manifest says of them."""
    path = folder / MANIFEST
    if not path.exists():
        raise InputError(
            f"{folder} has no {MANIFEST}: the run that writes it is not finished; "
            "run its command again"
        )
    (manifest,) = read_records(path) or [{}]
    if manifest.get("format") == "parquet":
        raise InputError(f"{folder} has Parquet files, which readers take as one; nothing to merge")
    shards = manifest.get("shards", [{}])
    if not all(_OWN_KEYS | {"file"} <= shard.keys() for shard in shards):
        raise damage_error(path)
    if outside := [n for n in (s["file"] for s in shards) if os.path.basename(str(n)) != n]:
        raise InputError(f"{path} names {outside[0]!r}, which is no file of its folder")
    return {folder / shard["file"]: shard for shard in shards}


def read_array(paths: Sequence[Path], out: Path) -> dict[Path, Record]:
    """Return the shards, by their numbers, and their records, which must belong together."""
    found: dict[int, tuple[Path, Record]] = {}
    first: Record = {}
    of = 0
    for path in paths:
        # What a shell finds besides with links.*; an earlier result is no shard of itself.
        if path.name.endswith((".partial", ".shard.json")) or path == out:
            continue
        record = read_shard_record(path)
        first = first or record
        wording = "{name} {new!r} where another has {old!r}"
        changes = describe_changes(first, record, wording, ignore=_SHARD_KEYS - {"input"})
        number, of = map(int, record["shard"].split("/"))
        others = int(first["shard"].split("/")[1])
        if of != others:
            changes.append(f"is one of {of} shards where another is one of {others}")
        if changes:
            raise InputError(f"{path} does not belong to the others: {'; '.join(changes)}")
        if number in found:
            raise InputError(f"{found[number][0]} and {path} are both shard {number}/{of}")
        found[number] = path, record
    missing = [n for n in range(1, of + 1) if n not in found]
    if missing or not found:
        numbers = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        what = f"shards {numbers} of {of} are missing" if found else "no finished shard was given"
        begun = next((path for path in paths if path.name.endswith(".partial")), None)
        more = f" ({begun} is unfinished)" if begun else ""
        raise InputError(f"{what}{more}; run their commands again, then merge")
    return dict(found[n] for n in sorted(found))


def read_shard_record(path: Path) -> Record:
    """Read what a shard says of itself; an error says why it does not."""
    record_path = shard_record_path(path)
    if record_path.exists():
        (record,) = read_records(record_path) or [{}]
        if not record.keys() >= _SHARD_KEYS:
            raise damage_error(record_path)
        return record
    unfinished = partial_folder(path)
    if unfinished.exists():
        why = f"is incomplete: {unfinished} is unfinished; run its command again"
    elif not path.exists():
        why = "does not exist; run the command of this shard first"
    else:
        why = (
            f"has no {record_path.name} beside it, so it is no output of mx-align --shard i/n; "
            "leave it out or make it again"
        )
    raise InputError(f"{path} {why}")


def copy_shard(path: Path, record: Record, out: BinaryIO) -> int:
    """Append a shard, which must be what its record says, and return its number of lines."""
    digest, size, lines = hashlib.sha256(), 0, 0
    try:
        with open(path, "rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
                size += len(data)
                lines += data.count(b"\n")
                out.write(data)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; run its command again") from None
    if size != record["bytes"] or digest.hexdigest() != record["sha256"]:
        raise InputError(
            f"{path} has changed since it was written ({size:,} bytes, {record['bytes']:,} then); "
            "make it again with --restart"
        )
    if packing_of(path):
        return int(record["pairs"])
    if lines % max(record["pairs"], 1):  # formats have one line for each pair, A3 three
        raise InputError(f"{path} has {lines:,} lines for {record['pairs']:,} pairs")
    return lines

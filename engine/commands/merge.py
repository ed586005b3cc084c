"""mx-merge: the finished shards of a corpus to one file, if they are all there and intact.
Knows records, digests and order; how shards are made is the matter of `journal` and `shards`."""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click

from ..errors import InputError, MxError
from ..version import __version__

_MANIFEST = "manifest.json"
# Kept in the record of a shard and different in each of them.
_OWN = {"shard", "first_line", "pairs", "bytes", "sha256"}


@dataclass(frozen=True)
class Piece:
    """A finished file of lines: where it is, what it must hold."""

    path: Path
    first_line: int
    pairs: int
    size: int
    sha256: str


@click.command(context_settings={"max_content_width": 96})
@click.argument("shards", nargs=-1, required=True)
@click.option("-o", "--output", metavar="OUT", required=True, help="The file to write.")
@click.option("--quiet", is_flag=True, help="No summary on stderr.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mx-merge")
def main(shards: tuple[str, ...], output: str, quiet: bool, debug: bool) -> None:
    """Join SHARDS, the outputs of `mx-align --shard i/n` in any order, or the folder that
    `mx-align --ray` wrote, into OUT. Every shard must be there, complete, made by the same model
    with the same options, and have the bytes that were written. OUT appears only if all is well.

    \b
    Examples:
      mx-merge links.* -o links
      mx-merge links.shards -o links
    """
    try:
        pieces = gather([Path(name) for name in shards], Path(output))
        pairs, lines = join(pieces, Path(output))
        if not quiet:
            click.echo(
                f"mx-merge: {len(pieces):,} shards, {pairs:,} pairs, {lines:,} lines in {output}",
                err=True,
            )
    except MxError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"mx-merge: {error}", err=True)
        sys.exit(2)


# ---- what belongs together ----


def gather(paths: Sequence[Path], out: Path) -> list[Piece]:
    """The shards in the order of their lines; an error if they are not a whole."""
    if len(paths) == 1 and paths[0].is_dir() and not paths[0].name.endswith(".partial"):
        pieces = _folder(paths[0])
    else:
        pieces = _array(paths, out)
    suffixes = {_packing(path) for path in [out, *(piece.path for piece in pieces)]}
    if len(suffixes) > 1:
        raise MxError(
            f"{out} and its shards must all be plain, all .gz or all .zst, "
            f"but there are {' and '.join(sorted(s or 'plain ones' for s in suffixes))}"
        )
    return pieces


def _packing(path: Path) -> str:
    return path.suffix if path.suffix in (".gz", ".zst") else ""


def _folder(folder: Path) -> list[Piece]:
    """The shards of a folder, as its manifest has them."""
    path = folder / _MANIFEST
    if not path.exists():
        raise InputError(
            f"{folder} has no {_MANIFEST}: the run that writes it is not finished; "
            "run its command again"
        )
    manifest = _read(path)
    if manifest.get("format") == "parquet":
        raise InputError(f"{folder} has Parquet files, which readers take as one; nothing to merge")
    pieces = [
        Piece(folder / shard["file"], shard["first_line"], shard["pairs"], shard["bytes"],
              shard["sha256"])
        for shard in manifest["shards"]
    ]  # fmt: skip
    _follow(pieces)
    return pieces


def _array(paths: Sequence[Path], out: Path) -> list[Piece]:
    """The shards of an array, as their records have them."""
    found: dict[int, Piece] = {}
    first: dict[str, Any] = {}
    for path in paths:
        # What a shell finds besides with links.*; an earlier result is no shard of itself.
        if path.name.endswith((".partial", ".shard.json")) or path == out:
            continue
        record = _record(path)
        first = first or record
        _compare(first, record, path)
        number, of = map(int, record["shard"].split("/"))
        if number in found:
            raise InputError(f"{found[number].path} and {path} are both shard {number}/{of}")
        found[number] = Piece(
            path, record["first_line"], record["pairs"], record["bytes"], record["sha256"]
        )
    of = int(first["shard"].split("/")[1]) if first else 0
    absent = [n for n in range(1, of + 1) if n not in found]
    begun = [path for path in paths if path.name.endswith(".partial")]
    if absent or not found:
        names = ", ".join(map(str, absent[:10])) + (", …" if len(absent) > 10 else "")
        what = f"shards {names} of {of} are missing" if found else "no finished shard was given"
        more = f" ({begun[0]} is unfinished)" if begun else ""
        raise InputError(f"{what}{more}; run their commands again, then merge")
    pieces = [found[n] for n in sorted(found)]
    _follow(pieces)
    return pieces


def _record(path: Path) -> dict[str, Any]:
    from ..jobs.journal import folder_of, record_of

    if record_of(path).exists():
        if not path.exists():
            raise InputError(f"{path} does not exist, though {record_of(path)} does")
        return _read(record_of(path))
    if folder_of(path).exists():
        raise InputError(
            f"{path} is incomplete: {folder_of(path)} is unfinished; run its command again"
        )
    if not path.exists():
        raise InputError(f"{path} does not exist; run the command of this shard first")
    raise InputError(
        f"{path} has no {record_of(path).name} beside it, so it is no output of "
        "mx-align --shard i/n; leave it out or make it again"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if not isinstance(record, dict) or "mx-align" not in record:
        raise InputError(f"{path} is not what mx-align writes beside a shard")
    return record


def _compare(first: dict[str, Any], record: dict[str, Any], path: Path) -> None:
    """All shards must be parts of the same work."""
    changed = [
        f"{key} {record.get(key)!r} where another has {first.get(key)!r}"
        for key in sorted(set(first) | set(record))
        if key not in _OWN and first.get(key) != record.get(key)
    ]
    of, others = record["shard"].split("/")[1], first["shard"].split("/")[1]
    if of != others:
        changed.append(f"is one of {of} shards where another is one of {others}")
    if changed:
        raise InputError(f"{path} does not belong to the others: {'; '.join(changed)}")


def _follow(pieces: Sequence[Piece]) -> None:
    """Each shard must begin where the one before it ended."""
    line = 1
    for piece in pieces:
        if piece.first_line != line:
            raise InputError(
                f"{piece.path} begins at line {piece.first_line:,} but the shards before it end "
                f"at line {line - 1:,}: the corpus has changed in between; make the shards again"
            )
        line += piece.pairs


# ---- one file ----


def join(pieces: Sequence[Piece], out: Path) -> tuple[int, int]:
    """Write the shards one after the other; gives the numbers of pairs and lines."""
    from ..text.files import atomic_write

    lines = 0
    with atomic_write(out) as file:
        for piece in pieces:
            lines += _copy(piece, file)
    return sum(piece.pairs for piece in pieces), lines


def _copy(piece: Piece, out: BinaryIO) -> int:
    """Append a shard, which must be what its record says; gives its lines if it is plain text,
    else its pairs."""
    digest, size, lines = hashlib.sha256(), 0, 0
    try:
        with open(piece.path, "rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
                size += len(data)
                lines += data.count(b"\n")
                out.write(data)
    except FileNotFoundError:
        raise InputError(f"{piece.path} does not exist; run its command again") from None
    if size != piece.size or digest.hexdigest() != piece.sha256:
        raise InputError(
            f"{piece.path} has changed since it was written ({size:,} bytes, {piece.size:,} "
            "then); make it again with --restart"
        )
    plain = not _packing(piece.path)
    if plain and lines % max(piece.pairs, 1):  # formats have one line for each pair, A3 three
        raise InputError(f"{piece.path} has {lines:,} lines for {piece.pairs:,} pairs")
    return lines if plain else piece.pairs


if __name__ == "__main__":
    main(prog_name="mx-merge")

"""Write files so that a crash leaves the old or the new one, hash them, lock them.

Does not know what is in a file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from .errors import MxError

# What a write can meet that is the disk's doing and not a bug.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS}

# ---- writing ----


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears at `path`, complete, when the block ends without an error.

    Until then, and after an error, whatever was at `path` stays as it is.
    """
    target = Path(os.path.realpath(path))  # write through a link instead of replacing it
    temp = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with name_disk_errors(path):
        try:
            with open_to_write(temp, "xb", shown_as=path) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            try:
                os.replace(temp, target)
            except OSError as error:
                raise write_error(path, error) from None
            sync_folder(target.parent)
        finally:
            temp.unlink(missing_ok=True)


def replace_file(path: str | Path, data: bytes) -> None:
    """Write a whole file; whatever was at `path` stays until the new one is complete."""
    with atomic_write(path) as file:
        file.write(data)


def sync_folder(folder: Path) -> None:
    """Make renames inside the folder survive a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_to_write(path: str | Path, mode: str, *, shown_as: str | Path) -> BinaryIO:
    """Open a binary file; an MxError about the file `shown_as` if that fails."""
    try:
        return cast(BinaryIO, open(path, mode))
    except OSError as error:
        raise write_error(shown_as, error) from None


@contextmanager
def name_disk_errors(path: str | Path) -> Iterator[None]:
    """Turn a full or broken disk inside the block into an MxError that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise write_error(path, error) from None
        raise  # a closed pipe, or an error of the caller's own


def write_error(
    path: str | Path, error: OSError, full: str = "free some space or choose another disk"
) -> MxError:
    """Return an error that says why a file cannot be written, and what to do if a disk is full."""
    name = "standard output" if str(path) == "-" else str(path)
    why = error.strerror or str(error)
    if error.errno == errno.ENOENT:
        why = "its folder does not exist; create it first"
    elif error.errno == errno.ENOSPC:
        why += f"; {full}"
    return MxError(f"cannot write {name}: {why}")


# ---- hashing ----


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of all bytes of a file, in hexadecimal digits."""
    return str(hash_file(path, hashlib.sha256()).hexdigest())


def hash_file(path: str | Path, digest: Any) -> Any:
    """Add all bytes of a file to one of hashlib's digests, and return that.

    Takes about a second for each gigabyte.
    """
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest


# ---- locks ----


@contextmanager
def hold_lock(path: Path, busy: str) -> Iterator[None]:
    """Keep other processes out while the block runs; raise MxError(busy) if one is inside.

    `{holder}` in `busy` becomes the process that holds the lock. The system ends a lock with its
    process, so a killed one leaves none, only the file.
    """
    with open(path, "a+", encoding="utf-8") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise MxError(busy.replace("{holder}", holder)) from None
        except (ImportError, OSError):
            pass  # systems and network disks without locks: the user must take care
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)  # the file stays, and folders must not differ by who made them

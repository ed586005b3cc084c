"""Write files so that a crash leaves the old or the new one, hash them, lock them.

The one place for what is unfinished: names that only we make, locked while their process lives and
swept by the next one. Does not know what is in a file.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from .errors import MxError

# What a write can meet that is the disk's doing and not a bug.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS}
# The names of unfinished files: that of the target, a process, a random number.
_UNFINISHED = re.compile(r"\.(?P<target>.+)\.\d+\.[0-9a-f]{8}\.tmp")
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux

# ---- writing ----


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears at `path`, complete, when the block ends without an error.

    Until then, and after an error, whatever was at `path` stays as it is. Mode and owner of a file
    that is replaced are kept.
    """
    target = Path(os.path.realpath(path))  # write through a link instead of replacing it
    with name_disk_errors(path):
        sweep_leftovers(target.parent, target.name)
        try:
            temp, handle = _make_unfinished(target, _create_file)
        except OSError as error:
            raise write_error(path, error) from None
        lock = os.dup(handle)  # shares the lock with the file, until after the rename
        try:
            with open(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            keep_mode(target, temp)
            try:
                os.replace(temp, target)
            except OSError as error:
                raise write_error(path, error) from None
            sync_folder(target.parent)
        finally:
            os.close(lock)
            temp.unlink(missing_ok=True)


@contextmanager
def replace_path(path: str | Path) -> Iterator[Path]:
    """Yield a name where a file or a folder can be made, which then appears at `path` as a whole.

    What was at `path` is exchanged for it in one step, where the system can, and then deleted.
    """
    target = Path(os.path.abspath(path))
    sweep_leftovers(target.parent, target.name)
    if os.path.lexists(aside := _aside_name(target)) and not os.path.lexists(target):
        os.rename(aside, target)  # killed between the two steps of systems without exchange
    temp, lock = _make_unfinished(target, _create_folder)
    try:
        made = temp / target.name
        yield made
        _sync_tree(made)
        _exchange(made, target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(temp, ignore_errors=True)
        os.close(lock)


def sweep_leftovers(folder: Path, target: str | None = None) -> None:
    """Delete what killed processes left unfinished in a folder, of one target or of all.

    Only names that we make, of this user, which no living process holds.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        found = _UNFINISHED.fullmatch(name)
        if found and target in (None, found["target"]):
            _delete_abandoned(folder / name)


def keep_mode(old: Path, new: Path) -> None:
    """Give `new` the mode and, if allowed, the owner of `old`, a file that it is to replace."""
    try:
        info = os.lstat(old)
    except OSError:
        return
    if not stat.S_ISREG(info.st_mode):
        return
    now = os.lstat(new)
    if hasattr(os, "chown") and (now.st_uid, now.st_gid) != (info.st_uid, info.st_gid):
        with suppress(OSError):
            os.chown(new, info.st_uid, info.st_gid)
    os.chmod(new, stat.S_IMODE(info.st_mode))


def make_cache_folder(folder: Path) -> None:
    """Make a folder of our own in the user's cache; nobody else may look into it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = folder.stat()
    if hasattr(os, "geteuid") and info.st_uid == os.geteuid() and info.st_mode & 0o077:
        folder.chmod(0o700)


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


def check_target(path: str | Path) -> None:
    """Raise MxError if a file cannot be written at a path, as far as that can be known before."""
    real = os.path.realpath(path)
    folder = os.path.dirname(real)
    if os.path.isdir(real):
        raise MxError(f"{path} is a folder; give the name of a file")
    if not os.path.isdir(folder):
        raise MxError(f"cannot write {path}: its folder does not exist; create it first")
    if os.path.exists(real) and not os.path.isfile(real):
        return  # a device or a pipe
    # A file is replaced by a new one: both its folder and itself must be allowed.
    for name in (folder, real):
        if os.path.exists(name) and not os.access(name, os.W_OK):
            raise MxError(
                f"cannot write {path}: {name} may not be written to by this user; "
                "choose another place, or change its permissions"
            )


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


def hash_files(paths: Iterable[str | Path]) -> str:
    """Return one digest of all bytes of several files, in hexadecimal digits."""
    each = [hash_file(path, hashlib.blake2b(digest_size=16)).digest() for path in paths]
    return hashlib.blake2b(b"".join(each), digest_size=16).hexdigest()


# ---- locks ----


@contextmanager
def wait_for_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Run the block while no other process does; calls `on_wait` first if one is inside.

    The system ends a lock with its process. Systems and network disks without locks have none.
    """
    with open(path, "a+", encoding="utf-8") as file:
        try:
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
        except (ImportError, OSError):
            pass
        yield


@contextmanager
def hold_lock(path: Path, busy: str) -> Iterator[None]:
    """Keep other processes out while the block runs; raise MxError(busy) if one is inside.

    `{holder}` in `busy` becomes the process that holds the lock. The system ends a lock with its
    process, so a killed one leaves none, only the file.
    """
    with open(open_own_file(path), "r+", encoding="utf-8", errors="replace") as file:
        if not re.fullmatch(r"(process \d+ on .*)?", file.read(300)):
            raise MxError(f"{path} is in the way: it is no lock of ours; move it away")
        if not _take_lock(file.fileno()):
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise MxError(busy.replace("{holder}", holder))
        file.seek(0)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.seek(0)
            file.truncate(0)  # the file stays, and folders must not differ by who made them


# ---- files of our own ----


def open_own_file(path: Path, flags: int = 0) -> int:
    """Open a file of ours to read and write, or make it; refuse links and files of others.

    In a folder that others may write to, a link could lead the writing anywhere.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS | flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise MxError(f"{path} is a link, which unfinished output must not be") from None
        raise
    info = os.fstat(handle)
    if stat.S_ISREG(info.st_mode) and info.st_nlink == 1 and is_own(info, path.parent):
        return handle
    os.close(handle)
    raise MxError(f"{path} is in the way: it is no file of this user's alone; move it away")


def is_own(info: os.stat_result, folder: Path) -> bool:
    """Tell whether something in a folder belongs to this user.

    Some network disks give files an owner of their own, so that of a new file counts as well.
    """
    if not hasattr(os, "geteuid") or info.st_uid == os.geteuid():
        return True
    try:
        temp, handle = _make_unfinished(folder / "owner", _create_file)
    except OSError:
        return False
    try:
        return os.fstat(handle).st_uid == info.st_uid
    finally:
        os.close(handle)
        temp.unlink(missing_ok=True)


def _make_unfinished(target: Path, create: Callable[[Path], int]) -> tuple[Path, int]:
    """Make an unfinished file or folder beside its target; return its path and a locked handle."""
    while True:
        unique = f"{os.getpid()}.{secrets.token_hex(4)}"
        temp = target.with_name(f".{target.name}.{unique}.tmp")
        handle = create(temp)
        # Between these two steps somebody who sweeps may have locked and deleted it.
        if _take_lock(handle) and os.path.lexists(temp):
            return temp, handle
        os.close(handle)


def _create_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o666)


def _create_folder(path: Path) -> int:
    os.mkdir(path, 0o700)
    return os.open(path, os.O_RDONLY | _NO_LINKS)


def _take_lock(handle: int) -> bool:
    """Lock an open file or folder; False if another process holds it."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass  # systems and network disks without locks: the user must take care
    return True


def _delete_abandoned(path: Path) -> None:
    """Delete an unfinished file or folder whose process is gone, if it is this user's."""
    try:
        import fcntl

        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _NO_LINKS)
    except (ImportError, OSError):
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # where there are no locks: nothing
        info = os.fstat(handle)
        if info.st_uid != os.geteuid():
            return
        if stat.S_ISDIR(info.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(info.st_mode):
            path.unlink()
    except OSError:
        pass
    finally:
        os.close(handle)


def _sync_tree(path: Path) -> None:
    """Wait until a file, or all of a folder, is on the disk."""
    for inner in path.iterdir() if path.is_dir() else ():
        _sync_tree(inner)
    if path.is_dir():
        sync_folder(path)
        return
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _exchange(made: Path, target: Path) -> None:
    """Move to the target; what is there goes where the new one was."""
    if not os.path.lexists(target):
        os.rename(made, target)
        return
    keep_mode(target, made)
    rename = _find_renameat2()
    if rename is not None:
        names = os.fsencode(made), os.fsencode(target)
        if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
    # Other systems, and disks that cannot: the old one steps aside and returns if that fails.
    aside = _aside_name(target)
    os.rename(target, aside)
    try:
        os.rename(made, target)
    except OSError:
        os.rename(aside, target)
        raise
    os.rename(aside, made)


def _aside_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


@functools.cache
def _find_renameat2() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    import ctypes

    return getattr(ctypes.CDLL(None), "renameat2", None)

"""Writes a bundle as a folder or a zip file, whole or not at all.

Does not make graphs or measure anything: it is given the content of all files.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import BundleError, MxError
from ..storage import replace_path
from .bundle import Bundle
from .manifest import MANIFEST, FileEntry, Manifest, parse_manifest


def write_bundle(
    path: str | Path, manifest: Manifest, files: Mapping[str, bytes], *, force: bool = False
) -> Bundle:
    """Write a folder, or a zip file if `path` ends in `.zip`, that appears whole or not at all.

    `manifest.files` is filled in from `files`. With `force`, a bundle already there is replaced;
    anything else at `path` stays, with an error.
    """
    path = Path(path)
    check_writable(path, force)
    listed = {name: FileEntry(len(d), hashlib.sha256(d).hexdigest()) for name, d in files.items()}
    manifest = replace(manifest, files=listed)
    content = {MANIFEST: manifest.to_json(), **files}
    parse_manifest(content[MANIFEST], str(path))  # never write what could not be read again
    try:
        with replace_path(path) as made:
            if path.suffix == ".zip":
                _write_zip(made, content)
            else:
                _write_folder(made, content)
    except OSError as error:
        raise MxError(f"cannot write {path}: {error.strerror or error}") from error
    return Bundle.load(path)


def check_writable(path: Path, force: bool) -> None:
    """Raise an error if a bundle cannot be written at `path`, or would replace something else."""
    if not path.parent.is_dir():
        raise MxError(f"cannot write {path}: its folder does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise MxError(f"cannot write {path}: {path.parent} may not be written to by this user")
    if not os.path.lexists(path):
        return
    if not force:
        raise MxError(f"{path} exists already; give another name, or --force to replace it")
    if path.is_dir() and ((path / MANIFEST).is_file() or not any(path.iterdir())):
        return
    try:
        Bundle.load(path)
    except BundleError:
        raise MxError(
            f"{path} exists and is not a bundle, so --force does not replace it; remove it"
        ) from None


def _write_folder(temp: Path, content: Mapping[str, bytes]) -> None:
    temp.mkdir()
    for name, data in content.items():
        (temp / name).write_bytes(data)


def _write_zip(temp: Path, content: Mapping[str, bytes]) -> None:
    # Uncompressed, because weights hardly shrink; no times, so equal content is equal bytes.
    with zipfile.ZipFile(temp, "x", zipfile.ZIP_STORED) as archive:
        for name, data in content.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)

"""Launch the compiled kernels of a bundle: find those that fit a GPU, load them, start them.

Reads the archives that `mx-export` writes. Does not need triton; memory and streams are the
caller's.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from ....bundle.bundle import Bundle
from ....errors import BackendError, BundleError
from ..cuda_driver import Driver

INDEX = "index.json"
_MAX_FILE = 1 << 24  # bytes of a kernel, far more than any has
_ARGUMENT_TYPES = ("i32", "fp32", "*i32", "*fp32", "*fp16", "*bf16")


@dataclass(frozen=True)
class KernelEntry:
    """A compiled kernel: how it is named, and what a launch must give it."""

    kernel: str
    dtype: str
    name: str  # of its files
    entry: str  # the function inside
    arguments: tuple[str, ...]  # a type for each: "i32", "fp32", or a pointer like "*fp16"
    constants: Mapping[str, int]
    threads: int
    shared: int  # bytes
    aligned: bool  # strides are multiples of 16, pointers of 16 bytes


class KernelArchive:
    """The kernels of one architecture, not yet on a GPU; BundleError if `data` is damaged."""

    def __init__(self, data: bytes, where: str) -> None:
        self.entries: dict[tuple[str, str], KernelEntry] = {}  # by kernel and dtype
        self.digest = hashlib.sha256(data).hexdigest()
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as file:
                if any(info.file_size > _MAX_FILE for info in file.infolist()):
                    raise BundleError(f"{where} holds a file too large to be a kernel")
                self._files = {name: file.read(name) for name in file.namelist()}
            for row in json.loads(self._files[INDEX]):
                if set(row) != {field.name for field in fields(KernelEntry)}:
                    raise ValueError("unknown form")
                entry = KernelEntry(**{**row, "arguments": tuple(row["arguments"])})
                if not all(kind in _ARGUMENT_TYPES for kind in entry.arguments):
                    raise ValueError("unknown argument")
                self.entries[entry.kernel, entry.dtype] = entry
        except (zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
            raise BundleError(f"{where} is damaged ({error}); make the bundle again") from None

    def cubin(self, entry: KernelEntry) -> bytes:
        return self._files[f"{entry.name}.cubin"]

    def ptx(self, entry: KernelEntry) -> bytes:
        return self._files[f"{entry.name}.ptx"]


def archive_name(architecture: str) -> str:
    """Name the file of a bundle with the kernels for an architecture such as sm_80."""
    return f"kernels.{architecture}.zip"


def choose_architecture(capability: tuple[int, int], names: Sequence[str]) -> str | None:
    """Return the best of these architectures for a GPU: its own, else the newest before it.

    From 9.0 on ours use what is particular to one GPU, so that code is for the very same alone. A
    cubin serves later GPUs of its generation, and its PTX, which the driver translates, all later
    ones.
    """
    mine = 10 * capability[0] + capability[1]
    numbers = [int(name.removeprefix("sm_")) for name in names]
    fit = [number for number in numbers if number == mine or number < min(mine, 90)]
    return f"sm_{max(fit)}" if fit else None


def find_archive(bundle: Bundle, capability: tuple[int, int]) -> KernelArchive | None:
    """Read the bundle's kernels for a GPU of this compute capability, if it has any."""
    names = [name.split(".")[1] for name in bundle.manifest.files if name.startswith("kernels.sm_")]
    name = choose_architecture(capability, names)
    if name is None:
        return None
    file = archive_name(name)
    return KernelArchive(bundle.read_file(file), f"{bundle.path}: {file}")


class Kernel:
    """A kernel loaded into the current context."""

    def __init__(self, driver: Driver, archive: KernelArchive, entry: KernelEntry) -> None:
        self.entry = entry
        self._driver = driver
        try:
            self._module = driver.load_module(archive.cubin(entry))
        except BackendError:
            # A driver older than the cubin's assembler can still translate the PTX; and the cubin
            # may be for an older generation of GPUs.
            self._module = driver.load_module(archive.ptx(entry) + b"\0")
        try:
            self._function = driver.get_function(self._module, entry.entry, entry.shared)
        except BaseException:
            self.close()
            raise

    def launch(self, grid: Sequence[int], arguments: Sequence[int | float], stream: int) -> None:
        """Start the kernel; `grid` has up to three sizes, of which none may be 0."""
        entry = self.entry
        if len(arguments) != len(entry.arguments):
            raise TypeError(f"{entry.kernel} takes {len(entry.arguments)} arguments")
        if entry.aligned:
            pointers = zip(entry.arguments, arguments, strict=True)
            if any(kind[0] == "*" and int(value) % 16 for kind, value in pointers):
                raise ValueError(f"{entry.kernel} needs pointers that are multiples of 16 bytes")
        sizes = (*grid, 1, 1)[:3]
        self._driver.launch(
            self._function, sizes, entry.threads, entry.shared, stream, entry.arguments, arguments
        )

    def close(self) -> None:
        self._driver.unload_module(self._module)

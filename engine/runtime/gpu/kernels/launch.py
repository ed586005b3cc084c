"""Launch compiled kernels: find those that fit a GPU, load them, start them.

They come with the package, in `compiled/`. Bundles have none: they are data, and native code in
one would have to be trusted. Does not need triton; memory and streams are the caller's.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from ....errors import BackendError
from ..cuda_driver import Driver

INDEX = "index.json"
SHIPPED = Path(__file__).parent / "compiled"
_MAX_FILE = 1 << 24  # bytes of a kernel, far more than any has
_ARGUMENT_TYPES = ("i32", "fp32", "*i32", "*fp32", "*fp16", "*bf16")


@dataclass(frozen=True)
class KernelEntry:
    """A compiled kernel: how it is named, and what a launch must give it."""

    kernel: str
    dtype: str
    name: str  # of its files
    entry: str  # the function inside; its name ends with a digest of the code
    arguments: tuple[str, ...]  # a type for each: "i32", "fp32", or a pointer like "*fp16"
    constants: Mapping[str, int]
    threads: int
    shared: int  # bytes
    aligned: bool  # pointers are multiples of 16 bytes


class KernelArchive:
    """The kernels of one architecture, not yet on a GPU; BackendError if `data` is damaged."""

    def __init__(self, data: bytes, where: str) -> None:
        self.entries: dict[str, KernelEntry] = {}
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as file:
                if any(info.file_size > _MAX_FILE for info in file.infolist()):
                    raise ValueError("a file too large to be a kernel")
                self._files = {name: file.read(name) for name in file.namelist()}
            for row in json.loads(self._files[INDEX]):
                if set(row) != {field.name for field in fields(KernelEntry)}:
                    raise ValueError("unknown form")
                entry = KernelEntry(**{**row, "arguments": tuple(row["arguments"])})
                if not all(kind in _ARGUMENT_TYPES for kind in entry.arguments):
                    raise ValueError("unknown argument")
                self.entries[entry.kernel] = entry
        except (zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
            raise BackendError(
                f"kernels: {where} is damaged ({error}); "
                "pip install --force-reinstall --no-deps mx-align"
            ) from None

    def cubin(self, entry: KernelEntry) -> bytes:
        return self._files[f"{entry.name}.cubin"]

    def ptx(self, entry: KernelEntry) -> bytes:
        return self._files[f"{entry.name}.ptx"]


def archive_name(architecture: str) -> str:
    """Name the file of a bundle with the kernels for an architecture such as sm_80."""
    return f"kernels.{architecture}.zip"


def choose_architecture(capability: tuple[int, int], names: Sequence[str]) -> str | None:
    """Return the best of these archives for a GPU: of its own architecture, else of the newest one
    before it.

    From 9.0 on ours use what is particular to one GPU, so that code is for the very same alone. A
    cubin serves later GPUs of its generation, and its PTX, which the driver translates, all later
    ones.
    """
    mine = 10 * capability[0] + capability[1]
    numbers = {int(name.split(".")[1].removeprefix("sm_")): name for name in names}
    fit = [number for number in numbers if number == mine or number < min(mine, 90)]
    return numbers[max(fit)] if fit else None


def find_archive(capability: tuple[int, int]) -> KernelArchive | None:
    """Read the package's kernels for a GPU of this compute capability, if there are any."""
    name = choose_architecture(capability, [file.name for file in SHIPPED.glob("*.zip")])
    return None if name is None else KernelArchive((SHIPPED / name).read_bytes(), name)


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

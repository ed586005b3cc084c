"""Results on disk: one JSON file per benchmark, to which runs are added one at a time.
Knows dates, hardware and versions; what a run contains is up to each benchmark."""

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..engine.text.files import atomic_write

RESULTS = Path(__file__).parent / "results"


def load(path: Path) -> dict[str, Any]:
    """The runs kept in a file by name; none if there is no such file yet."""
    return dict(json.loads(path.read_text("utf-8"))["runs"]) if path.exists() else {}


def add(path: Path, name: str, run: dict[str, Any]) -> None:
    """Put a run into the file, in place of an older one of that name; all others stay."""
    runs = {**load(path), name: run}
    data = {"benchmark": path.stem, "runs": dict(sorted(runs.items()))}
    with atomic_write(path) as file:
        file.write(json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n")


def circumstances(packages: Iterable[str] = ()) -> dict[str, Any]:
    """When and on what something was measured."""
    return {
        "date": date.today().isoformat(),
        "hardware": hardware(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {"python": platform.python_version(), **dict(map(installed, packages))},
    }


def hardware() -> str:
    """Processor and cores, such as `AMD EPYC, 2 cores`."""
    name = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").split("\n"):
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"


def installed(package: str) -> tuple[str, str]:
    try:
        return package, version(package)
    except PackageNotFoundError:
        return package, "missing"


def digest(paths: Iterable[Path]) -> str:
    """The first 16 digits of the SHA-256 of some files' bytes, one after another."""
    found = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    return found.hexdigest()[:16]

"""Keeps results on disk: one JSON file per benchmark, to which runs are added one at a time.

Knows dates, hardware and versions; what a run contains is up to each benchmark.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..engine.storage import atomic_write, hash_file

RESULTS = Path(__file__).parent / "results"


def load_runs(path: Path) -> dict[str, Any]:
    """Return the runs kept in a file by name; none if there is no such file yet."""
    return dict(json.loads(path.read_text("utf-8"))["runs"]) if path.exists() else {}


def add_run(path: Path, name: str, run: dict[str, Any]) -> None:
    """Put a run into the file, in place of an older one of that name; all others stay."""
    runs = {**load_runs(path), name: run}
    data = {"benchmark": path.stem, "runs": dict(sorted(runs.items()))}
    with atomic_write(path) as file:
        file.write(json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n")


def describe_circumstances(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Return when and on what something was measured."""
    return {
        "date": date.today().isoformat(),
        "hardware": describe_hardware(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {"python": platform.python_version(), **dict(map(package_version, packages))},
    }


def describe_hardware() -> str:
    """Name processor and cores, such as `AMD EPYC, 2 cores`."""
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


def package_version(package: str) -> tuple[str, str]:
    """Return a package with its version, or `missing`."""
    try:
        return package, version(package)
    except PackageNotFoundError:
        return package, "missing"


def hash_files(paths: Iterable[Path]) -> str:
    """Return 16 digits of the SHA-256 of the bytes of some files, one after another."""
    found = hashlib.sha256()
    for path in paths:
        hash_file(path, found)
    return found.hexdigest()[:16]

"""Imports test files as `mx_align.tests...`, and holds the fixtures that several of them share.

Tests reach what they test by relative imports, which editors follow without settings. pytest by
itself would import a file under a name made from the folders around it, here that of the clone.
"""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path
from types import ModuleType

import pytest

from .fixtures import *  # noqa: F403

ROOT = Path(__file__).parents[2]

# Some virtual machines announce AMX and end a program that uses it, as bfloat16 products would.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


class PackageModule(pytest.Module):
    """A test file that is imported as a module of the package."""

    def _getobj(self) -> ModuleType:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return importlib.import_module(".".join(("mx_align", *parts)))


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return PackageModule.from_parent(parent, path=module_path)


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector:
    """Take no folder for a package of its own name, not even the root with its `__init__.py`."""
    return pytest.Dir.from_parent(parent, path=path)


def pytest_configure() -> None:
    """Let commands that tests start heed Ctrl-C, also where a background job ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

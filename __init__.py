"""mx-align: word alignment, from raw parallel text to links.

This checkout is the package `mx_align`: `engine/` aligns, `trainer/` learns, `export/` turns what
was learned into a bundle. Importing the package loads nothing heavy.
"""

import os
from typing import TYPE_CHECKING, Any

from .engine.errors import MxError
from .engine.version import __version__

# ONNX Runtime 1.29 and later notes a device id and events in the user's cache unless it finds
# these when it is loaded. Every module of ours, in every process, comes through here before that.
for _name in ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED"):
    os.environ[_name] = "1"

if TYPE_CHECKING:
    from .engine.aligner import Aligner
    from .engine.alignment import Alignment, SoftAlignment
    from .engine.statistical.aligner import StatisticalAligner

__all__ = [
    "Aligner",
    "Alignment",
    "MxError",
    "SoftAlignment",
    "StatisticalAligner",
    "__version__",
]

_MODULES = {
    "Aligner": "aligner",
    "Alignment": "alignment",
    "SoftAlignment": "alignment",
    "StatisticalAligner": "statistical.aligner",
}


def __getattr__(name: str) -> Any:
    """Import a class when it is first asked for: aligners need NumPy and a runtime."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".engine.{_MODULES[name]}", __name__), name)

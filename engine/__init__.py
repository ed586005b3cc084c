"""mx.engine: word alignment without PyTorch. Importing this package loads nothing heavy."""

from typing import TYPE_CHECKING, Any

from mx.engine.errors import MxError

if TYPE_CHECKING:
    from mx.engine.aligner import Aligner, Alignment, Soft

__version__ = "0.1.0"
__all__ = ["Aligner", "Alignment", "MxError", "Soft", "__version__"]


def __getattr__(name: str) -> Any:
    """The aligner is loaded when it is first asked for: it needs NumPy and a runtime."""
    if name in ("Aligner", "Alignment", "Soft"):
        from mx.engine import aligner

        return getattr(aligner, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

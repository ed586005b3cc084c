"""mx.engine: word alignment without PyTorch. Importing this package loads nothing heavy."""

from mx.engine.errors import MxError

__version__ = "0.1.0"
__all__ = ["MxError", "__version__"]

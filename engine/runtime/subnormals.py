"""Treat numbers below 1e-38 as zeros: a CPU takes a hundred times as long for them as for others.

Sharp attention is full of them. Whether they count belongs to the thread, and so to whoever calls
us: it is changed around a piece of work, never for good. Does nothing on other systems than Linux
on x86-64.
"""

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ENVIRONMENT = ctypes.c_uint32 * 8  # C's fenv_t on Linux for x86-64; its last word is MXCSR
_FLUSH = 0x8040  # bits of MXCSR: results (FTZ) and operands (DAZ) become zero

_get_environment = _set_environment = None
if sys.platform == "linux" and platform.machine() == "x86_64":
    _library = ctypes.CDLL(None)
    _get_environment = getattr(_library, "fegetenv", None)
    _set_environment = getattr(_library, "fesetenv", None)


@contextmanager
def flush_subnormals() -> Iterator[None]:
    """In this thread take numbers below 1e-38 for zeros until the block ends."""
    if _get_environment is None or _set_environment is None:
        yield
        return
    before = _ENVIRONMENT()
    _get_environment(before)
    changed = _ENVIRONMENT.from_buffer_copy(before)
    changed[-1] |= _FLUSH
    _set_environment(changed)
    try:
        yield
    finally:
        _set_environment(before)

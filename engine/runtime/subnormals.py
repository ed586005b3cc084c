"""Numbers below 1e-38, for which a CPU takes a hundred times as long as for others, as zeros.

Sharp attention is full of them. Whether they count belongs to the thread, and so to whoever calls
us: it is changed around a piece of work, never for good. Where it is not known how, nothing is.
"""

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ENVIRONMENT = ctypes.c_uint32 * 8  # C's fenv_t on Linux for x86-64; its last word is MXCSR
_FLUSH = 0x8040  # results and operands


def _functions() -> "tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer] | None":
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    library = ctypes.CDLL(None)
    try:
        return library.fegetenv, library.fesetenv
    except AttributeError:
        return None


_FUNCTIONS = _functions()


@contextmanager
def faded_as_zero() -> Iterator[None]:
    """In this thread numbers below 1e-38 are zero meanwhile."""
    if _FUNCTIONS is None:
        yield
        return
    get, put = _FUNCTIONS
    before = _ENVIRONMENT()
    get(before)
    changed = _ENVIRONMENT.from_buffer_copy(before)
    changed[-1] |= _FLUSH
    put(changed)
    try:
        yield
    finally:
        put(before)

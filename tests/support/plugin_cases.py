"""The attention kernels as a bundle would have them, not compiled: what they take comes from their
source."""

from collections.abc import Iterable

from ...engine.runtime.gpu.kernels.launch import Entry
from ...export.kernels import _signature, variants


def entries(head_width: int, heads: int = 4, dtypes: Iterable[str] = ("fp16",)) -> list[Entry]:
    found = []
    for variant in variants(heads, head_width, "sm_80", dtypes)[1:]:
        kinds = [kind for kind in _signature(variant).values() if kind != "constexpr"]
        found.append(
            Entry(variant.kernel, variant.dtype, variant.name, variant.kernel, tuple(kinds),
                  dict(variant.constants), 32 * variant.warps, 9216, True)
        )  # fmt: skip
    return found


def numbers(head_width: int, kernel: str) -> list[str]:
    """The names of a kernel's numbers, in order."""
    (variant,) = (v for v in variants(4, head_width, "sm_80") if v.kernel == kernel)
    return [name for name, kind in _signature(variant).items() if kind == "i32"]

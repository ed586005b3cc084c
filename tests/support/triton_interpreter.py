"""Run the kernels' source by Triton's interpreter, in a process of its own.

Whether triton interprets or compiles is settled when it is imported, and other tests need it to
compile.
"""

import os
from typing import Any

import numpy as np

TORCH_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def start_interpreting() -> None:
    """Make triton interpret; for the first moment of the process."""
    os.environ["TRITON_INTERPRET"] = "1"
    import torch

    torch.set_num_threads(1)


def _make_tensor(array: np.ndarray, dtype: str = "fp32") -> Any:
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.to(getattr(torch, TORCH_TYPES[dtype])) if tensor.is_floating_point() else tensor


def run_symmetrize(
    fwd: np.ndarray,
    bwd: np.ndarray,
    src_words: np.ndarray,
    tgt_words: np.ndarray,
    spans: np.ndarray,
    threshold: float,
    tile: tuple[int, int] = (8, 16),
    turned: bool = False,
    with_sentence: bool = True,
) -> dict[str, np.ndarray]:
    """Run the kernel; if `turned`, fwd is stored as the network leaves it, (B, T, S)."""
    import torch

    from ...engine.runtime.gpu.kernels.symmetrize import symmetrize

    batch, n_src, n_tgt = fwd.shape
    fwd, bwd = _make_tensor(fwd), _make_tensor(bwd)
    if turned:
        fwd = fwd.transpose(1, 2).contiguous().transpose(1, 2)
    src, tgt, spans = (_make_tensor(x.astype(np.int32)) for x in (src_words, tgt_words, spans))
    room = max(1, batch * n_src * n_tgt)
    total, counts, starts = (torch.zeros(n, dtype=torch.int32) for n in (1, batch, batch))
    links = torch.full((room,), -1, dtype=torch.int32)
    scores, sentence = torch.full((room,), float("nan")), torch.full((batch,), float("nan"))
    symmetrize[(batch,)](
        fwd, bwd, src, tgt, spans, n_src, n_tgt, *fwd.stride(), *bwd.stride(), threshold,
        total, counts, starts, links, scores, sentence,
        SRC=tile[0], TGT=tile[1], WITH_SENTENCE=with_sentence,
    )  # fmt: skip
    found = {"counts": counts, "starts": starts, "sentence": sentence}
    end = int(total[0])
    found |= {"links": links[:end], "scores": scores[:end], "behind": links[end:]}
    return {name: x.numpy() for name, x in found.items()}

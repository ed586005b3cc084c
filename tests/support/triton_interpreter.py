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


def round_floats(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return what is left of float32 values in a narrower type: what the kernel really reads."""
    return _make_tensor(array, dtype).float().numpy()


def _next_power(number: int) -> int:
    return max(16, 1 << (number - 1).bit_length())


def run_static_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    lengths: np.ndarray,
    heads: int,
    dtype: str,
    tile: tuple[int, int] = (16, 16),
    packed: bool = False,
) -> np.ndarray:
    """Run the kernel; if `packed`, q, k and v are parts of one (B, L, 3D) array.

    That is how a joint projection leaves them.
    """
    import torch

    from ...engine.runtime.gpu.kernels.static_attention import static_attention

    batch, length, width = k.shape
    q, k, v = (_make_tensor(x, dtype) for x in (q, k, v))
    if packed:
        q, k, v = torch.cat([q, k, v], dim=2).split(width, dim=2)
    out = torch.full((batch, length, width), float("nan"), dtype=k.dtype)
    head = width // heads
    strides = [n for x in (q, k, v, out) for n in (x.stride(0), x.stride(1), head)]
    lengths = _make_tensor(lengths.astype(np.int32))
    static_attention[(batch * heads, -(-length // tile[0]))](
        q, k, v, lengths, q, q.shape[0], length, heads, *strides, out,
        HEAD=head, HEAD_BLOCK=_next_power(head), ROWS=tile[0], KEYS=tile[1],
        WIDEN=dtype == "bf16",
    )  # fmt: skip
    return out.float().numpy()


def run_leaky_attention(
    q: np.ndarray,
    k: np.ndarray,
    null_key: np.ndarray,
    mask: np.ndarray,
    heads: int,
    dtype: str,
    tile: tuple[int, int] = (16, 16),
    with_null: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    import torch

    from ...engine.runtime.gpu.kernels.leaky_attention import leaky_attention

    (batch, n_tgt, width), n_src = q.shape, k.shape[1]
    weights = torch.full((batch, n_tgt, n_src), float("nan"))
    null = torch.full((batch, n_tgt), float("nan"))
    q, k, null_key, mask = (_make_tensor(x, dtype) for x in (q, k, null_key, mask))
    head = width // heads
    leaky_attention[(batch, -(-n_tgt // tile[0]))](
        q, k, null_key, mask, n_tgt, n_src, q.stride(0), q.stride(1), head,
        k.stride(0), k.stride(1), head, weights, null,
        HEADS=heads, HEADS_BLOCK=1 << (heads - 1).bit_length(), HEAD=head,
        HEAD_BLOCK=_next_power(head), ROWS=tile[0], KEYS=tile[1], WITH_NULL=with_null,
        WIDEN=dtype == "bf16",
    )  # fmt: skip
    return weights.numpy(), null.numpy()


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

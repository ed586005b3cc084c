"""Our GPU kernels: Triton source, and the launch of what was compiled from it.

Importing this loads neither triton nor a GPU library. `static_attention`, `leaky_attention` and
`symmetrize` are Triton source; their twins in NumPy have the same names in `runtime.reference`,
and so have their tests and the rows of `benchmarks/kernels.py`.
"""

KERNELS = ("static_attention", "leaky_attention", "symmetrize")

"""Our GPU kernels: Triton source, what was compiled from it, and its launch.

Importing this loads neither triton nor a GPU library. `symmetrize` is Triton source; its twin in
NumPy has the same name in `runtime.reference`, and so have its tests and the rows of
`benchmarks/kernels.py`. `compiled/` has it for every architecture; `python -m
mx_align.export.kernels` makes that folder again.
"""

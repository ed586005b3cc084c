"""Our GPU kernels: Triton source, what was compiled from it, and its launch.

Importing this loads neither triton nor a GPU library. `symmetrize` and `student` are Triton
source; the twins in NumPy have the kernels' names in `runtime.reference` and
`runtime.student_reference`. `compiled/` has it for every architecture; `python -m
mx_align.export.kernels` makes that folder again.
"""

"""Our GPU kernels and their NumPy twins; importing this loads neither triton nor a GPU library.

`static_attention`, `leaky_attention` and `symmetrize` are Triton source, `reference` their twins in
NumPy, and `launch` runs what `mx_align.export.kernels` compiled from the source."""

KERNELS = ("static_attention", "leaky_attention", "symmetrize")

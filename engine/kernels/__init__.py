"""Our GPU kernels and their NumPy twins; importing this loads neither triton nor a GPU library."""

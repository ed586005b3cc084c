"""What only a GPU can run: CUDA, TensorRT, kernels."""

"""Chooses what computes a model, and runs it: ONNX Runtime, NumPy, GPUs."""

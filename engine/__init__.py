"""Aligns words with NumPy and ONNX Runtime; never imports torch, trainer or export."""

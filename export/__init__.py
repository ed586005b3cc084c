"""Turns a training run into a verified bundle of ONNX graphs."""

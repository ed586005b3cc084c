"""Networks as ONNX graphs: plain, fused, in other dtypes."""

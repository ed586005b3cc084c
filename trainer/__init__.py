"""mx.trainer: learns Mask-Align from raw parallel text with PyTorch."""

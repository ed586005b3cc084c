"""Learns Mask-Align and its student from raw parallel text, with PyTorch."""

"""Verifies graphs against PyTorch, and measures what scores mean."""

"""Vocabulary, token cache and batches."""

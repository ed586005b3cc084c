"""Turns chunks of words into links: batches, decoding, long pairs, the pipeline."""

"""Aligns on a Ray cluster: a corpus in blocks, a pool of aligners."""

"""Carry labels and markup from a source sentence over to its translation."""

"""The aligner that learns from the text at hand and needs no model."""

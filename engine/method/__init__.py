"""Chooses how a text is aligned: by a model, by statistics of the text itself, or by both."""

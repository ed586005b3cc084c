"""The run folder: texts, checkpoints, initial weights."""

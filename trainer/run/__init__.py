"""The run folder: texts, training data, checkpoints, initial weights."""

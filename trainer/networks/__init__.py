"""The networks: Mask-Align and the student, their losses, weights and word scores."""

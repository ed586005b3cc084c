"""The networks and their losses: Mask-Align and the student."""

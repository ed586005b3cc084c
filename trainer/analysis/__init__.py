"""What people look at after a run: the paper's analyses, plots of the log."""

"""mx-train and mx-analyze: flags and messages."""

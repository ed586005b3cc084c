"""mx-export: flags and messages."""

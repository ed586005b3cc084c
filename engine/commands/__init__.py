"""The commands of the engine, one file each: flags and messages."""

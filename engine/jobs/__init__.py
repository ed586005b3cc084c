"""Output that survives a kill: unfinished files, shards, merging."""

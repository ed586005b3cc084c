"""Reads, writes, joins, averages and scores links."""

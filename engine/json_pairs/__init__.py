"""Sentence pairs that come as JSON objects, answered one by one: in a pipe, or by the server."""

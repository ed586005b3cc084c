"""A resident aligner: an HTTP API and the web app that it serves."""

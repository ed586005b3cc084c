"""Files, lines, words, pieces, ends of sentences."""

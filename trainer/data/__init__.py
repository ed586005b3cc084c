"""Vocabulary, token cache, links of teachers, gold pairs, batches."""

"""Lexical tables, shortlists, dictionaries and lists of terms, made from links."""

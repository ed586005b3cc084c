"""Alignments to look at: a page for the browser, markup for notebooks, a report on a corpus.
Knows words, links and scores; models and the command that runs them are the matter of others."""

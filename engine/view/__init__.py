"""Shows alignments: a page for the browser, markup for notebooks, a report on a corpus."""

"""Who knows links of the text: statistics, files, bundles, other runs."""

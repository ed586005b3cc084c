"""Commands with the flags of other programs: eflomal, fast_align, atools, extract_lex."""

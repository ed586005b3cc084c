"""The commands that use links: mx-lex and mx-project."""

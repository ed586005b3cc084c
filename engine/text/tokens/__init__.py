"""The tokens of users and the words that are aligned: how both are written, found and joined."""

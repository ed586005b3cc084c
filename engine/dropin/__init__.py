"""What other aligners offer, with their names and shapes, so that ours can take their place."""

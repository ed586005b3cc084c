"""The model file: manifest, hashes, installed models, languages."""

"""The training loop, and what it needs: optimizer, devices, validation, progress."""

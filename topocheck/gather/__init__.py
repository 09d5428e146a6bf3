"""Ways to bring snapshots together: one file a way."""

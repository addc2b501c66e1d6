"""What became of launches on a Ray cluster."""

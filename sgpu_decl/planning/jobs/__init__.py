"""What becomes of declared jobs."""

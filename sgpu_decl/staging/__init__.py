"""Code by content: what a run takes along, its digest, and the store that keeps it."""

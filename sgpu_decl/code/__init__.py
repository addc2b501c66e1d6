"""Code by content: the files of a run, their digest, and the store that keeps them."""

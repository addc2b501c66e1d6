"""Garbage collection, state edits, adoption: what is done to a project outside of apply."""

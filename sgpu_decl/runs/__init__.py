"""Attempts and jobs: find, read, wait, follow, cancel."""

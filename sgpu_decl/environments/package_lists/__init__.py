"""Environments as lists of packages: bases, lock files, interpreters; compared and judged."""

"""Environments as lists of packages: bases, lock files, interpreters, and their checks."""

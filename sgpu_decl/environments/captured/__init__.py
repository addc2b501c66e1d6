"""Captures the environment of an interpreter as a manifest of its folders and files."""

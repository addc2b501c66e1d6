"""Prepares the data; the job of the bundle runs this before the ranks start."""

print("prepared")

"""Runs what is submitted: node processes, their logs, attempts, and how they ended."""

"""Ranks and what starts beside them: their environment, start, end and stacks."""

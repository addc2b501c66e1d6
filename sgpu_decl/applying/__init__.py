"""Carrying a plan out, one effect per step, each remembered at once."""

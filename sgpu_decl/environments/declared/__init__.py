"""Environments by requirements or lock: resolved and built by uv."""

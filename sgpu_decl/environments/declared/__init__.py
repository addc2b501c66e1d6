"""Environments declared by requirements or a lock: resolved and built by uv."""

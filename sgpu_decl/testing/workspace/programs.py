"""Where programs of ours that run beside the server find this package."""

from pathlib import Path

__all__ = ["package_home"]


def package_home() -> Path:
    """The folder to put on their path."""
    return Path(__file__).resolve().parents[3]

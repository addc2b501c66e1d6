"""Plan and apply for multi-GPU runs."""

__all__ = ["__version__"]

__version__ = "0.1.0"

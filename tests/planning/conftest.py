"""The project of tests of the engine."""

from tests.applying.conftest import apply, folder, open_file

__all__ = ["apply", "folder", "open_file"]

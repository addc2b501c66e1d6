"""A project with jobs, and the workspace that keeps them."""

from tests.applying.conftest import folder
from tests.applying.jobs.conftest import server, shop

__all__ = ["folder", "server", "shop"]

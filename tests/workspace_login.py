"""A user of an emulated workspace, whom the environment names to the SDK."""

import os
from pathlib import Path

import pytest

from sgpu_decl.testing.workspace import WorkspaceServer

__all__ = ["log_in", "login"]


def log_in(server: WorkspaceServer, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Log in as a new user, and return the token; `folder` is where the test keeps its profiles."""
    made = server.new_token()
    for name in ("CLIENT_ID", "CLIENT_SECRET", "CONFIG_PROFILE", "AUTH_TYPE"):
        monkeypatch.delenv(f"DATABRICKS_{name}", raising=False)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(folder / "databrickscfg"))
    monkeypatch.setenv("DATABRICKS_HOST", server.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", made)
    return made


def login() -> dict[str, str]:
    """What the environment says of a login, for a process with another environment."""
    return {name: value for name, value in os.environ.items() if name.startswith("DATABRICKS_")}

"""Where something may be shared by nobody any more. It is remembered until it could be looked into:
while a launch is on its way, nothing is freed, and the next call tries again."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sgpu_decl.backends.databricks.account import Account
from sgpu_decl.backends.databricks.workspace import Workspace, Workspaces

__all__ = ["Unfreed"]

_FILE = "databricks-unfreed.json"


class Unfreed:
    """Workspaces, remembered in the folder of the state."""

    def __init__(self, state_dir: Path, workspaces: Workspaces) -> None:
        self._file = state_dir / _FILE
        self._workspaces = workspaces

    def add(self, workspace: Workspace) -> None:
        """Something is about to be given back there."""
        known = self.all()
        if workspace not in known:
            self._keep((*known, workspace))

    def all(self) -> tuple[Workspace, ...]:
        """Those that are to be looked into."""
        try:
            raw: list[dict[str, Any]] = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return ()
        return tuple(
            self._workspaces.at(Account(it["profile"], it["host"]), it["staging"]) for it in raw
        )

    def settle(self, workspace: Workspace) -> None:
        """All that could be freed there was."""
        self._keep(it for it in self.all() if it is not workspace)

    def _keep(self, workspaces: Iterable[Workspace]) -> None:
        known = [
            {"profile": it.account.profile, "host": it.account.host, "staging": it.staging}
            for it in workspaces
        ]
        if not known:
            self._file.unlink(missing_ok=True)
            return
        temporary = self._file.with_name(f".{_FILE}.{os.getpid()}")
        temporary.write_text(json.dumps(known), encoding="utf-8")
        temporary.rename(self._file)

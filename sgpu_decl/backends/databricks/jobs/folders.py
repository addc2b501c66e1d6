"""The launch folders of jobs: one for each version of what a job launches, filled once."""

import json
from collections.abc import Callable
from dataclasses import asdict

from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.databricks.bringing import Bringing
from sgpu_decl.backends.databricks.complaints import Unknown
from sgpu_decl.backends.databricks.freeing import free_launch
from sgpu_decl.backends.databricks.holding import HOLDS
from sgpu_decl.backends.databricks.places import BACK, MARKER, uses_in
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.model.jsonable import Json, canonical

__all__ = ["JobFolders"]


class JobFolders:
    """Those in one workspace. `freeing` is told before what launches share may be needed by
    none."""

    def __init__(
        self, workspace: Workspace, bringing: Bringing, freeing: Callable[[Workspace], None]
    ) -> None:
        self._workspace = workspace
        self._bringing = bringing
        self._freeing = freeing

    def of(self, launching: Launching) -> str:
        """Where the folder of a job's run lies, filled or not."""
        return self._workspace.places.launch(launching.lineage, launching.ref, launching.token)

    def staged(self, launching: Launching) -> bool:
        """Whether all of it is there, and what it shares with other launches. Raises
        BackendError."""
        files, folder = self._workspace.files, self.of(launching)
        there = {it.name for it in files.list(folder)}
        if MARKER not in there:
            return False
        try:
            marker = files.get(f"{folder}/{MARKER}")
        except Unknown:
            return False
        uses = uses_in(marker)
        if uses is None or not there.issuperset(json.loads(marker).get("files", ())):
            return False
        return all(files.size(path) is not None for path in self._workspace.places.shared(uses))

    def stage(self, launching: Launching) -> None:
        """Have it filled. Raises SgpuError."""
        if self.staged(launching):
            return
        try:
            uses = self._bringing.fill(launching)
            # The marker says that the folder is whole, and keeps what it needs from being freed.
            filled = [it.name for it in self._workspace.files.list(self.of(launching))]
            marker: dict[str, Json] = {
                "token": launching.token,
                "uses": asdict(uses),
                "files": [name for name in filled if name not in HOLDS | {BACK}],
            }
            self._workspace.files.put(f"{self.of(launching)}/{MARKER}", canonical(marker).encode())
        finally:
            self._bringing.over(launching.ref)

    def free(self, launching: Launching, *, gone: bool) -> None:
        """Delete those of other versions of the job's run, with what their nodes brought back; all
        of them where the job is `gone`. Raises BackendError."""
        above = self._workspace.places.run(launching.lineage, launching.ref)
        kept = None if gone else self.of(launching).rpartition("/")[2]
        old = [it.name for it in self._workspace.files.list(above) if it.name != kept]
        if old:
            self._freeing(self._workspace)
        for name in old:
            free_launch(self._workspace, f"{above}/{name}")

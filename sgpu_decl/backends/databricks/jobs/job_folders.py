"""The launch folders of jobs: one for each version of a job's run, filled once."""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sgpu_decl.backends.databricks.jobs.task_settings import RUN_SCRIPT
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.uploader import Uploader
from sgpu_decl.backends.remote.staging.lease import LEASE
from sgpu_decl.backends.remote.staging.remote_gc import free_launch
from sgpu_decl.backends.remote.staging.remote_layout import (
    BACK,
    MARKER,
    RemoteLayout,
    render_marker,
    uses_in,
)
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.distribution import shipped_folder
from sgpu_decl.errors import StalePlan
from sgpu_decl.model.job import NOTEBOOK, SCRIPT, STAGED
from sgpu_decl.places.file_place import PlaceMissing, file_size


class JobFolders:
    """The launch folders of jobs in one staging area. `gc_due` is called before a folder is
    deleted: shared objects may become free. `project` is the folder of the project."""

    def __init__(
        self, area: StagingArea, uploader: Uploader, project: Path, gc_due: Callable[[], None]
    ) -> None:
        self._project = project
        self._area = area
        self._uploader = uploader
        self._gc_due = gc_due

    def of(self, request: LaunchRequest) -> str:
        """The path of the folder of a job's run, filled or not."""
        return self._area.layout.launch(request.record)

    def commands(self, request: LaunchRequest) -> str:
        """The path of the folder that its command lies in."""
        return self._area.layout.commands(self.of(request))

    def layout_elsewhere(self, request: LaunchRequest, commands: str) -> RemoteLayout | None:
        """The layout of the staging folder of another user, where that folder of commands is there
        for the same version of a job's run. None where it is another version, or this area's."""
        own = self.commands(request)
        if commands == own or commands.split("/")[-3:] != own.split("/")[-3:]:
            return None
        return self._area.layout.around(commands)

    def staged(self, request: LaunchRequest, layout: RemoteLayout | None = None) -> bool:
        """Whether the folder is complete, and the shared objects that it needs are there.

        Args:
            layout: that of the staging folder to look into; that of this area unless given.

        Raises:
            BackendError: they cannot be looked at.
        """
        files, layout = self._area.files, layout or self._area.layout
        folder = layout.launch(request.record)
        try:
            marker = files.get(f"{folder}/{MARKER}")
        except PlaceMissing:
            return False
        uses = uses_in(marker)
        there = {one.name for one in self._area.command_files.list(layout.commands(folder))}
        if uses is None or not there.issuperset(json.loads(marker).get("files", ())):
            return False
        return all(file_size(files, path) is not None for path in layout.shared(uses))

    def may_be_staged(self, request: LaunchRequest, layout: RemoteLayout) -> bool:
        """The same of the staging folder of another user. Where nothing at all is to be seen, this
        user may not be allowed to look. Raises BackendError."""
        if self.staged(request, layout):
            return True
        files, folder = self._area.files, layout.launch(request.record)
        if file_size(files, f"{folder}/{MARKER}") is None:
            return not files.list(layout.runs)
        return not self._area.command_files.list(layout.command_root or layout.runs)

    def stage(self, request: LaunchRequest) -> None:
        """Fill the folder, unless it is staged. Raises SgpuError."""
        try:
            if self.staged(request):
                return
            uses = self._uploader.fill(request, own_files(request, self._project))
            # The marker says that the folder is complete, and protects its objects from gc.
            filled = [
                command.name for command in self._area.command_files.list(self.commands(request))
            ]
            files = [name for name in filled if name not in (LEASE, BACK)]
            marker = render_marker(uses, token=request.record.token, files=files)
            self._area.files.put(f"{self.of(request)}/{MARKER}", marker)
        finally:
            self._uploader.release(request.ref)

    def free(self, requests: Iterable[LaunchRequest], *, gone: bool) -> None:
        """Delete the folders of other versions of what a job launches, with the results in them;
        all folders if the job is `gone`. Raises BackendError."""
        current: dict[str, set[str]] = {}
        for request in requests:
            kept = current.setdefault(self._area.layout.run(request.record), set())
            if not gone:
                kept.add(self.of(request).rpartition("/")[2])
        for above, names in current.items():
            old = [item.name for item in self._area.files.list(above) if item.name not in names]
            if old:
                self._gc_due()
            for name in old:
                free_launch(self._area, f"{above}/{name}")


def own_files(request: LaunchRequest, project: Path) -> dict[str, bytes] | None:
    """The files of the launch folder of a file of the repository; None of a run.

    Args:
        project: the folder of the project.

    Raises:
        SgpuError: a notebook is not the one that was planned.
    """
    if not request.of_file:
        return None
    spec: Any = request.inputs.spec.fields
    if SCRIPT in spec:
        script = shipped_folder("templates") / "databricks" / RUN_SCRIPT
        return {RUN_SCRIPT: script.read_bytes()}
    path = request.folder(project) / spec[NOTEBOOK]["path"]
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != spec[STAGED][NOTEBOOK]:
        raise StalePlan(
            f"the notebook `{spec[NOTEBOOK]['path']}` here is not the one that was planned",
            hint="check out the planned commit, or plan again",
            code="code_differs",
        )
    return {path.name: content}

"""What the jobs of a bundle launch, and the jobs as bundles write them."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.base import Survey
from sgpu_decl.backends.databricks.bundles.bundle_survey import BundleSurvey
from sgpu_decl.backends.databricks.jobs.documents import MARK, acl_of, settings_of
from sgpu_decl.backends.databricks.jobs.job_findings import settings_findings
from sgpu_decl.backends.databricks.jobs.job_folders import own_files
from sgpu_decl.backends.databricks.jobs.job_settings import describe
from sgpu_decl.backends.databricks.jobs.task_settings import Staged, StagedFile
from sgpu_decl.backends.databricks.launching.submit import StagedLaunch
from sgpu_decl.backends.databricks.launching.workspace_node_program import WorkspaceNodeProgram
from sgpu_decl.backends.databricks.workspace import Workspaces
from sgpu_decl.backends.job_backend import AppliedJob, JobDescription, refuse_outputs
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.uploader import (
    LAST,
    fill_launch_folder,
    upload_agent,
    upload_code,
    upload_environment,
)
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout, Uses
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.config.job import Job
from sgpu_decl.content.packs import Index, index_name
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.step_progress import Quiet, Sent
from sgpu_decl.model.target import USER, Mode
from sgpu_decl.places.file_place import ignore_bytes
from sgpu_decl.places.folder import FolderPlace

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext

_DEPLOYED = "${workspace.file_path}"
_USER = "${workspace.current_user.short_name}"
_EXPERIMENTS = "/Workspace/Users/${workspace.current_user.userName}"
"""Names that a bundle fills in. Source:
https://docs.databricks.com/aws/en/dev-tools/bundles/variables#substitutions"""

_STARTED_BY = ("schedule", "trigger")
_PAUSED = "pause_status"
_COMMAND = "command.sh"


class BundledLaunches:
    """A `BundleBackend`.

    Args:
        folder: what is launched from, in the bundle. Its name is the same where it is deployed.
    """

    workspace = ""

    def __init__(self, context: "BackendContext", folder: Path) -> None:
        self.survey: Survey = BundleSurvey(Workspaces(), context.pythons)
        self._context = context
        self._deployed = RemoteLayout(f"{_DEPLOYED}/{folder.name}")
        self._area = StagingArea(RemoteLayout(str(folder)), _UntouchedFolder(folder), key={})

    def describe(
        self,
        job: Job,
        name: str,
        mode: Mode,  # noqa: ARG002  the bundle has one, and names and pauses its jobs by that
        requests: Mapping[str, LaunchRequest],
        applied: AppliedJob | None = None,  # noqa: ARG002  the protocol's
    ) -> JobDescription:
        refuse_outputs(requests)
        _refuse_name(job.budget)
        title = job.name or name
        job = job.model_copy(update={"name": title.replace(USER, _USER)})
        staged = {task: self._staged(request) for task, request in requests.items()}
        return describe(job, name, Mode.PRODUCTION, "", staged)

    def findings(self, job: Job) -> Iterator[Diagnostic]:
        return settings_findings(job)

    def resource(self, job: Job, spec: Mapping[str, Json]) -> dict[str, Json]:
        settings: dict[str, Any] = settings_of(spec, "")
        settings["tags"].pop(MARK)
        if not settings["tags"]:
            del settings["tags"]
        if job.paused is None:  # what the bundle says (`presets.trigger_pause_status`) holds
            for block in _STARTED_BY:
                settings.get(block, {}).pop(_PAUSED, None)
        if acl := acl_of(spec):
            settings["permissions"] = [_permission(entry) for entry in acl]
        if job.lifecycle.prevent_destroy:
            settings["lifecycle"] = {"prevent_destroy": True}
        return settings

    def stage(self, request: LaunchRequest) -> tuple[str, ...]:
        area, layout = self._area, self._area.layout
        folder = layout.launch(request.record)
        uses = self._shared(request)
        if not self._is_filled(folder):
            if (files := own_files(request, self._context.project)) is None:
                fill_launch_folder(
                    area,
                    replace(request, control_key=_control_key(request)),
                    WorkspaceNodeProgram(moves=True),
                    project=self._context.project,
                    root=request.code_root(self._context.project),
                    store=self._context.store(),
                    environment=uses.environment,
                )
            else:
                area.make_folder_once(folder)
                for name, content in files.items():
                    area.files.put(f"{folder}/{name}", content)
        used = {folder, *layout.shared(uses), *self._packs(uses.environment)}
        return tuple(path.removeprefix(f"{layout.root}/") for path in used)

    def _packs(self, environment: str | None) -> Iterator[str]:
        """The files that an environment was sent as."""
        if environment is not None:
            folder = self._area.layout.packs
            index = self._area.files.get(f"{folder}/{index_name(environment)}")
            for name in Index.unchecked(index, environment).files:
                yield f"{folder}/{name}"

    def _shared(self, request: LaunchRequest) -> Uses:
        quiet, context = Quiet(), self._context
        code, environment = request.inputs.code_digest, request.inputs.environment_digest
        agent = None if request.of_file else upload_agent(self._area, quiet)
        if code is not None:
            upload_code(self._area, context.store(), code, quiet)
        if environment is not None:
            environment = upload_environment(self._area, context.environments(), environment, quiet)
        return Uses(agent=agent, code=code, environment=environment)

    def _is_filled(self, folder: str) -> bool:
        """Whether this version of sgpu has filled a launch folder of a run. The name of the folder
        says what is launched."""
        command = Path(folder, _COMMAND)
        if not Path(folder, LAST).is_file() or not command.is_file():
            return False
        return f"agent={agent_zip()[0]}\n" in command.read_text()

    def _staged(self, request: LaunchRequest) -> Staged:
        layout, code = self._deployed, request.inputs.code_digest
        folder = layout.launch(request.record)
        archive = layout.code(code) if code is not None else None
        if request.of_file:
            return StagedFile(folder=folder, code=archive)
        _refuse_name(request.config.budget)
        return StagedLaunch(
            config=request.config,
            placement=request.inputs.placement,
            folder=folder,
            experiments=_EXPERIMENTS,
            code=archive,
            policy=request.config.budget,
        )


def _control_key(request: LaunchRequest) -> str:
    """The key with which the nodes of a launch authenticate each other. Nodes may start while
    another machine deploys the same bundle, which has to write the same files. So the key is
    computed from the content of the launch, and everybody who may read the files of the bundle can
    compute it."""
    return hashlib.sha256(f"nodes of {request.record.token}".encode()).hexdigest()


def _refuse_name(budget: str | None) -> None:
    """Refuse a budget policy by its name: the workspace is not asked for its id."""
    if budget is None:
        return
    try:
        UUID(budget)
    except ValueError:
        raise BackendError(
            f"`{budget}` is the name of a budget policy, and a bundle needs its id",
            hint="write the id, which the workspace shows beside the name",
            code="bundle_budget",
            field="budget",
        ) from None


def _permission(entry: Json) -> dict[str, Json]:
    assert isinstance(entry, Mapping)  # noqa: S101  as `acl_of` makes it
    return {"level" if key == "permission_level" else key: item for key, item in entry.items()}


class _UntouchedFolder(FolderPlace):
    """A folder in which a file with the same content stays as it is: bundles upload what has a new
    time of change."""

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        given = content if isinstance(content, bytes) else content.read_bytes()
        there = Path(path)
        if not there.is_file() or there.read_bytes() != given:
            super().put(path, content, sent)

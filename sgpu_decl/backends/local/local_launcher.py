"""Launches on this machine: attempt folders on disk, and the node agent as their supervisor."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.agent.attempt import attempt_status
from sgpu_decl.agent.attempt.host_record import read_record
from sgpu_decl.agent.attempt.staged_folder import (
    delete_drafts,
    give_up,
    holds_launch,
    launched,
    new_draft,
)
from sgpu_decl.agent.launching import agent_launch as agent
from sgpu_decl.agent.supervision.forced_stop import LocalForcedStop
from sgpu_decl.agent.system.host_locks import host_lock_folder, shared_gpu_locks
from sgpu_decl.agent.system.processes import ancestors
from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Launcher
from sgpu_decl.backends.host.host_spec import (
    HostSite,
    caller_tether,
    earlier_folder,
    host_launch_spec,
    write_entrypoint,
)
from sgpu_decl.backends.launch_request import LaunchRequest, output_gone, require_code
from sgpu_decl.backends.launch_spec import write_call
from sgpu_decl.backends.local.launch_site import attempt_folder, make_site, site_in
from sgpu_decl.backends.local.local_survey import LocalSurvey
from sgpu_decl.backends.local.options import LocalOptions
from sgpu_decl.backends.secret_resolution import resolve_secrets
from sgpu_decl.backends.tracker_request import require_uri, tracker_request
from sgpu_decl.control_groups import usable_processors
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.environments.interpreters import Pythons, interpreter_of
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.gpus.devices import driver_devices
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.run_outputs import outputs_read
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.rendering.spec import TrackerSpec
from sgpu_decl.system_errors import advice, error_text, path_in_errors
from sgpu_decl.tracking.store_location import credential_variables, secret_credentials
from sgpu_decl.tracking.tracking_request import FILE, to_json, tracker_spec

if TYPE_CHECKING:
    from sgpu_decl.agent.launching.warm_calls import WarmServer
    from sgpu_decl.backends.backend_context import BackendContext

_SILENT = 30.0  # seconds of silence until a supervisor that was asked to stop is ended


class LocalLauncher(Launcher):
    """`environ` is the environment of this process, where secrets are. `layout` says where the
    attempts lie; that of the project unless given."""

    def __init__(
        self,
        context: "BackendContext",
        survey: LocalSurvey,
        environ: Mapping[str, str],
        layout: AttemptLayout | None = None,
    ) -> None:
        self._project = context.project
        self._home = context.state_dir.parent
        self._layout = layout or context.layout
        self._shared_state = context.shared_state
        self._store = context.store
        self._environments = context.environments
        self._trees: dict[str, Path] = {}
        self._environ = environ
        self._survey = survey
        self._server: agent.LaunchServer | None = None

    def check(self, request: LaunchRequest) -> None:
        if read_record(str(self._layout.attempt(request.ref))) is not None and not self.staged(
            request.record
        ):
            raise BackendError(
                f"`{request.ref}` still runs, though its folder was deleted",
                hint="it is being stopped: apply again when `sgpu status` no longer shows it",
                code="active_run",
            )
        config = request.config
        resolve_secrets(config.secrets, self._environ, request.folder(self._project))
        require_uri(config, self._environ)
        if request.inputs.environment_digest is None:
            self._interpreter(request)
        require_code(self._store(), request)
        for ref in outputs_read(request.inputs.spec):
            output = earlier_folder(ref, request, self._site(request)) / "output"
            if ref not in request.record.after and not output.is_dir():
                raise output_gone(request.ref, ref)

    def prepare(
        self, requests: Sequence[LaunchRequest], progress: Progress
    ) -> Sequence[Diagnostic]:
        declared = (request.inputs.environment_digest for request in requests)
        for environment in {digest for digest in declared if digest is not None}:
            self._trees[environment] = self._environments().hydrate(environment, progress)
        if len(requests) > 1:
            self._server = agent.LaunchServer()
        return ()

    def stage(self, request: LaunchRequest) -> None:
        """Another process may be staging the same launch, or have staged it: one that was stopped
        when it held the lock. So each has a folder of its own, and one of them gets the name."""
        if self.staged(request.record):
            return
        folder = self._layout.attempt(request.ref)
        draft = Path(new_draft(os.fspath(folder)))
        try:
            with _explained(request):
                self._clear(folder)
                self._stage(request, draft)
                draft.rename(folder)
        except SgpuError:
            if not self.staged(request.record):
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def provisional_reference(self, record: LaunchRecord) -> str | None:  # noqa: ARG002  all are launched here
        if not self._shared_state():
            return None
        return make_site(self._layout.state_dir, self._project).reference

    def place_words(self, record: LaunchRecord) -> str | None:
        if record.reference is None:
            return None
        return site_in(record.reference).words

    def may_queue(self, request: LaunchRequest) -> bool:
        config = request.config
        return config.max_parallel is not None or config.type.name != "CPU"

    def launch(self, request: LaunchRequest) -> str | None:  # its folder moves with its address
        folder, token = self._folder(request.record), request.record.token
        try:
            with _explained(request):
                if not (launched(folder) and self.staged(request.record)):
                    base = request.folder(self._project)
                    secrets = resolve_secrets(request.config.secrets, self._environ, base)
                    server = self._server or _warm_server(request, folder, secrets)
                    agent.launch(folder, token=token, secrets=secrets, server=server)
        except SgpuError:
            # Else another process that has staged it, and was stopped, could start it later.
            if not self.staged(request.record) or give_up(folder):
                raise
        return request.record.reference

    def staged(self, record: LaunchRecord) -> bool:
        return holds_launch(self._folder(record), record.token)

    def cancel(self, record: LaunchRecord) -> None:
        folder = self._folder(record)
        if attempt_status.attempt_exists(folder):
            attempt_status.request_cancel(folder)

    def forced_stop(self, record: LaunchRecord, patience: float | None) -> LocalForcedStop:
        silence = _SILENT if patience is None else patience
        return LocalForcedStop(self._folder(record), silence)

    def _folder(self, record: LaunchRecord) -> Path:
        """The folder of a launch, also if another checkout has made it."""
        return attempt_folder(record, self._layout) or self._layout.attempt(record.ref)

    def _clear(self, folder: Path) -> None:
        """Delete what other launches left where an attempt is to be staged.

        Raises:
            BackendError: one of them was started.
        """
        delete_drafts(os.fspath(folder))
        if not give_up(folder):
            raise BackendError(
                f"`{folder}` holds another launch of this run, which this state does not know",
                hint="bring back the state it belongs to, or move the folder away",
                code="folder_taken",
            )

    def _stage(self, request: LaunchRequest, folder: Path) -> None:
        """Build the folder of an attempt."""
        private_folder(folder.parent)
        folder.mkdir(mode=0o700)
        (folder / "output").mkdir(mode=0o700)
        if request.inputs.code_digest is not None:
            digest, progress = request.inputs.code_digest, request.progress
            self._store().materialize(digest, folder / "code", progress)
        else:
            (folder / "code").mkdir(mode=0o700)
        self._link(request, folder / "code")
        if request.call is not None:
            write_call(folder, request.call)
        tree = self._tree(request)
        if tree is not None:  # Python remembers folders of its path that are not there
            (folder / "site").mkdir(mode=0o700)
        python = str(tree / "bin" / "python") if tree else self._interpreter(request)
        options = request.config.backend
        spec = host_launch_spec(
            request,
            self._site(request),
            root=Path(os.path.abspath(request.code_root(self._project))),
            code=self._layout.attempt(request.ref) / "code"
            if request.call is None
            else Path(request.call.folder),
            python=python,
            tree=tree,
            devices=self._devices(request.config.type.kind),
            share_gpus=isinstance(options, LocalOptions) and options.share_gpus,
            tracker=self._tracker(request, folder, python),
        )
        write_entrypoint(folder, spec, self._layout.shared)

    def _site(self, request: LaunchRequest) -> HostSite:
        return HostSite(
            layout=self._layout,
            folder_of=lambda record: attempt_folder(record, self._layout),
            gpu_locks=host_lock_folder("gpus"),
            shared_gpu_locks=shared_gpu_locks(),
            port_locks=host_lock_folder("ports"),
            processors=usable_processors,
            path=os.environ.get("PATH", os.defpath),
            variables=os.environ,
            project=str(self._project),
            source=os.path.abspath(request.code_root(self._project)),
            callers=tuple(ancestors(os.getpid())),
            tether=caller_tether() if request.call is not None else None,
        )

    def _tracker(self, request: LaunchRequest, folder: Path, python: str) -> TrackerSpec | None:
        """Write what the tracker is asked into the attempt folder; None where it is not started:
        tracking is off, or MLflow is not installed."""
        command = tracker_spec(enabled=request.config.mlflow.enabled)
        if command is None:
            return None
        base = request.folder(self._project)
        tracking = tracker_request(request, base=base, home=self._home, python=python)
        path = folder / FILE
        with path_in_errors(path):
            path.touch(mode=0o600)
            path.write_text(to_json(tracking), encoding="utf-8")
        return TrackerSpec(
            argv=tuple(command["argv"]),
            env=dict(command["env"]),
            credentials=credential_variables(tracking.tracking_uri),
            secrets=secret_credentials(tracking.tracking_uri),
        )

    def _devices(self, kind: GPUType) -> list[str]:
        """The devices that ranks may get; for ranks without a GPU, the devices to hide from
        them."""
        if kind is GPUType.CPU:
            return [device.index for device in driver_devices()]
        return [item.index for item in self._survey.devices.visible if item.may_be(kind)]

    def _tree(self, request: LaunchRequest) -> Path | None:
        """The declared environment: looked at once for all launches of an apply, and made where
        a crash left a launch without it."""
        digest = request.inputs.environment_digest
        if digest is not None and digest not in self._trees:
            self.prepare([request], Quiet())
        return self._trees[digest] if digest is not None else None

    def _pythons(self) -> Pythons:
        return Pythons(self._environ)

    def _interpreter(self, request: LaunchRequest) -> str:
        declared, folder = request.config.env.python, request.folder(self._project)
        interpreter = interpreter_of(declared, folder, self._pythons)
        if not isinstance(interpreter, Interpreter):
            raise interpreter.error
        return interpreter.executable

    def _link(self, request: LaunchRequest, code: Path) -> None:
        root = request.code_root(self._project).resolve()
        for relative in request.config.code.link:
            link = code / relative
            private_folder(link.parent)
            link.symlink_to(root / relative)


def _warm_server(
    request: LaunchRequest, folder: Path, secrets: Mapping[str, str]
) -> "WarmServer | None":
    """A process that has imported what the ranks of this call import, where calls are kept warm."""
    if request.call is None or not request.call.keep_warm:
        return None
    from sgpu_decl.agent.launching.warm_calls import warm_server

    spec = json.loads((folder / "spec.json").read_bytes())
    return warm_server(spec, secrets, request.call.keep_warm)


@contextlib.contextmanager
def _explained(request: LaunchRequest) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendError(
            f"`{request.ref}` could not be started: {error_text(error)}",
            hint=advice(error),
            code="launch_failed",
        ) from error

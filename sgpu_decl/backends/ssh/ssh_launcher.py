"""Launches on boxes: their agents stage them in their folder there, and start their supervisor, as
on this machine. The supervisors of several boxes meet, and the first decides."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.archives import rank_zip
from sgpu_decl.backends.base import ForcedStop, Launcher
from sgpu_decl.backends.box.box_checks import devices_of, lacks_mlflow
from sgpu_decl.backends.box.box_launches import BoxForcedStop, BoxLaunches
from sgpu_decl.backends.box.box_mirror import BoxMirror
from sgpu_decl.backends.box.box_reach import require_reach
from sgpu_decl.backends.box.box_uploads import BoxUploads
from sgpu_decl.backends.box.boxes import Box
from sgpu_decl.backends.box.ssh_process import SshConnectionLost
from sgpu_decl.backends.host.host_spec import HostSite, entrypoint_files, host_launch_spec
from sgpu_decl.backends.launch_request import LaunchRequest, require_code, require_upstreams
from sgpu_decl.backends.launch_spec import write_call
from sgpu_decl.backends.node_tracker import node_tracker, tracking_credentials
from sgpu_decl.backends.secret_resolution import resolve_secrets
from sgpu_decl.backends.tracker_request import require_uri
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.run_outputs import outputs_read
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.rendering.spec import LaunchSpec
from sgpu_decl.scratch_folders import scratch_folder

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext

_SILENT = 30.0  # seconds of silence until a supervisor that was asked to stop is ended


class SshLauncher(Launcher):
    """A second request for the same launch does nothing new on the box, whoever sends it: so
    requests whose answers are lost are sent again."""

    def __init__(
        self,
        context: "BackendContext",
        launches: BoxLaunches,
        mirror: BoxMirror,
        environ: Mapping[str, str],
    ) -> None:
        self._project = context.project
        self._store = context.store
        self._uploads = BoxUploads(context.store, context.environments)
        self._launches = launches
        self._mirror = mirror
        self._environ = environ

    def check(self, request: LaunchRequest) -> None:
        require_code(self._store(), request)
        resolve_secrets(request.config.secrets, self._environ, request.folder(self._project))
        require_uri(request.config, self._environ)
        boxes = self._launches.launch_on(request.record)
        require_reach(boxes)
        for upstream in outputs_read(request.inputs.spec) if len(boxes) > 1 else ():
            raise BackendError(
                f"`{request.ref}` reads the output of `{upstream}`: of a run on several hosts, "
                "each has only the files of its own ranks",
                hint="have it written to a storage that all hosts see",
                code="upstream_elsewhere",
            )
        require_upstreams(
            request,
            "on another host",
            is_beside=lambda one: self._launches.are_beside(one, request.record),
            has_output=lambda one: any(
                there["output"] for there in self._launches.ask_each(one, "facts_of")
            ),
        )

    def prepare(
        self, requests: Sequence[LaunchRequest], progress: Progress
    ) -> Sequence[Diagnostic]:
        for request, box in (
            (one, box) for one in requests for box in self._launches.boxes(one.record)
        ):
            if request.inputs.code_digest is not None:
                self._uploads.code(box, request.inputs.code_digest, progress)
            if request.inputs.environment_digest is not None:
                self._uploads.tree(box, request.inputs.environment_digest, progress)
        return ()

    def provisional_reference(self, record: LaunchRecord) -> str:
        return self._launches.reference(record)

    def place_words(self, record: LaunchRecord) -> str:
        return f"on {', '.join(box.host for box in self._launches.boxes(record))}"

    def may_queue(self, request: LaunchRequest) -> bool:
        return request.config.max_parallel is not None or request.config.type.name != "CPU"

    def stage(self, request: LaunchRequest) -> None:
        boxes = self._launches.boxes(request.record)
        specs = [self._stage(request, box, node) for node, box in enumerate(boxes)]
        self._mirror.begin(request.record, specs[0])

    def _stage(self, request: LaunchRequest, box: Box, node: int) -> bytes:
        """Stage it on one of its boxes; return its spec there."""
        record = request.record
        digest, quiet = request.inputs.code_digest, Quiet()
        code = self._uploads.code(box, digest, quiet) if digest is not None else None
        with scratch_folder("launch") as scratch, self._explained(request):
            files = self._files(request, box, node, scratch)
            # One that an attempt with an environment may install into: Python remembers folders of
            # its path that are not there.
            site = () if request.inputs.environment_digest is None else ("site",)
            sizes = [[name, len(content)] for name, content in files.items()]
            message = {
                "folder": self._launches.folder(record, node),
                "token": record.token,
                "files": sizes,
                "folders": ["output", *(() if code else ("code",)), *site],
                "code": code,
            }
            size = sum(len(content) for content in files.values())
            try:
                box.send("stage", message, files.values, size)
            except BackendError as error:
                if error.code != "code_missing" or digest is None:
                    raise
                self._uploads.code(box, digest, quiet, again=True)  # somebody deleted it there
                box.send("stage", message, files.values, size)
        return files["spec.json"]

    def staged(self, record: LaunchRecord) -> bool:
        return all(there["staged"] for there in self._launches.ask_each(record, "staged"))

    def launch(self, request: LaunchRequest) -> str:
        config, base = request.config, request.folder(self._project)
        secrets = {
            **tracking_credentials(config, self._environ),
            **resolve_secrets(config.secrets, self._environ, base),
        }
        try:
            with self._explained(request):
                self._start(request.record, secrets)
        except SshConnectionLost as error:
            raise OutcomeUnknown(
                f"`{request.ref}` may have been started: {error.message}",
                hint="apply again: it is found, and not started once more",
            ) from error
        return self._launches.reference(request.record)

    def _start(self, record: LaunchRecord, secrets: Mapping[str, str]) -> None:
        """Start it on the first box, and on the others then, unless it is over by now: the first
        does not wait for ever. So what reached some boxes alone ends, or begins on all."""
        places = self._launches.places(record)
        if len(places) == 1:
            self._launches.ask(record, "start", secrets=secrets)
            return
        boots = [(box.hello["boot"], box.address) for box, _ in places]
        turns = sorted(range(len(places)), key=boots.__getitem__)
        node: dict[str, Any] = {"count": len(places), "address": boots[0][1], "turns": turns}
        for number, (box, folder) in enumerate(places):
            message = {"folder": folder, "token": record.token, "secrets": secrets}
            met = self._start_on(box, {**message, "node": {**node, "number": number}})
            if number == 0:
                if met is None:
                    return
                node |= met

    def _start_on(self, box: Box, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a box that was started says to the others; None if its attempt is over."""
        met: dict[str, Any] | None = box.send("start", message)[0]["meeting"]
        return met

    def cancel(self, record: LaunchRecord) -> None:
        """Any box takes it for all."""
        asked, failed = False, None
        for box, folder in self._launches.places(record):
            try:
                box.ask("cancel", folder=folder)
                asked = True
            except BackendError as error:
                failed = error
        if failed is not None and not asked:
            raise failed

    def forced_stop(self, record: LaunchRecord, patience: float | None) -> ForcedStop:
        return BoxForcedStop(self._launches, record, _SILENT if patience is None else patience)

    def _files(
        self, request: LaunchRequest, box: Box, node: int, scratch: Path
    ) -> dict[str, bytes]:
        """The files of an attempt's folder, by name; its spec is the last."""
        call = request.call
        told = replace(request, call=replace(call, path=())) if call is not None else request
        code, environment = None, request.inputs.environment_digest
        if request.inputs.code_digest is not None and request.config.gpus > 1:
            code = scratch / "code"  # what ranks import is read from it
            self._store().materialize(request.inputs.code_digest, code, request.progress)
        tree = self._uploads.tree(box, environment, Quiet()) if environment is not None else None
        kind, nodes = request.config.type.kind, len(self._launches.boxes(request.record))
        spec = host_launch_spec(
            told,
            self._site(request, box, node),
            root=request.code_root(self._project),
            code=code,
            python=f"{tree}/bin/python" if tree is not None else str(box.hello["python"]),
            tree=Path(tree) if tree is not None else None,
            devices=[
                device.index
                for device in devices_of(box).visible
                if kind is GPUType.CPU or device.may_be(kind)
            ],
            share_gpus=False,
            tracker=None,
            nodes=nodes,
        )
        files: dict[str, bytes] = {}
        if call is not None:
            write_call(scratch, call)
            files |= {file.name: file.read_bytes() for file in scratch.iterdir() if file.is_file()}
        if spec.runs_python:
            files["rank.zip"] = rank_zip(compiled=False)
        spec, tracker = self._tracked(request, spec, box)
        return {**files, **tracker, **entrypoint_files(spec)}

    def _tracked(
        self, request: LaunchRequest, spec: LaunchSpec, box: Box
    ) -> tuple[LaunchSpec, Mapping[str, bytes]]:
        """The spec with the tracker, and its files."""
        home, python = None, spec.python
        alone = len(self._launches.boxes(request.record)) == 1  # others do not reach a store there
        if alone and not lacks_mlflow(request.config, box):
            home = self._launches.layout(request.record).state_dir
        tracker = node_tracker(request, project=self._project, python=python, home=home)
        if tracker is None:
            return spec, {}
        archive, *words = tracker.spec.argv
        argv = (spec.python, f"{spec.run_dir}/{archive}", *words)
        return replace(spec, tracker=replace(tracker.spec, argv=argv)), tracker.files

    def _site(self, request: LaunchRequest, box: Box, node: int) -> HostSite:
        hello = box.hello
        return HostSite(
            layout=self._launches.layout(request.record, node),
            folder_of=lambda record: self._launches.path(record, box),
            gpu_locks=hello["gpu_locks"],
            shared_gpu_locks=hello["shared_gpu_locks"],
            port_locks=hello["port_locks"],
            processors=lambda: int(hello["processors"]),
            path=hello["path"],
        )

    @contextmanager
    def _explained(self, request: LaunchRequest) -> Iterator[None]:
        try:
            yield
        except SshConnectionLost:
            raise
        except BackendError as error:
            raise BackendError(
                f"`{request.ref}` could not be started: {error.message}",
                hint=error.hint,
                code=error.code if error.code != BackendError.code else "launch_failed",
            ) from error

"""Uploads of all launches of one apply: what they share, which leases keep gc away from, and the
launch folder of each."""

import gzip
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from sgpu_decl.backends.archives import agent_zip
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.launch_folder import NodeProgram, launch_files
from sgpu_decl.backends.remote.staging.lease import Lease, wait_for_agents
from sgpu_decl.backends.remote.staging.remote_layout import Uses
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.backends.remote.staging.state_marks import write_mark
from sgpu_decl.code.code_store import CodeStore
from sgpu_decl.content.code_tree import CODE_TOP
from sgpu_decl.content.packs import index_name
from sgpu_decl.content.store.pack_writer import send
from sgpu_decl.errors import BackendError, SgpuError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.step_progress import Progress, Quiet
from sgpu_decl.places.file_place import CountingReader, file_size
from sgpu_decl.scratch_folders import scratch_folder
from sgpu_decl.system_errors import error_text

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.environments.environment_store import EnvironmentStore

LAST = "spec.json"
"""Written last: a launch folder that has it is complete."""

_UPLOADS = 6  # at once, for each launch
_LEVEL = 6


def upload_code(area: StagingArea, store: CodeStore, digest: str, progress: Progress) -> None:
    """Have the code with that digest there, as an archive.

    Raises:
        SgpuError: it is not in the store, or the storage refuses it.
    """
    path = area.layout.code(digest)

    def upload() -> None:
        if file_size(area.files, path) is not None or area.send_changes(store, digest, progress):
            return
        with scratch_folder("upload") as scratch:
            archive = scratch / "code.tar.gz"
            write_archive(store, digest, archive, progress)
            size = archive.stat().st_size
            area.make_folder_once(area.layout.codes)
            progress.advance("uploading", 0, size)
            area.files.put(path, archive, lambda sent: progress.advance("uploading", sent, size))

    area.run_once(path, upload)


def upload_agent(area: StagingArea, progress: Progress, room: ModuleType | None = None) -> str:
    """Have the node agent there, with a `room` of the backend; return its digest. It comes before
    all else that is shared, see `lease.wait_for_agents`. Raises BackendError."""
    digest, content = agent_zip(room)
    path = area.layout.agent(digest)

    def upload() -> None:
        there = {
            f"{area.layout.agents}/{agent.name}": agent.size
            for agent in wait_for_agents(area, progress)
        }
        if there.get(path) != len(content):
            area.make_folder_once(area.layout.agents)
            area.files.put(path, content)

    area.run_once(path, upload)
    return digest


def upload_environment(
    area: StagingArea, store: "EnvironmentStore", digest: str, progress: Progress
) -> str:
    """Have the environment with that digest, or of that lock, there, as packs. Return the digest of
    its manifest.

    Raises:
        SgpuError: it is damaged, or the storage refuses it.
    """
    tree = store.build_of(digest) or digest
    manifest = store.need_manifest(tree)

    def upload() -> None:
        folder = area.layout.packs
        if file_size(area.files, f"{folder}/{index_name(tree)}") is None:
            send(manifest, store.objects, area.files, folder, progress)

    area.run_once(f"environment {tree}", upload)
    return tree


def fill_launch_folder(
    area: StagingArea,
    request: LaunchRequest,
    program: NodeProgram,
    *,
    project: Path,
    root: Path,
    store: CodeStore,
    environment: str | None,
) -> None:
    """Fill a launch folder.

    Args:
        program: how the backend starts its nodes.
        project: the folder of the project.
        root: what the entrypoint is relative to.
        store: has the pinned code.
        environment: the digest of the environment's manifest, where one is declared.

    Raises:
        SgpuError: something is missing here, or the storage refuses it.
        OSError: this machine has no room.
    """
    folder = area.layout.launch(request.record)
    commands = area.layout.commands(folder)
    alone = request.config.ranks <= program.nodes(request)  # one rank on each node
    with scratch_folder("launch") as scratch:
        pickles = scratch / "call"
        pickles.mkdir()
        code = None
        if request.inputs.code_digest is not None and not alone:
            code = scratch / "code"
            store.materialize(request.inputs.code_digest, code, request.progress)
        files = launch_files(
            request, program, area.layout, folder, project=project, root=root,
            scratch=pickles, code=code, environment=environment, part=area.files.part,
        )  # fmt: skip
        last = files.pop(LAST)
        remote = area.command_files
        area.make_folder_once(folder)
        area.run_once(commands, lambda: remote.make_folder(commands))
        _at_once([_putting(area, f"{commands}/{name}", file) for name, file in files.items()])
        remote.put(f"{commands}/{LAST}", last)


def _putting(area: StagingArea, path: str, content: bytes | Path) -> Callable[[], None]:
    """One may be there: the first file of a launch is its lease (`lease.Lease`)."""
    put = area.command_files.put
    return lambda: area.run_once(path, lambda: put(path, content))


def _at_once(steps: Iterable[Callable[[], None]]) -> None:
    """Take all steps at the same time; what the first of them raises comes when all have ended."""
    with ThreadPoolExecutor(_UPLOADS, thread_name_prefix="upload") as pool:
        for future in [pool.submit(step) for step in steps]:
            future.result()


class Uploader:
    """A backend prepares launches with `share`, stages each with `fill`, and ends with `release`.

    Args:
        area_of: the staging area of a launch. Launches of one area get the same object.
        program: how the backend starts its nodes.
        marks: whether plans read the marks of states there.
    """

    def __init__(
        self,
        context: "BackendContext",
        area_of: Callable[[LaunchRequest], StagingArea],
        program: NodeProgram,
        *,
        marks: bool = False,
    ) -> None:
        self._project = context.project
        self._store = context.store()
        self._environments = context.environments
        self._area_of = area_of
        self._program = program
        self._mark = context.mark if marks else None
        self._leases: dict[AttemptRef, Lease] = {}

    def share(self, requests: Sequence[LaunchRequest], progress: Progress) -> None:
        """Upload what launches share with others: agent, code, environments. From now on each has
        a lease, until `release`.

        Raises:
            SgpuError: it is missing here, or the storage refuses it.
        """
        groups: dict[StagingArea, list[LaunchRequest]] = {}
        for request in requests:
            groups.setdefault(self._area_of(request), []).append(request)
        for area, group in groups.items():
            apart = area.layout.command_root is not None
            own = None if apart else self._program.lease_file(group[0])
            lease = Lease(area, [item.record for item in group], own)
            lease.begin()
            try:
                for request in group:
                    self._upload(request, area, progress)
            except SgpuError:
                lease.drop()
                raise
            self._leases |= dict.fromkeys((item.ref for item in group), lease)

    def fill(self, request: LaunchRequest, files: Mapping[str, bytes] | None = None) -> Uses:
        """Upload the launch folder, and what it shares unless that was done; return what it needs.

        Args:
            files: the files of the folder, unless they are those of a run.

        Raises:
            SgpuError: it is missing here, or the storage refuses it.
        """
        if request.ref not in self._leases:
            self.share([request], Quiet())
        try:
            uses = self._filled(request) if files is None else self._put(request, files)
            if self._mark is not None:
                write_mark(self._area_of(request), request.record.lineage, self._mark)
        except SgpuError:
            self.release(request.ref)
            raise
        return uses

    def release(self, ref: AttemptRef) -> None:
        """A launch has its marker, or failed: it needs no lease any more."""
        lease = self._leases.pop(ref, None)
        if lease is not None:
            lease.release(ref)

    def _filled(self, request: LaunchRequest) -> Uses:
        area = self._area_of(request)
        uses = self._upload(request, area, Quiet())
        try:
            fill_launch_folder(
                area,
                request,
                self._program,
                project=self._project,
                root=request.code_root(self._project),
                store=self._store,
                environment=uses.environment,
            )
        except OSError as error:
            raise BackendError(
                f"`{request.ref}` could not be staged: {error_text(error)}",
                hint=f"see that there is room in `{tempfile.gettempdir()}`",
                code="launch_failed",
            ) from error
        return uses

    def _put(self, request: LaunchRequest, files: Mapping[str, bytes]) -> Uses:
        area = self._area_of(request)
        uses = self._upload(request, area, Quiet())
        folder = area.layout.launch(request.record)
        commands = area.layout.commands(folder)
        area.make_folder_once(folder)
        area.run_once(commands, lambda: area.command_files.make_folder(commands))
        _at_once([_putting(area, f"{commands}/{name}", file) for name, file in files.items()])
        return uses

    def _upload(self, request: LaunchRequest, area: StagingArea, progress: Progress) -> Uses:
        agent = upload_agent(area, progress, self._program.room)
        code, environment = request.inputs.code_digest, request.inputs.environment_digest
        if code is not None:
            upload_code(area, self._store, code, progress)
        if environment is not None:
            environment = upload_environment(area, self._environments(), environment, progress)
        return Uses(agent=agent, code=code, environment=environment)


def write_archive(store: CodeStore, digest: str, file: Path, progress: Progress) -> None:
    """Write the code with that digest to a file. The same code gives the same bytes of
    tar, whoever packs it and when.

    Args:
        progress: told `staging` and then `archiving`, in bytes of content.

    Raises:
        SgpuError: the code is not in the store, or a file of it is damaged.
    """
    snapshot = store.require(digest)
    with (
        scratch_folder("code") as scratch,
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as archive,
    ):
        archive.addfile(_member(CODE_TOP, tarfile.DIRTYPE, 0o755))
        tree = scratch / CODE_TOP
        store.materialize(snapshot.digest, tree, progress)
        folders = {""}
        total, before = sum(entry.size for entry in snapshot.entries), 0
        for entry in snapshot.entries:
            for folder in _folders(entry.path):
                if folder not in folders:
                    folders.add(folder)
                    archive.addfile(_member(f"{CODE_TOP}/{folder}", tarfile.DIRTYPE, 0o755))
            name = f"{CODE_TOP}/{entry.path}"
            if entry.target is not None:
                link = _member(name, tarfile.SYMTYPE, 0o777)
                link.linkname = entry.target
                archive.addfile(link)
                continue
            member = _member(name, tarfile.REGTYPE, 0o755 if entry.executable else 0o644)
            member.size = entry.size
            advance = partial(_tell, progress, before, total)
            with CountingReader(tree / entry.path, advance) as content:
                archive.addfile(member, content)
            before += entry.size


def _tell(progress: Progress, before: int, total: int, read: int) -> None:
    progress.advance("archiving", before + read, total)


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, mode
    return member


def _folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]

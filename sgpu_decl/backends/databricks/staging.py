"""Bringing to a workspace what a launch takes: what is shared once, by content, and the folder of
the launch itself, whose `spec.json` comes last."""

import tempfile
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.databricks.accelerating import machines_of
from sgpu_decl.backends.databricks.archiving import write_archive
from sgpu_decl.backends.databricks.files import RemoteFiles
from sgpu_decl.backends.databricks.holding import agents
from sgpu_decl.backends.databricks.node import agent_zip, manifest_name, node_files
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.config.run import RunConfig
from sgpu_decl.environments.progress import Progress, Sent
from sgpu_decl.errors import SgpuError
from sgpu_decl.staging.store import Store

if TYPE_CHECKING:
    from sgpu_decl.environments.stored.store import EnvironmentStore

__all__ = ["LAST", "bring_agent", "bring_code", "bring_environment", "bring_launch"]

LAST = "spec.json"
"""A launch folder that has it is whole."""

_UPLOADS = 6  # at once, for each launch


def bring_code(workspace: Workspace, store: Store, digest: str, progress: Progress) -> str:
    """Have the code with that digest in the workspace; return the path of its archive.

    Raises:
        SgpuError: it is not in the store, or the workspace does not take it.
    """
    path = workspace.places.code(digest)

    def bring() -> None:
        if workspace.files.size(path) is not None:
            return
        with tempfile.TemporaryDirectory(prefix="sgpu-upload-") as scratch:
            archive = Path(scratch, "code.tar.gz")
            write_archive(store, digest, archive, progress)
            size = archive.stat().st_size
            _make_folder_of(workspace, path)
            progress.advance("uploading", 0, size)
            workspace.files.put(
                path, archive, lambda sent: progress.advance("uploading", sent, size)
            )

    workspace.once(path, bring)
    return path


def bring_agent(workspace: Workspace) -> str:
    """Have the node agent in the workspace; return its digest. It comes before all else that is
    shared, see `holding.agents`. Raises BackendError."""
    digest, content = agent_zip()
    path = workspace.places.agent(digest)

    def bring() -> None:
        there = {f"{workspace.places.agents}/{it.name}": it.size for it in agents(workspace)}
        if there.get(path) != len(content):
            _make_folder_of(workspace, path)
            workspace.files.put(path, content)

    workspace.once(path, bring)
    return digest


def bring_environment(
    workspace: Workspace, store: "EnvironmentStore", digest: str, progress: Progress
) -> None:
    """Have the environment with that digest, or of that lock, in the workspace, as packs.

    Raises:
        SgpuError: it is damaged, or the workspace does not take it.
    """
    from sgpu_decl.agent.environment.packs import index_name
    from sgpu_decl.environments.stored.packing import make_index, send

    made = store.built(digest) or digest
    manifest = store.manifest(made)
    if manifest is None:
        raise SgpuError(
            f"the environment {made[:19]} is not in the store",
            hint="plan again on this machine",
            code="environment_missing",
        )

    def bring() -> None:
        place = _Packs(workspace)
        if place.has([index_name(made)]):
            return
        workspace.files.make_folder(workspace.places.packs)
        with tempfile.TemporaryDirectory(prefix="sgpu-upload-") as scratch:
            file = Path(scratch, "manifest")
            file.write_bytes(manifest.to_bytes())
            workspace.files.put(f"{workspace.places.packs}/{manifest_name(made)}", file)
        send(make_index(manifest), store.objects, place, progress)

    workspace.once(f"environment {made}", bring)


def bring_launch(
    workspace: Workspace,
    launching: Launching,
    config: RunConfig,
    folder: str,
    *,
    root: Path,
    store: Store,
    environment: str | None,
) -> None:
    """Fill a launch folder.

    Args:
        folder: where it lies in the workspace.
        root: what the entrypoint is relative to.
        store: has the pinned code.
        environment: the digest of the environment's manifest, where one is declared.

    Raises:
        SgpuError: something is missing here, or the workspace does not take it.
    """
    machines = machines_of(config)
    nodes = machines.nodes if machines is not None else 1
    with tempfile.TemporaryDirectory(prefix="sgpu-launch-") as scratch:
        pickles = Path(scratch, "call")
        pickles.mkdir()
        code = None
        if launching.code_digest is not None and config.gpus // nodes > 1:
            code = Path(scratch, "code")
            store.materialize(launching.code_digest, code)
        files = node_files(
            launching,
            config,
            root=root,
            nodes=nodes,
            scratch=pickles,
            code=code,
            environment=environment,
        )
        last = files.pop(LAST)
        remote = workspace.files
        workspace.once(folder, lambda: remote.make_folder(folder))
        _at_once([_putting(remote, f"{folder}/{name}", it) for name, it in files.items()])
        remote.put(f"{folder}/{LAST}", last)


class _Packs:
    """The folder of packs, as `environments.stored.packing` wants it."""

    def __init__(self, workspace: Workspace) -> None:
        self._files = workspace.files
        self._folder = workspace.places.packs

    def has(self, names: Collection[str]) -> set[str]:
        if len(names) == 1:  # a folder may hold very many
            (name,) = names
            return set() if self._files.size(f"{self._folder}/{name}") is None else {name}
        return {it.name for it in self._files.list(self._folder)}.intersection(names)

    def put(self, name: str, file: Path, sent: Sent) -> None:
        self._files.put(f"{self._folder}/{name}", file, sent)

    def get(self, name: str, file: Path) -> None:
        file.write_bytes(self._files.get(f"{self._folder}/{name}"))


def _make_folder_of(workspace: Workspace, path: str) -> None:
    folder = path.rpartition("/")[0]
    workspace.once(folder, lambda: workspace.files.make_folder(folder))


def _putting(files: RemoteFiles, path: str, content: bytes | Path) -> Callable[[], None]:
    return lambda: files.put(path, content)


def _at_once(steps: Iterable[Callable[[], None]]) -> None:
    """Take all steps at the same time; what the first of them raises comes when all have ended."""
    with ThreadPoolExecutor(_UPLOADS, thread_name_prefix="upload") as pool:
        for future in [pool.submit(step) for step in steps]:
            future.result()

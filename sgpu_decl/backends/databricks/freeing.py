"""Giving back what launches took in a workspace: what nodes were given, and what launches share and
none needs any more."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sgpu_decl.agent.environment.packs import Pack, index_name
from sgpu_decl.backends.databricks.complaints import Unknown
from sgpu_decl.backends.databricks.files import RemoteFiles
from sgpu_decl.backends.databricks.holding import FLAG, freeing, on_its_way
from sgpu_decl.backends.databricks.node import manifest_name
from sgpu_decl.backends.databricks.places import BACK, MARKER, Uses, uses_in
from sgpu_decl.backends.databricks.workspace import Workspace

__all__ = ["collect", "free_launch", "unstage_launch"]

_LOOKS = 8  # at once


def unstage_launch(workspace: Workspace, folder: str) -> None:
    """Delete what a launch folder was filled with, and keep what nodes brought back to it; harmless
    where it is gone.

    Raises:
        BackendError: the workspace does not let us.
    """
    there = workspace.files.list(folder)
    if any(it.name == BACK for it in there):
        names = [it.name for it in there if it.name not in (BACK, MARKER)]
        # The marker goes last: until then the launch counts as one that needs its objects.
        for name in (*names, *(it.name for it in there if it.name == MARKER)):
            workspace.files.delete(f"{folder}/{name}")
    else:
        workspace.files.delete(folder)


def free_launch(workspace: Workspace, folder: str) -> None:
    """Delete a launch folder with all that is in it. Raises BackendError."""
    workspace.files.delete(folder)


def collect(workspace: Workspace) -> int | None:
    """Delete the shared objects that no launch folder needs; returns the bytes that were freed, or
    `None` where a launch is on its way and nothing was deleted.

    Raises:
        BackendError: the workspace does not answer, or does not let us.
    """
    try:
        with freeing(workspace) as go_on:
            return _collected(workspace, go_on)
    except Unknown:
        return 0  # nothing was ever shared


def _collected(workspace: Workspace, go_on: Callable[[], None]) -> int | None:
    files, places = workspace.files, workspace.places
    kept: list[Uses] = []
    for launch in _launches(files, f"{places.root}/runs", workspace.connection.now()):
        if launch.uses is None:
            return None
        kept.append(launch.uses)
    environments = {it.environment for it in kept if it.environment is not None}
    packs = {name for it in environments for name in _packs(files, places.packs, it)}
    needed = {
        f"{places.root}/objects/code": {places.code(it.code) for it in kept if it.code},
        places.agents: {places.agent(it.agent) for it in kept},
        places.packs: {f"{places.packs}/{name}" for name in packs},
    }
    freed = 0
    for folder, wanted in needed.items():
        for it in files.list(folder):
            path = f"{folder}/{it.name}"
            if path not in wanted and not it.folder and not it.name.startswith(FLAG):
                go_on()
                files.delete(path)
                freed += it.size
    workspace.forget()
    return freed


@dataclass(frozen=True, slots=True)
class _Launch:
    """`uses` is None while it is on its way."""

    folder: str
    uses: Uses | None


def _launches(files: RemoteFiles, root: str, now: float) -> Iterator[_Launch]:
    """All launch folders that count: three levels below the root. `now` is the workspace's."""
    folders = [root]
    with ThreadPoolExecutor(_LOOKS, thread_name_prefix="look") as pool:
        for _ in range(3):
            listed = pool.map(files.list, folders)
            folders = [
                f"{folder}/{it.name}"
                for folder, found in zip(folders, listed, strict=True)
                for it in found
                if it.folder
            ]
        for folder, found in zip(folders, pool.map(files.list, folders), strict=True):
            names = {it.name for it in found}
            if on_its_way(found, now):
                yield _Launch(folder, None)
            elif MARKER in names:
                yield _Launch(folder, uses_in(files.get(f"{folder}/{MARKER}")))


def _packs(files: RemoteFiles, folder: str, environment: str) -> Iterator[str]:
    """The files that make an environment."""
    name = index_name(environment)
    yield name
    yield manifest_name(environment)
    try:
        index: dict[str, Any] = json.loads(files.get(f"{folder}/{name}"))
    except (Unknown, ValueError):
        return
    for contents in index["packs"]:
        yield Pack(tuple((str(key), int(size)) for key, size in contents)).name

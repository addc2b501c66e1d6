"""The stores of code and environments that all projects of a user share."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from sgpu_decl.content.store.content_store import default_root
from sgpu_decl.content.store.object_packs import ObjectPacks
from sgpu_decl.facts.opened_project import OpenedProject
from sgpu_decl.model.doctor_finding import Finding, fail, few, ok, warn
from sgpu_decl.model.state import Attempt, State

__all__ = ["check_content_stores"]

_CHECK = "store"
_LARGEST = 1 << 20  # bytes of an object that is read
_MOST = 256  # objects: one of each folder
_CONTENTS = 16  # that are read of each pack


def check_content_stores(project: OpenedProject, states: tuple[State, ...]) -> Iterator[Finding]:
    """Read a sample of the objects, and check whether runs lack an object."""
    root = default_root()
    if not os.path.isdir(root):
        yield ok(_CHECK, f"there is no store yet (`{root}`)")
        return
    folders = (root / "objects", root / "environments" / "objects")
    sample = [path for folder in folders for path in _sample(folder)]
    packs = ObjectPacks(root / "packs").check(_CONTENTS)
    damaged = [path for path in sample if not _is_whole(path)]
    damaged += [path for path, is_whole in packs.items() if not is_whole]
    for path in damaged:
        yield fail(
            _CHECK,
            f"`{path}` does not match its checksum",
            "delete it, and check the disk; the next `sgpu apply` stores it again from your files",
        )
    yield from _missing(project, states)
    unreferenced = project.store.unreferenced()
    freed = f"; unused snapshots of code: {unreferenced}" if unreferenced else ""
    whole = len(sample) + len(packs) - len(damaged)
    are = "sampled object is" if whole == 1 else "sampled objects are"
    yield ok(_CHECK, f"`{root}`: {whole} {are} whole{freed}")


def _missing(project: OpenedProject, states: tuple[State, ...]) -> Iterator[Finding]:
    again = "the next `sgpu apply` of a changed run, or `--rerun`, stores it again"
    current = [
        resource.last
        for state in states
        for resource in state.resources.values()
        if resource.last is not None and not resource.gone
    ]
    for digest, users in _users((item.inputs.code_digest, item) for item in current).items():
        missing = project.store.lacking(digest)
        if missing is None:
            yield warn(_CHECK, f"the code of {users} is missing", again)
        elif missing:
            yield warn(_CHECK, f"the code of {users} lacks `{missing[0]}`", again)
    for digest, users in _users((item.inputs.environment_digest, item) for item in current).items():
        manifest = project.environments.manifest(digest)
        if manifest is None:
            yield warn(_CHECK, f"the environment of {users} is missing", again)
        elif files := project.environments.missing(manifest):
            yield warn(_CHECK, f"the environment of {users} lacks `{files[0].path}`", again)


def _users(pairs: Iterable[tuple[str | None, Attempt]]) -> dict[str, str]:
    """The attempts by what they use, in words."""
    by_digest: dict[str, list[str]] = {}
    for digest, attempt in pairs:
        if digest is not None:
            by_digest.setdefault(digest, []).append(str(attempt.ref))
    return {digest: few(names) for digest, names in by_digest.items()}


def _sample(objects: Path) -> list[Path]:
    """The first small object of each folder."""
    try:
        folders = sorted(objects.iterdir())[:_MOST]
    except OSError:
        return []
    sample = []
    for folder in folders:
        small = (file for file in sorted(_files(folder)) if file.stat().st_size <= _LARGEST)
        sample += [path for path in (next(small, None),) if path is not None]
    return sample


def _files(folder: Path) -> list[Path]:
    try:
        return [
            Path(entry.path) for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)
        ]
    except OSError:
        return []


def _is_whole(path: Path) -> bool:
    """Code is named by folder and file together, environments by the file alone or with `.x`."""
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    name = path.name.partition(".")[0]
    return content in (name, path.parent.name + name)

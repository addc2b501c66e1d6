"""The stores of code and environments that all projects of a user share."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sgpu_decl.content.store.content_store import ContentStore, default_root
from sgpu_decl.content.store.object_packs import ObjectPacks
from sgpu_decl.model.doctor_finding import Finding, fail, few, ok, warn
from sgpu_decl.model.state import Attempt, State
from sgpu_decl.planning.project import Project

_CHECK = "store"
_LARGEST = 1 << 20  # bytes of an object that is read
_CONTENTS = 16  # that are read of each pack


def check_content_stores(project: Project, states: tuple[State, ...]) -> Iterator[Finding]:
    """Read a sample of the objects, and check whether runs lack an object."""
    root = default_root()
    if not os.path.isdir(root):
        yield ok(_CHECK, f"there is no store yet (`{root}`)")
        return
    looked = {
        **_objects(project.store),
        **_objects(project.environments),
        **ObjectPacks(root / "packs").check(_CONTENTS),
    }
    damaged = [path for path, is_whole in looked.items() if not is_whole]
    for path in damaged:
        yield fail(
            _CHECK,
            f"`{path}` does not match its checksum",
            "delete it, and check the disk; the next `sgpu apply` stores it again from your files",
        )
    yield from _missing(project, states)
    unreferenced = project.store.unreferenced()
    freed = f"; unused snapshots of code: {unreferenced}" if unreferenced else ""
    whole = len(looked) - len(damaged)
    are = "sampled object is" if whole == 1 else "sampled objects are"
    yield ok(_CHECK, f"`{root}`: {whole} {are} whole{freed}")


def _missing(project: Project, states: tuple[State, ...]) -> Iterator[Finding]:
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


def _objects(store: ContentStore[Any]) -> dict[Path, bool]:
    """Whether a small object of each folder is whole."""
    looked: dict[str, tuple[Path, bool]] = {}
    for name in store.object_names():
        if name[:2] in looked:
            continue
        path = Path(store.object_path(name))
        with suppress(FileNotFoundError):
            if path.stat().st_size <= _LARGEST:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                looked[name[:2]] = path, content == name.partition(".")[0]
    return dict(looked.values())

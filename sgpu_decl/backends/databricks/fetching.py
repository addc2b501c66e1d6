"""The files that ranks left in SGPU_OUTPUT_DIR on all nodes, brought into one folder here."""

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sgpu_decl.backends.base import Output
from sgpu_decl.backends.databricks.files import RemoteFiles
from sgpu_decl.environments.progress import Progress
from sgpu_decl.errors import BackendError

__all__ = ["fetch_output"]

_DOWNLOADS = 8  # at once


@dataclass(frozen=True, slots=True)
class _File:
    """One file: where it lies there, and its name here."""

    source: str
    name: str
    size: int


def fetch_output(
    files: RemoteFiles, remote: str, nodes: Sequence[int], folder: Path, progress: Progress
) -> Output:
    """Bring here what is not here yet.

    Files of all nodes come into one folder, as on one machine. Where a name is taken, as a file or
    as a folder, by a node before, a file lies below `node_K/`.

    Args:
        remote: where the nodes of an attempt brought things: `…/back/N`.
        folder: where they come to.

    Raises:
        BackendError: the workspace does not answer.
    """
    found = _named(files, remote, nodes)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    total, done = sum(it.size for it in found), 0
    lacking: dict[str, BackendError] = {}
    with (
        # Beside them: a name may be as long as names can be.
        tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as scratch,
        ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="download") as pool,
    ):
        going = {
            pool.submit(_fetch, files, it, folder, Path(scratch, str(at))): it
            for at, it in enumerate(found)
        }
        for future in as_completed(going):
            file, error = going[future], future.exception()
            if isinstance(error, BackendError):
                lacking[file.name] = error
            elif error is not None:
                raise error
            done += file.size
            progress.advance("fetching", done, total)
    here = [it for it in found if it.name not in lacking]
    reasons = [f"{error.message}; {error.hint}" for error in lacking.values()]
    return Output(
        folder=folder,
        files=len(here),
        bytes=sum(it.size for it in here),
        lacking=tuple(sorted(lacking)),
        why=min(reasons, default=""),
    )


def _named(files: RemoteFiles, remote: str, nodes: Sequence[int]) -> list[_File]:
    taken: set[str] = set()
    folders: set[str] = set()

    def clashes(name: str) -> bool:
        return name in taken or name in folders or not taken.isdisjoint(_folders_of(name))

    found = []
    for node in sorted(nodes):
        above = f"{remote}/node_{node}/output"
        for path, size in _below(files, above, ""):
            name, own = path, f"node_{node}"
            while clashes(name):
                name, own = f"{own}/{path}", f"{own}_"
            taken.add(name)
            folders.update(_folders_of(name))
            found.append(_File(f"{above}/{path}", name, size))
    return found


def _folders_of(name: str) -> list[str]:
    return [str(it) for it in PurePosixPath(name).parents]


def _below(files: RemoteFiles, folder: str, parent: str) -> Iterator[tuple[str, int]]:
    """Paths of files, relative to where it began, and their sizes."""
    for it in files.list(folder):
        path = f"{parent}{it.name}"
        if it.folder:
            yield from _below(files, f"{folder}/{it.name}", f"{path}/")
        else:
            yield path, it.size


def _fetch(files: RemoteFiles, file: _File, folder: Path, partial: Path) -> None:
    """What is there is there whole, and does not change."""
    target = folder / PurePosixPath(file.name)
    if target.exists():
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.fetch(file.source, partial)
    partial.rename(target)

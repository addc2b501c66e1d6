"""The files that ranks left in SGPU_OUTPUT_DIR on all nodes, brought into one folder here."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import TypeVar

from sgpu_decl.backends.remote.files import RemoteFiles
from sgpu_decl.backends.remote.split_files import SplitFile
from sgpu_decl.errors import BackendError
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Progress, Sent

__all__ = ["fetch_output", "run_downloads"]

_DOWNLOADS = 8  # at once
_OUTPUT = "output/"

_Of = TypeVar("_Of")
Download = Callable[[Sent], None]
"""Brings something here; what it is given is told of more bytes whenever some have come."""


@dataclass(frozen=True, slots=True)
class _File:
    """One file: where it lies there, its name here, and its parts where it is in some."""

    source: str
    name: str
    size: int
    split: SplitFile | None = None

    def downloads(self, files: RemoteFiles, target: Path, scratch: Path) -> list[Download]:
        """What is to be brought here yet. What is there is there whole, and does not change."""
        if target.exists():
            return []
        if self.split is None:
            return [partial(_fetch, files, self.source, scratch, target)]
        return [
            partial(self.split.fetch, files, number, scratch)
            for number in self.split.missing(scratch)
        ]

    def missing(self, target: Path, scratch: Path) -> int:
        """Bytes that are not here yet."""
        if target.exists():
            return 0
        if self.split is None:
            return self.size
        return sum(map(self.split.size, self.split.missing(scratch)))

    def finish(self, target: Path, scratch: Path) -> None:
        """Put it together when all of it is here."""
        if self.split is not None and not target.exists():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.split.join(scratch, target)


def fetch_output(
    files: RemoteFiles,
    remote: str,
    nodes: Mapping[int, Mapping[str, SplitFile]],
    folder: Path,
    progress: Progress,
) -> Output:
    """Bring here what is not here yet.

    Files of all nodes come into one folder, as on one machine. Where a name is taken, as a file or
    as a folder, by a node before, a file lies below `node_K/`.

    Args:
        remote: where the nodes of an attempt brought things: `…/back/N`.
        nodes: those nodes, and of each the files that it brought in parts, by their names.
        folder: where they come to. What is not whole yet lies in `.fetching` beside it: names may
            be as long as names can be.

    Raises:
        BackendError: the workspace does not answer.
    """
    found = _named(files, remote, nodes)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = folder.parent / ".fetching"
    scratch.mkdir(mode=0o700, exist_ok=True)
    with _alone(scratch):
        failed = _brought(files, found, folder, scratch, progress)
    brought = [item for item in found if item not in failed]
    reasons = [f"{error.message}; {error.hint}" for error in failed.values()]
    return Output(
        folder=folder,
        files=len(brought),
        bytes=sum(item.size for item in brought),
        lacking=tuple(sorted(item.name for item in failed)),
        why=min(reasons, default=""),
    )


def _brought(
    files: RemoteFiles, found: Sequence[_File], folder: Path, scratch: Path, progress: Progress
) -> dict[_File, BackendError]:
    """Bring files to a folder; return those that are not here, and why."""
    places = {
        item: (folder / PurePosixPath(item.name), scratch / _short(item.source)) for item in found
    }
    waiting = {item: item.downloads(files, *places[item]) for item in found}
    total = sum(item.size for item in found)
    here = total - sum(item.missing(*places[item]) for item in found)

    def told(received: int) -> None:
        done = here + received  # a workspace need not know the sizes of its files
        progress.advance("fetching", done, max(total, done))

    failed = run_downloads(
        {download: item for item, downloads in waiting.items() for download in downloads}, told
    )
    for item in found:
        if item not in failed:
            item.finish(*places[item])
    if not failed:
        for left in scratch.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return failed


def run_downloads(downloads: Mapping[Download, _Of], told: Sent) -> dict[_Of, BackendError]:
    """Run downloads, several at once; return what those failed of that are not here.

    Args:
        downloads: each, and what it is a part of.
        told: told, from this thread, how many bytes have come in all.
    """
    news: SimpleQueue[int | Future[None]] = SimpleQueue()
    received = 0
    failed: dict[_Of, BackendError] = {}
    pool = ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="download")
    try:
        going = {pool.submit(download, news.put): of for download, of in downloads.items()}
        for future in going:
            future.add_done_callback(news.put)
        told(0)
        left = len(going)
        while left:
            new = news.get()
            if isinstance(new, int):
                received += new
                told(received)
                continue
            left -= 1
            error = new.exception()
            if isinstance(error, BackendError):
                failed[going[new]] = error
            elif error is not None:
                raise error
    finally:
        pool.shutdown(cancel_futures=True)
    return failed


def _fetch(files: RemoteFiles, source: str, scratch: Path, target: Path, received: Sent) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.fetch(source, scratch, received)
    scratch.rename(target)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until nobody else of this machine fetches into a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _short(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:32]


def _named(
    files: RemoteFiles, remote: str, nodes: Mapping[int, Mapping[str, SplitFile]]
) -> list[_File]:
    taken: set[str] = set()
    folders: set[str] = set()

    def clashes(name: str) -> bool:
        return name in taken or name in folders or not taken.isdisjoint(_folders_of(name))

    found = []
    for node, split in sorted(nodes.items()):
        above = f"{remote}/node_{node}/{_OUTPUT}"
        whole = [_File(f"{above}{path}", path, size) for path, size in _below(files, above, "")]
        parts = [
            _File(item.folder, name.removeprefix(_OUTPUT), item.bytes, item)
            for name, item in split.items()
            if name.startswith(_OUTPUT)
        ]
        for item in sorted([*whole, *parts], key=lambda item: item.name):
            name, own = item.name, f"node_{node}"
            while clashes(name):
                name, own = f"{own}/{item.name}", f"{own}_"
            taken.add(name)
            folders.update(_folders_of(name))
            found.append(_File(item.source, name, item.size, item.split))
    return found


def _folders_of(name: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(name).parents]


def _below(files: RemoteFiles, folder: str, parent: str) -> Iterator[tuple[str, int]]:
    """Paths of files, relative to where it began, and their sizes."""
    for item in files.list(folder.rstrip("/")):
        path = f"{parent}{item.name}"
        if item.folder:
            yield from _below(files, f"{folder.rstrip('/')}/{item.name}", f"{path}/")
        else:
            yield path, item.size

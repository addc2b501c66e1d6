"""The files that ranks left in SGPU_OUTPUT_DIR on all nodes, brought into one folder here."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import Any, TypeVar

from sgpu_decl.agent.private_folder import private_folder
from sgpu_decl.backends.remote.split_files import (
    SplitFile,
    changed_there,
    file_digest,
    split_files,
)
from sgpu_decl.errors import BackendError
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Progress, Sent
from sgpu_decl.places.file_place import FilePlace, cut_short

__all__ = ["fetch_output", "run_downloads"]

_DOWNLOADS = 8  # at once
_OUTPUT = "output/"

_Of = TypeVar("_Of")
Download = Callable[[Sent], None]
"""Brings something here; what it is given is told of more bytes whenever some have come."""


@dataclass(frozen=True, slots=True)
class _File:
    """One file: where it lies there, its name here, and its parts where it is in some. Its size is
    `exact` if its node says it: a listing need not know it, or may be late. Older nodes say no
    SHA-256."""

    source: str
    name: str
    size: int
    exact: bool
    sha256: str | None = None
    split: SplitFile | None = None

    def downloads(self, files: FilePlace, target: Path, scratch: Path) -> list[Download]:
        """What is to be downloaded yet. A file that is here is whole, and does not change."""
        if target.exists():
            return []
        if self.split is None:
            return [partial(self._fetch, files, scratch, target)]
        return [
            partial(self.split.fetch, files, number, scratch)
            for number in self.split.missing(scratch)
        ]

    def _fetch(self, files: FilePlace, scratch: Path, target: Path, received: Sent) -> None:
        private_folder(target.parent)
        files.fetch(self.source, scratch, received)
        if self.exact and scratch.stat().st_size != self.size:
            scratch.unlink()
            raise cut_short(self.source)
        if self.sha256 not in (None, file_digest(scratch)):
            scratch.unlink()
            raise changed_there(self.source)
        scratch.rename(target)

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
            private_folder(target.parent)
            self.split.join(scratch, target)


def fetch_output(
    files: FilePlace,
    remote: str,
    nodes: Mapping[int, Mapping[str, Any]],
    folder: Path,
    progress: Progress,
) -> Output:
    """Download the output files that are not here yet.

    Files of all nodes come into one folder, as on one machine. If a node before has a file or a
    folder of that name, a file lies below `node_K/`.

    Args:
        remote: where the nodes of an attempt brought things: `…/back/N`.
        nodes: those that brought back all, and what each of them said last, its `done`.
        folder: where they come to. What is not whole yet lies in `.fetching` beside it: names may
            be as long as names can be.

    Raises:
        BackendError: the storage does not answer.
    """
    outputs = _name_outputs(files, remote, nodes)
    private_folder(folder)
    scratch = folder.parent / ".fetching"
    scratch.mkdir(mode=0o700, exist_ok=True)
    with _alone(scratch):
        failed = _download_all(files, outputs, folder, scratch, progress)
    complete = [item for item in outputs if item not in failed]
    reasons = [f"{error.message}; {error.hint}" for error in failed.values()]
    return Output(
        folder=folder,
        files=len(complete),
        bytes=sum(item.size for item in complete),
        lacking=tuple(sorted(item.name for item in failed)),
        why=min(reasons, default=""),
    )


def _download_all(
    files: FilePlace, items: Sequence[_File], folder: Path, scratch: Path, progress: Progress
) -> dict[_File, BackendError]:
    """Download files to a folder; return those that failed, and why."""
    places = {
        item: (folder / PurePosixPath(item.name), scratch / _short(item.source)) for item in items
    }
    waiting = {item: item.downloads(files, *places[item]) for item in items}
    total = sum(item.size for item in items)
    here = total - sum(item.missing(*places[item]) for item in items)

    def report(received: int) -> None:
        received_in_all = here + received  # a storage need not know the sizes of its files
        progress.advance("fetching", received_in_all, max(total, received_in_all))

    failed = run_downloads(
        {download: item for item, downloads in waiting.items() for download in downloads}, report
    )
    for item in items:
        if item not in failed:
            item.finish(*places[item])
    if not failed:
        for partial_file in scratch.iterdir():
            shutil.rmtree(partial_file) if partial_file.is_dir() else partial_file.unlink()
    return failed


def run_downloads(downloads: Mapping[Download, _Of], report: Sent) -> dict[_Of, BackendError]:
    """Run downloads, several at once; return what those failed of that are not here.

    Args:
        downloads: each, and what it is a part of.
        report: called, from this thread, with the number of bytes that have come in all.
    """
    news: SimpleQueue[int | Future[None]] = SimpleQueue()
    received = 0
    failed: dict[_Of, BackendError] = {}
    pool = ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="download")
    try:
        going = {pool.submit(download, news.put): of for download, of in downloads.items()}
        for future in going:
            future.add_done_callback(news.put)
        report(0)
        remaining = len(going)
        while remaining:
            new = news.get()
            if isinstance(new, int):
                received += new
                report(received)
                continue
            remaining -= 1
            error = new.exception()
            if isinstance(error, BackendError):
                failed[going[new]] = error
            elif error is not None:
                raise error
    finally:
        pool.shutdown(cancel_futures=True)
    return failed


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


def _name_outputs(
    files: FilePlace, remote: str, nodes: Mapping[int, Mapping[str, Any]]
) -> list[_File]:
    names: set[str] = set()
    folders: set[str] = set()

    def clashes(name: str) -> bool:
        return name in names or name in folders or not names.isdisjoint(_folders_of(name))

    items = []
    for node, report in sorted(nodes.items()):
        above = f"{remote}/node_{node}/{_OUTPUT}"
        sizes = report.get("files")
        if sizes is None:  # an older node wrote no sizes
            sized, exact = dict(_below(files, above, "")), False
        else:
            sized, exact = _of_output(sizes), True
        digests = _of_output(report.get("sha256") or {})
        whole = [
            _File(f"{above}{path}", path, size, exact, digests.get(path))
            for path, size in sized.items()
        ]
        parts = [
            _File(item.folder, name, item.bytes, exact=True, split=item)
            for name, item in _of_output(split_files(report, f"{remote}/node_{node}")).items()
        ]
        for item in sorted([*whole, *parts], key=lambda item: item.name):
            if ".." in item.name.split("/") or item.name.startswith("/"):
                raise BackendError(
                    f"`{remote}` has the file `{item.name}`, which would lie outside of the output",
                    hint="no rank can leave such a file: see who else may write there",
                    code="remote_broken",
                )
            name, own = item.name, f"node_{node}"
            while clashes(name):
                name, own = f"{own}/{item.name}", f"{own}_"
            names.add(name)
            folders.update(_folders_of(name))
            items.append(replace(item, name=name))
    return items


def _of_output(named: Mapping[str, _Of]) -> dict[str, _Of]:
    """What stands below `output/`, by its name there."""
    return {
        name.removeprefix(_OUTPUT): item for name, item in named.items() if name.startswith(_OUTPUT)
    }


def _folders_of(name: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(name).parents]


def _below(files: FilePlace, folder: str, parent: str) -> Iterator[tuple[str, int]]:
    """Paths of files, relative to where it began, and their sizes."""
    for item in files.list(folder.rstrip("/")):
        path = f"{parent}{item.name}"
        if item.folder:
            yield from _below(files, f"{folder.rstrip('/')}/{item.name}", f"{path}/")
        else:
            yield path, item.size

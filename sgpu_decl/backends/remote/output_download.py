"""The files that nodes uploaded, brought here: what ranks left in SGPU_OUTPUT_DIR, on all nodes,
comes into one folder.

A file comes in the pieces that its node wrote, see `node_report`. Each is checked by its SHA-256
and kept until all are here, so a fetch that was interrupted goes on with the piece that it was at.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from sgpu_decl.agent.node.node_report import merged_output
from sgpu_decl.agent.private_folder import private_folder
from sgpu_decl.errors import BackendError
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Progress, Sent
from sgpu_decl.places.file_place import FilePlace, PlaceMissing, cut_short

__all__ = ["UploadedFile", "alone", "fetch_output", "run_downloads"]

_DOWNLOADS = 8  # at once

_Of = TypeVar("_Of")
Download = Callable[[Sent], None]
"""Brings something here; what it is given is told of more bytes whenever some have come."""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """One file, by its name here, and what it was uploaded as: paths, sizes and digests."""

    name: str
    pieces: tuple[tuple[str, int, str | None], ...]

    @property
    def size(self) -> int:
        """Bytes. The listing that says those of an old node's file may be late."""
        return sum(size for _, size, _ in self.pieces)

    def downloads(self, files: FilePlace, target: Path, scratch: Path) -> list[Download]:
        """What is to be downloaded yet. A file that is here is whole, and does not change."""
        absent = self._absent(target, scratch)
        return [partial(self._fetch, files, number, target, scratch) for number in absent]

    def missing(self, target: Path, scratch: Path) -> int:
        """Bytes that are not here yet."""
        return sum(self.pieces[number][1] for number in self._absent(target, scratch))

    def finish(self, target: Path, scratch: Path) -> None:
        """Put it together when all of it is here, whole or not at all."""
        if target.exists():
            return
        private_folder(target.parent)
        whole = self._piece(scratch, 0)
        if len(self.pieces) > 1:
            whole = scratch / "whole"
            whole.touch(mode=0o600)
            with whole.open("wb") as file:
                for number in range(len(self.pieces)):
                    with self._piece(scratch, number).open("rb") as piece:
                        shutil.copyfileobj(piece, file, 1 << 20)
        whole.rename(target)
        shutil.rmtree(scratch)

    def _fetch(
        self, files: FilePlace, number: int, target: Path, scratch: Path, received: Sent
    ) -> None:
        """Bring a piece here; `received` is told of its bytes. Raises BackendError: the storage
        does not answer, or the piece is not what its node wrote."""
        source, size, digest = self.pieces[number]
        piece = self._piece(scratch, number)
        private_folder(scratch)
        unfinished = piece.with_suffix(".partial")
        try:
            files.fetch(source, unfinished, received)
        except PlaceMissing as error:
            why = f"reading `{source}`: it is not there any more"
            raise PlaceMissing(why, hint="somebody deleted it there") from error
        if digest is not None:
            with unfinished.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != digest:
                short = unfinished.stat().st_size < size
                unfinished.unlink()
                raise cut_short(source) if short else _changed_there(source)
        unfinished.rename(piece)
        if len(self.pieces) == 1:
            self.finish(target, scratch)

    def _absent(self, target: Path, scratch: Path) -> list[int]:
        if target.exists():
            return []
        numbers = range(len(self.pieces))
        return [number for number in numbers if not self._piece(scratch, number).exists()]

    def _piece(self, scratch: Path, number: int) -> Path:
        return scratch / f"{number}-{(self.pieces[number][2] or '')[:16]}"


def _changed_there(source: str) -> BackendError:
    return BackendError(
        f"reading `{source}`: it is not what the node wrote there",
        hint="try again; if that does not help, it is damaged there, or somebody changed it",
        code="remote_broken",
    )


def fetch_output(
    files: FilePlace, reports: Mapping[str, dict[str, Any]], folder: Path, progress: Progress
) -> Output:
    """Download the output files that are not here yet.

    Args:
        reports: those of the nodes, by the folders that they uploaded to: `…/back/N/node_K`.
        folder: where the files come to. What is not whole yet lies in `.fetching` beside it: names
            may be as long as names can be.

    Raises:
        BackendError: the storage does not answer.
    """
    try:
        named = merged_output(reports).items()
    except OSError as error:
        raise BackendError(
            f"{error} of the output",
            hint="no rank can leave such a file: see who else may write there",
            code="remote_broken",
        ) from error
    outputs = [UploadedFile(name, tuple(pieces)) for name, pieces in named]
    private_folder(folder)
    scratch = folder.parent / ".fetching"
    scratch.mkdir(mode=0o700, exist_ok=True)
    with alone(scratch):
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
    files: FilePlace,
    items: Sequence[UploadedFile],
    folder: Path,
    scratch: Path,
    progress: Progress,
) -> dict[UploadedFile, BackendError]:
    """Download files to a folder; return those that failed, and why."""
    places = {item: (folder / item.name, scratch / _short(item.pieces[0][0])) for item in items}
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
def alone(folder: Path) -> Iterator[None]:
    """Wait until nobody else of this machine fetches into a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _short(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:40]

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
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.content.output_pieces import Piece, merged_output
from sgpu_decl.errors import BackendError
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Progress, Sent
from sgpu_decl.places.file_place import FilePlace, PlaceMissing, cut_short

__all__ = ["alone", "fetch_files", "fetch_output"]

_DOWNLOADS = 8  # at once

_Download = Callable[[Sent], None]
"""A download. It calls its argument with the size of each piece that has arrived."""


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
        named = merged_output(reports)
    except OSError as error:
        raise BackendError(
            f"{error} of the output",
            hint="no rank can leave such a file: see who else may write there",
            code="remote_broken",
        ) from error
    private_folder(folder)
    scratch = folder.parent / ".fetching"
    private_folder(scratch)
    wanted = {folder / name: pieces for name, pieces in named.items()}
    with alone(scratch):
        failed = fetch_files(files, wanted, scratch, progress)
    complete = [pieces for file, pieces in wanted.items() if file not in failed]
    reasons = [f"{error.message}; {error.hint}" for error in failed.values()]
    return Output(
        folder=folder,
        files=len(complete),
        bytes=sum(map(_size, complete)),
        lacking=tuple(sorted(os.fspath(file.relative_to(folder)) for file in failed)),
        why=min(reasons, default=""),
    )


def fetch_files(
    files: FilePlace, wanted: Mapping[Path, Sequence[Piece]], scratch: Path, progress: Progress
) -> dict[Path, BackendError]:
    """Download files that are not here yet; return those that failed, and why.

    Args:
        wanted: what each file was uploaded as. One that is here is whole, and does not change.
        scratch: a folder for what is not whole yet. Nobody else uses it.
        progress: told `fetching`, in bytes, from this thread. The listing that says those of an
            old node's file may be late.
    """
    absent = {file: pieces for file, pieces in wanted.items() if not file.exists()}
    parts = [
        (file, piece, file if len(pieces) == 1 else _kept(scratch, piece))
        for file, pieces in absent.items()
        for piece in pieces
    ]
    missing = [part for part in parts if not part[2].exists()]
    total = sum(map(_size, wanted.values()))
    here = total - _size([piece for _, piece, _ in missing])

    def report(received: int) -> None:
        received_in_all = here + received  # a storage need not know the sizes of its files
        progress.advance("fetching", received_in_all, max(total, received_in_all))

    fetch = partial(_fetch, files, scratch)
    failed = _run_downloads(
        {partial(fetch, piece, place): file for file, piece, place in missing}, report
    )
    for file, pieces in absent.items():
        if len(pieces) > 1 and file not in failed:
            _join(file, [_kept(scratch, piece) for piece in pieces], scratch / "whole")
    if not failed:
        for left in scratch.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return failed


def _size(pieces: Sequence[Piece]) -> int:
    return sum(piece.size for piece in pieces)


def _kept(scratch: Path, piece: Piece) -> Path:
    """Where a piece of several lies until all are here."""
    name = hashlib.sha256(piece.path.encode()).hexdigest()[:40]
    return scratch / f"{name}-{(piece.digest or '')[:16]}"


def _fetch(files: FilePlace, scratch: Path, piece: Piece, place: Path, received: Sent) -> None:
    """Bring a piece here. Raises BackendError: the storage does not answer, or the piece is not
    what its node wrote."""
    source = piece.path
    unfinished = _kept(scratch, piece).with_suffix(".partial")
    private_folder(place.parent)
    try:
        files.fetch(source, unfinished, received)
    except PlaceMissing as error:
        why = f"reading `{source}`: it is not there any more"
        raise PlaceMissing(why, hint="somebody deleted it there") from error
    if piece.digest is not None:
        with unfinished.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != piece.digest:
            short = unfinished.stat().st_size < piece.size
            unfinished.unlink()
            raise cut_short(source) if short else _changed_there(source)
    unfinished.rename(place)


def _join(file: Path, pieces: Sequence[Path], whole: Path) -> None:
    """Put a file together, whole or not at all."""
    private_folder(file.parent)
    whole.touch(mode=0o600)
    with whole.open("wb") as target:
        for piece in pieces:
            with piece.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
    whole.rename(file)
    for piece in pieces:
        piece.unlink()


def _changed_there(source: str) -> BackendError:
    return BackendError(
        f"reading `{source}`: it is not what the node wrote there",
        hint="try again; if that does not help, it is damaged there, or somebody changed it",
        code="remote_broken",
    )


def _run_downloads(downloads: Mapping[_Download, Path], report: Sent) -> dict[Path, BackendError]:
    """Run downloads, several at once; return the files that those are for which failed.

    Args:
        report: called, from this thread, with the number of bytes that have come in all.
    """
    news: SimpleQueue[int | Future[None]] = SimpleQueue()
    received = 0
    failed: dict[Path, BackendError] = {}
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

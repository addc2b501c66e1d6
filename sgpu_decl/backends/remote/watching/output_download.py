"""The files that nodes uploaded, brought here: what ranks left in SGPU_OUTPUT_DIR, on all nodes,
comes into one folder.

What its node uploaded of a file (`content.output_pieces`) is kept until all of that is here, and
compared with the report then. So each file is there as soon as it can be, and a fetch that was
interrupted goes on where it was.
"""

import fcntl
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import wait_for_lock
from sgpu_decl.content.output_pieces import DamagedOutput, Piece, contents, merged_output
from sgpu_decl.errors import BackendError
from sgpu_decl.model.rank_output import Output
from sgpu_decl.model.step_progress import Progress, Sent
from sgpu_decl.places.file_place import FilePlace, PlaceMissing, cut_short

_DOWNLOADS = 8  # at once
_CHUNK = 1 << 20

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
    with alone(scratch, progress):
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
        progress: told `fetching`, in bytes, from this thread.
    """
    absent = {file: pieces for file, pieces in wanted.items() if not file.exists()}
    missing = {
        piece.path: (piece, file)
        for file, pieces in absent.items()
        for piece in pieces
        if not _kept(scratch, piece.path).exists()
    }
    total = sum(map(_size, wanted.values()))
    here = total - sum(piece.size for piece, _ in missing.values())

    def report(received: int) -> None:
        received_in_all = here + received  # a storage need not know the sizes of its files
        progress.advance("fetching", received_in_all, max(total, received_in_all))

    awaited = Counter(file for _, file in missing.values())
    failed: dict[Path, BackendError] = {}
    lock = Lock()

    def join(file: Path) -> None:
        try:
            _join(file, absent[file], scratch)
        except BackendError as error:
            failed[file] = error

    def bring(piece: Piece, file: Path, received: Sent) -> None:
        failure = None
        try:
            _fetch(files, piece.path, _kept(scratch, piece.path), received)
        except BackendError as error:
            failure = error
        with lock:
            if failure is not None:
                failed.setdefault(file, failure)
            awaited[file] -= 1
            is_last = not awaited[file]
        if is_last and file not in failed:
            join(file)

    for file in absent:
        if file not in awaited:
            join(file)
    _run_downloads([partial(bring, piece, file) for piece, file in missing.values()], report)
    if not failed:
        for left in scratch.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return failed


def _size(pieces: Sequence[Piece]) -> int:
    return sum(piece.size for piece in pieces)


def _kept(scratch: Path, path: str) -> Path:
    """Where an uploaded file lies until all are here."""
    return scratch / hashlib.sha256(path.encode()).hexdigest()[:40]


def _fetch(files: FilePlace, path: str, place: Path, received: Sent) -> None:
    """Bring an uploaded file here. Raises BackendError: the storage does not answer."""
    unfinished = place.with_suffix(".partial")
    try:
        files.fetch(path, unfinished, received)
    except PlaceMissing as error:
        why = f"reading `{path}`: it is not there any more"
        raise PlaceMissing(why, hint="somebody deleted it there") from error
    unfinished.rename(place)


def _join(file: Path, pieces: Sequence[Piece], scratch: Path) -> None:
    """Put a file together, whole or not at all. Raises BackendError: a piece is not what its node
    wrote."""
    whole = _kept(scratch, os.fspath(file)).with_suffix(".whole")
    whole.touch(mode=0o600)
    with whole.open("wb") as target:
        for piece in pieces:
            kept = _kept(scratch, piece.path)
            try:
                here = piece._replace(path=os.fspath(kept))
                target.writelines(contents([here], most=_CHUNK))
            except DamagedOutput as error:
                short = kept.stat().st_size < piece.size
                kept.unlink()
                raise (cut_short if short else _changed_there)(piece.path) from error
    private_folder(file.parent)
    whole.rename(file)
    for piece in pieces:
        _kept(scratch, piece.path).unlink()


def _changed_there(source: str) -> BackendError:
    return BackendError(
        f"reading `{source}`: it is not what the node wrote there",
        hint="try again; if that does not help, it is damaged there, or somebody changed it",
        code="remote_broken",
    )


def _run_downloads(downloads: Sequence[_Download], report: Sent) -> None:
    """Run downloads, several at once. `report` is called, from this thread, with the number of
    bytes that have come in all."""
    news: SimpleQueue[int | Future[None]] = SimpleQueue()
    received = 0
    pool = ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="download")
    try:
        going = [pool.submit(download, news.put) for download in downloads]
        for future in going:
            future.add_done_callback(news.put)
        report(0)
        remaining = len(going)
        while remaining:
            new = news.get()
            if isinstance(new, int):
                received += new
                report(received)
            else:
                remaining -= 1
                new.result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def alone(folder: Path, progress: Progress) -> Iterator[None]:
    """Wait until nobody else of this machine fetches into a folder. `progress` is told `sharing`
    meanwhile, in seconds."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        wait_for_lock(descriptor, fcntl.LOCK_EX, partial(progress.advance, "sharing", total=0))
        yield
    finally:
        os.close(descriptor)

"""Reads many files at once, with worker processes."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from sgpu_decl.content.store.content_store import store_error
from sgpu_decl.content.workers import batches
from sgpu_decl.environments.captured.file_worker import Problem, ReadJob, Reply, receive, send
from sgpu_decl.errors import SgpuError
from sgpu_decl.system_errors import advice, error_text

MOST_WORKERS = 8
BATCH_FILES = 256
ALONE = 1 << 20  # bytes: larger files come first, so that no worker ends late
FEW = 64  # jobs that one worker finishes before a second one has started

_START = (
    "import sys; sys.path.append(sys.argv[1]);"
    "from sgpu_decl.environments.captured.file_worker import main; main(*sys.argv[2:])"
)
_PACKAGE = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where copies go: they are written in `incoming` and moved to `objects`. Both are on one file
    system."""

    objects: Path
    incoming: Path


def read(
    jobs: Sequence[tuple[ReadJob, int]], into: Destination | None, report: Callable[[int], None]
) -> Iterator[tuple[ReadJob, Reply]]:
    """Do jobs, each with the expected size of its file, and yield them as they end.

    Args:
        report: called now and then with the number of bytes that are done.

    Raises:
        SgpuError: a worker cannot be started, or was killed; the store is full, or cannot be
            written.
    """
    if not jobs:
        return
    waiting: queue.SimpleQueue[list[tuple[ReadJob, int]]] = queue.SimpleQueue()
    count = 0
    for batch in batches(jobs, lambda pair: pair[1], large=ALONE, most=BATCH_FILES):
        waiting.put(batch)
        count += 1
    done: queue.SimpleQueue[list[tuple[ReadJob, int, Reply]] | None] = queue.SimpleQueue()
    workers = min(MOST_WORKERS, len(os.sched_getaffinity(0)), count, 1 + len(jobs) // FEW)
    with contextlib.ExitStack() as stack:
        for _ in range(workers):
            stack.enter_context(_working(into, lambda worker: _feed(worker, waiting, done)))
        bytes_done = 0
        for _ in range(count):
            replies = done.get()
            if replies is None:
                raise SgpuError(
                    "a process that reads the environment was killed",
                    hint="see that the machine has memory, and try again",
                    code="environment_reader_lost",
                )
            for job, size, reply in replies:
                bytes_done += size
                if into is not None and reply.problem == Problem.UNWRITABLE:
                    refused = OSError(reply.errno, os.strerror(reply.errno))
                    raise store_error(into.objects.parent, refused)
                yield job, reply
            report(bytes_done)


@contextlib.contextmanager
def _working(
    into: Destination | None, feed: Callable[[subprocess.Popen[bytes]], None]
) -> Iterator[None]:
    """Run a worker and the thread that feeds it, until the block ends."""
    name = uuid.uuid4().hex
    where = (str(into.objects), str(into.incoming / name)) if into else ("", "")
    argv = [sys.executable, "-I", "-S", "-c", _START, str(_PACKAGE), *where]
    try:
        # In its own process group: Ctrl-C in the terminal goes to us alone.
        worker = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
    except OSError as error:
        raise SgpuError(
            f"a process that reads the environment cannot be started: {error_text(error)}",
            hint=advice(error),
            code="environment_reader_lost",
        ) from error
    thread = threading.Thread(target=feed, args=(worker,), daemon=True)
    try:
        thread.start()
        yield
    finally:
        worker.kill()
        thread.join()
        worker.communicate()
        if into is not None:  # it may fill the disk
            for leftover in into.incoming.glob(f"{name}.*"):
                leftover.unlink(missing_ok=True)


def _feed(
    worker: "subprocess.Popen[bytes]",
    waiting: "queue.SimpleQueue[list[tuple[ReadJob, int]]]",
    done: "queue.SimpleQueue[list[tuple[ReadJob, int, Reply]] | None]",
) -> None:
    """Give one worker batch after batch; `None` means that the worker ended."""
    to, answers = cast("BinaryIO", worker.stdin), cast("BinaryIO", worker.stdout)
    with contextlib.suppress(queue.Empty):
        while True:
            batch = waiting.get_nowait()
            try:
                send(to, [job for job, _ in batch])
                replies = receive(answers)
            except (OSError, ValueError):  # the worker ended, or its pipe was closed
                replies = None
            if replies is None:
                done.put(None)
                return
            pairs = zip(batch, replies, strict=True)
            done.put([(job, size, Reply(*reply)) for (job, size), reply in pairs])

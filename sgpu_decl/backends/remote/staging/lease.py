"""Leases of launches, and the lock of gc: shared objects are not deleted while a launch needs them.

An apply writes a lease below `runs` before it looks for shared objects. gc writes a lock
file beside the objects before it lists launch folders. So one of the two sees the other: gc that
sees a lease deletes nothing, and an apply that sees the lock waits.

Where lists lag (`FilePlace.lag`), gc waits between the two: first until an apply that looks now
finds the lock, then until the lease of one that did not is listed.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from sgpu_decl.backends.remote.staging.remote_layout import MARKER
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.model.step_progress import Progress
from sgpu_decl.places.file_place import PlaceEntry, PlaceMissing, elapsed

LOCK = "freeing-"
"""What the name of a lock file of gc begins with."""

STALE = 300.0
"""Seconds after which a lock is one of a process that died."""

YOUNG = 86_400.0
"""Seconds for which a launch that was not submitted keeps its lease."""

LEASE = "staging"
"""The name of a file that is a lease and nothing else."""

_CONTENT = b"1"  # not empty: whether a workspace takes empty files is not known (evidence: C23)
_AGAIN = 60.0  # seconds after which a lock is written once more
_LOOK = 0.5  # seconds between two looks at a lock of another process


class StaleLock(Exception):
    """A gc was stopped for so long that applies do not wait for its lock any more."""


class Lease:
    """Keeps what the launches of one apply share from gc, until the last of them has its marker or
    has failed.

    The lease of a single launch is a file in its launch folder, and gives way to its marker. That
    of several is in a folder of its own, so that it outlives each of them.

    Args:
        own: a file of the launch folder, as name and content, that is the lease of a single launch.
    """

    def __init__(
        self,
        area: StagingArea,
        launches: Sequence[LaunchRecord],
        own: tuple[str, bytes] | None = None,
    ) -> None:
        self._area = area
        self._refs = {launch.ref for launch in launches}
        self._several = len(self._refs) > 1
        place = area.layout.lease if self._several else area.layout.launch
        self._folder = place(launches[0])
        name, self._content = own if own and not self._several else (LEASE, _CONTENT)
        self._path = f"{self._folder}/{name}"
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Write it. Raises BackendError."""
        self._area.clear_cache()  # what was there before may have been deleted
        self._area.make_folder_once(self._folder)
        files = self._area.files
        self._area.run_once(self._path, lambda: files.put(self._path, self._content))

    def drop(self) -> None:
        """End it: gc may delete what these launches would have shared."""
        with suppress(BackendError):  # it ends by its age then
            self._area.files.delete(self._folder if self._several else self._path)

    def release(self, ref: AttemptRef) -> None:
        """Called when a launch has its marker or has failed. The lease of several launches ends
        with the last of them."""
        with self._lock:
            self._refs.discard(ref)
            last = self._several and not self._refs
        if last:
            self.drop()


def has_lease(entries: Collection[PlaceEntry], now: float) -> bool:
    """Whether a folder, by what is in it, has a lease: its launch may yet be submitted, or it keeps
    objects for several launches. `now` is the time by the clock of the files."""
    moments = [item.modified for item in entries if not item.folder]
    fresh = bool(moments) and now - max(moments) < YOUNG
    return fresh and all(item.name != MARKER for item in entries)


def wait_for_agents(area: StagingArea, progress: Progress) -> Sequence[PlaceEntry]:
    """List the folder of agents, once no gc goes on. A launch looks there before it looks for any
    other shared object. `progress` is told `freeing` while it waits, in seconds."""
    while True:
        agents = area.files.list(area.layout.agents)
        locks = [item for item in agents if is_locked(item, area.files.now)]
        if not locks:
            return agents
        silent = area.files.now() - max(item.modified for item in locks)
        progress.advance("freeing", max(0, int(silent)), int(STALE))
        time.sleep(_LOOK)


@contextmanager
def gc_lock(area: StagingArea) -> Iterator[Callable[[], None]]:
    """Hold the lock of gc. What it gives is called before each step, and keeps the lock fresh.

    Raises:
        PlaceMissing: there is nothing that launches share.
        StaleLock: before a step, the lock was not kept fresh, since this process was frozen.
        BackendError: the storage refuses it.
    """
    path = f"{area.layout.agents}/{LOCK}{uuid4().hex[:12]}"
    written = elapsed()
    _write_lock(area, path)
    time.sleep(2 * area.files.lag)

    def refresh() -> None:
        nonlocal written
        silent = elapsed() - written
        if silent > STALE - _AGAIN:  # a launch may need since what is about to be deleted
            raise StaleLock
        if silent > _AGAIN:
            written = elapsed()
            _write_lock(area, path)

    try:
        yield refresh
    finally:
        with suppress(PlaceMissing):
            area.files.delete(path)


def _write_lock(area: StagingArea, path: str) -> None:
    """Write it without content where there is no room for any: gc makes the room."""
    try:
        area.files.put(path, _CONTENT)
    except BackendError as error:
        if error.code != "no_room":
            raise
        area.files.put(path, b"")


def is_locked(entry: PlaceEntry, now: Callable[[], float]) -> bool:
    """Whether a file is the lock of a gc that goes on. `now` tells the time by the clock of the
    files."""
    return entry.name.startswith(LOCK) and now() - entry.modified < STALE

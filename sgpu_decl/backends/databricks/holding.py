"""Keeping what launches share from being freed while a launch is on its way to need it.

Whoever launches says so first, by a file in a launch folder, and looks for shared objects after
that. Whoever frees puts a flag beside the objects first, and looks for launches after that. So one
of the two sees the other: one who frees leaves everything alone where a launch is on its way, and
one who launches waits where somebody frees.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from sgpu_decl.backends.databricks.complaints import Unknown
from sgpu_decl.backends.databricks.files import Found
from sgpu_decl.backends.databricks.places import MARKER
from sgpu_decl.backends.databricks.workspace import Workspace
from sgpu_decl.errors import BackendError
from sgpu_decl.model.attempt import AttemptRef

__all__ = ["FLAG", "HOLDS", "Hold", "agents", "freeing", "on_its_way"]

FLAG = "freeing-"
"""What a flag's name begins with."""

_ALONE, _FIRST = "staging", "staging-others"
HOLDS = frozenset({_ALONE, _FIRST})
"""The files that say so."""

_YOUNG = 86_400.0  # seconds in which a launch that was not submitted may yet be
_STALE = 300.0  # seconds after which a flag is one of somebody who died
_AGAIN = 60.0  # seconds after which a flag is put once more
_LOOK = 0.5  # seconds between two looks at somebody's flag


class Hold:
    """The launches of one apply: what they share stays while one of them is on its way. It is in
    the folder of the first, `folder`, and goes with it."""

    def __init__(self, workspace: Workspace, folder: str, refs: Iterable[AttemptRef]) -> None:
        self._workspace = workspace
        self._folder = folder
        self._refs = set(refs)
        self._more = len(self._refs) > 1
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Say that they are on their way. Raises BackendError."""
        self._workspace.forget()  # what was there before may have been freed
        files, folder = self._workspace.files, self._folder
        self._workspace.once(folder, lambda: files.make_folder(folder))
        files.put(f"{folder}/{_FIRST if self._more else _ALONE}", b"")

    def drop(self) -> None:
        """They do not come: what they would have shared may go."""
        with suppress(BackendError):  # it ends by its age then
            self._workspace.files.delete(f"{self._folder}/{_FIRST if self._more else _ALONE}")

    def over(self, ref: AttemptRef) -> None:
        """A launch has its marker, or failed. One alone needs no more: its marker says so."""
        with self._lock:
            self._refs.discard(ref)
            last = self._more and not self._refs
        if last:
            self.drop()


def on_its_way(found: Collection[Found], now: float) -> bool:
    """Whether a launch folder, by what is in it, is one that may yet be submitted, or that speaks
    for others. `now` is the workspace's clock."""
    names = {it.name for it in found}
    moments = [it.modified for it in found if not it.folder]
    fresh = bool(moments) and now - max(moments) < _YOUNG
    return fresh and (MARKER not in names or _FIRST in names)


def agents(workspace: Workspace) -> Sequence[Found]:
    """What lies in the folder of agents, which is looked at first, once nobody is freeing."""
    folder = workspace.places.agents
    while True:
        found = workspace.files.list(folder)
        flags = [it for it in found if _live(it, workspace.connection.now())]
        if not flags:
            return found
        time.sleep(_LOOK)


@contextmanager
def freeing(workspace: Workspace) -> Iterator[Callable[[], None]]:
    """Fly the flag inside. What it gives is called before each step, and keeps the flag fresh.

    Raises:
        Unknown: there is nothing that launches share.
        BackendError: the workspace does not let us.
    """
    flag = f"{workspace.places.agents}/{FLAG}{uuid4().hex[:12]}"
    put = time.monotonic()
    workspace.files.put(flag, b"")

    def go_on() -> None:
        nonlocal put
        if time.monotonic() - put > _AGAIN:
            put = time.monotonic()
            workspace.files.put(flag, b"")

    try:
        yield go_on
    finally:
        with suppress(Unknown):
            workspace.files.delete(flag)


def _live(found: Found, now: float) -> bool:
    return found.name.startswith(FLAG) and now - found.modified < _STALE

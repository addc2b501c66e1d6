"""The head's folder of a Ray cluster as a place: for clusters without a shared folder."""

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from uuid import uuid4

from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.cluster.head_names import INDEX
from sgpu_decl.backends.ray.head.depot_client import DepotClient
from sgpu_decl.backends.ray.head.head_reader import HeadReader
from sgpu_decl.errors import BackendError
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.step_progress import Sent
from sgpu_decl.places.file_place import (
    FilePlace,
    PlaceEntry,
    PlaceMissing,
    byte_count,
    file_size,
    ignore_bytes,
    upload_stream,
)

SMALL = 1 << 20
"""Bytes of a file that is sent whole, whatever else is sent."""

_PIECE = 64 << 20  # bytes: the dashboard takes at most 100 MiB at once
_WINDOW = 2  # pieces in the key-value store, which is the memory of the head


class HeadPlace(FilePlace):
    """See `FilePlace`. Paths begin with `head_reader.ROOT`."""

    part: int | None = 32 << 20
    lag = 0.0

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._reader = HeadReader(dashboard)
        self._depot = DepotClient(self._reader)
        self._room = threading.BoundedSemaphore(_WINDOW)

    def now(self) -> float:
        return self._depot.now()

    def names(self, folder: str, below: str) -> Sequence[str]:
        """The paths that match a pattern below a folder, by name; folders end with a slash."""
        return self._reader.names(folder, f"/{below}")

    def stat(self, path: str) -> PlaceEntry | None:
        folder, _, name = path.rpartition("/")
        return next((entry for entry in self.list(folder) if entry.name == name), None)

    def create(self, path: str, content: bytes) -> bool:
        return bool(self._depot.ask("create", path, content)["created"])

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        size = byte_count(content)
        with upload_stream(content, sent) as stream:
            if size <= SMALL:
                self._depot.ask("put", path, stream.read())
                return
            upload, count = uuid4().hex, -(-size // _PIECE)
            with _Pieces(self._depot, self._room) as pieces:
                for number in range(count):
                    place: dict[str, Json] = {"number": number, "offset": number * _PIECE}
                    pieces.send(stream.read(_PIECE), upload=upload, **place)
                pieces.await_end()
            self._depot.ask("join", path, upload=upload, pieces=count)

    def get(self, path: str) -> bytes:
        content = self._reader.read(path)
        if not content and file_size(self, path) != 0:
            raise self.unreadable(path)
        return content

    def find(self, path: str) -> bytes | None:
        """The bytes of a file that somebody may be writing; None if there are none now."""
        return self._reader.find(path)

    def unreadable(self, path: str) -> BackendError:
        """The error about a file that is there, and cannot be read now."""
        return self._reader.unreadable(path)

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        content = self.get(path)
        file.touch(mode=0o600)
        file.write_bytes(content)
        received(len(content))

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        path = f"{folder}/{INDEX}"
        try:
            content = self._reader.read(path)
        except PlaceMissing:
            return ()
        if not content:
            raise self.unreadable(path)
        index = self._dashboard.parsed(path, content)
        entries = self._dashboard.part(path, index, "entries", dict)
        names = sorted(name for name in entries if name > after)
        return tuple(self._entry(path, name, entries[name]) for name in names)

    def _entry(self, path: str, name: str, entry: Json) -> PlaceEntry:
        """An entry of the index at a path (`cluster/head_folder.py`): one without a size is a
        folder."""
        if not isinstance(entry, dict):
            raise self._dashboard.unknown_answer(path, f"no entry of `{name}`")
        size = self._dashboard.optional_part(path, entry, "size", int)
        modified = self._dashboard.optional_part(path, entry, "modified", float)
        return PlaceEntry(name=name, folder=size is None, size=size or 0, modified=modified or 0.0)

    def make_folder(self, folder: str) -> None:
        self._depot.ask("folder", folder)

    def free_nodes(self) -> int:
        """Delete what nodes keep by content and the head does not have any more; return the bytes.
        Nodes on which a run goes on keep theirs."""
        return self._dashboard.part("gc", self._depot.ask("gc"), "freed", int)

    def delete(self, path: str) -> None:
        if self._reader.names(path):  # else no depot needs to start
            self._depot.ask("delete", path)


class _Pieces:
    """Pieces of one file that are under way. Each takes a place of the `room` until the depot has
    it, or nobody waits for it any more, since another one has failed."""

    def __init__(self, depot: DepotClient, room: threading.Semaphore) -> None:
        self._depot = depot
        self._room = room
        self._taken = 0
        self._messages: deque[str] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._taken:
            self._give_back()

    def send(self, data: bytes, **fields: Json) -> None:
        """Send a piece as soon as there is room for it. Raises BackendError."""
        # Two files that each wait for the room of the other would wait for ever.
        while not self._room.acquire(blocking=not self._taken):
            self._await_first()
        self._taken += 1
        self._messages.append(self._depot.send_piece(data, **fields))

    def await_end(self) -> None:
        """Wait until the depot has all of them. Raises BackendError."""
        while self._messages:
            self._await_first()

    def _await_first(self) -> None:
        self._depot.await_answer(self._messages.popleft())
        self._give_back()

    def _give_back(self) -> None:
        self._taken -= 1
        self._room.release()

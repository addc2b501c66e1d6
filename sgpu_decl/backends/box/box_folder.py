"""A folder of a box as a place, over the connection: for files that others see there."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from sgpu_decl.backends.box.boxes import Box, BoxRefused
from sgpu_decl.model.step_progress import Sent
from sgpu_decl.places.file_place import (
    FilePlace,
    PlaceEntry,
    byte_count,
    ignore_bytes,
    upload_stream,
)
from sgpu_decl.places.folder import place_entry, place_error

_CHUNK = 1 << 20


class BoxFolder(FilePlace):
    """See `FilePlace`. Paths are those of the box, below its `storage`."""

    part: int | None = None
    lag = 0.0

    def __init__(self, box: Box) -> None:
        self._box = box
        self._ahead: float | None = None

    def now(self) -> float:
        if self._ahead is None:
            with self._explained("asking for the time"):
                self._ahead = float(self._box.ask("file_time")["time"]) - time.time()
        return time.time() + self._ahead

    def stat(self, path: str) -> PlaceEntry | None:
        with self._explained(f"looking at `{path}`"):
            found = self._box.ask("file_stat", path=path)["entry"]
        return None if found is None else place_entry(found)

    def list(self, folder: str, *, after: str = "") -> tuple[PlaceEntry, ...]:
        with self._explained(f"looking into `{folder}`"):
            found = self._box.ask("file_list", path=folder, after=after)["entries"]
        return tuple(map(place_entry, found))

    def get(self, path: str) -> bytes:
        return b"".join(self._pieces(path))

    def fetch(self, path: str, file: Path, received: Sent = ignore_bytes) -> None:
        pieces = self._pieces(path)
        first = next(pieces)  # before the file is made
        file.touch(mode=0o600)
        with file.open("wb") as target:
            for piece in chain((first,), pieces):
                target.write(piece)
                received(len(piece))

    def put(self, path: str, content: bytes | Path, sent: Sent = ignore_bytes) -> None:
        self._write(path, content, sent, new=False)

    def create(self, path: str, content: bytes) -> bool:
        return self._write(path, content, ignore_bytes, new=True)

    def make_folder(self, folder: str) -> None:
        with self._explained(f"making the folder `{folder}`"):
            self._box.ask("file_folder", path=folder)

    def delete(self, path: str) -> None:
        with self._explained(f"deleting `{path}`"):
            self._box.ask("file_delete", path=path)

    def _pieces(self, path: str) -> Iterator[bytes]:
        """The content of a file; at least one piece."""
        asked: dict[str, Any] = {"path": path, "at": 0, "version": None}
        while True:
            with self._explained(f"reading `{path}`"):
                answer, piece = self._box.send("file_get", asked)
            yield piece
            asked |= {"at": asked["at"] + len(piece), "version": answer["version"]}
            if not piece or asked["at"] >= answer["size"]:
                return

    def _write(self, path: str, content: bytes | Path, sent: Sent, *, new: bool) -> bool:
        def parts() -> Iterator[bytes]:
            with upload_stream(content, sent) as stream:
                yield from iter(partial(stream.read, _CHUNK), b"")

        message = {"path": path, "new": new}
        with self._explained(f"writing `{path}`"):
            answer, _ = self._box.send("file_put", message, parts, byte_count(content), once=new)
        return bool(answer["made"])

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn errors of the file system there into ours."""
        try:
            yield
        except BoxRefused as error:
            if error.errno is None:
                raise
            found = OSError(error.errno, os.strerror(error.errno))
            raise place_error(f"{doing} on `{self._box.host}`", found, "it") from error

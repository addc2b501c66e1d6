"""Staging folders in which gc is due. They are remembered until gc was possible there: while a
launch has a lease nothing is deleted, and the next command tries again."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.model.jsonable import Json

__all__ = ["PendingGc"]

Key = Mapping[str, Json]


class PendingGc:
    """A file in the folder of the state. A staging folder has a key by which its backend finds it
    again."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, key: Key) -> None:
        """Something is about to be deleted there."""
        pending = self.all()
        if key not in pending:
            self._write((*pending, key))

    def all(self) -> tuple[Key, ...]:
        """Those where gc is due."""
        try:
            return tuple(json.loads(self._file.read_bytes()))
        except FileNotFoundError:
            return ()

    def settle(self, key: Key) -> None:
        """gc has run there."""
        self._write(item for item in self.all() if item != key)

    def _write(self, keys: Iterable[Key]) -> None:
        pending = [dict(key) for key in keys]
        if not pending:
            self._file.unlink(missing_ok=True)
            return
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self._file, json.dumps(pending).encode(), durable=False)

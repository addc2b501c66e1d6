"""Staging folders in which gc is due. They are remembered until gc was possible there: while a
launch has a lease nothing is deleted, and the next command tries again."""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sgpu_decl.agent.system.safe_files import private_folder
from sgpu_decl.atomic_files import write_atomic
from sgpu_decl.model.jsonable import Json
from sgpu_decl.system_errors import FULL

Key = Mapping[str, Json]


class PendingGc:
    """A file in the folder of the state. A staging folder has a key by which its backend finds it
    again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._unwritten: list[Key] = []  # by this process, on a disk that is full

    def add(self, key: Key) -> None:
        """Something is about to be deleted there."""
        try:
            with self._locked():
                pending = self._read()
                if key not in pending:
                    self._write((*pending, key))
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._unwritten.append(key)  # what is about to be deleted makes the room

    def all(self) -> tuple[Key, ...]:
        """Those where gc is due."""
        pending = self._read()
        return (*pending, *(key for key in self._unwritten if key not in pending))

    def remove(self, key: Key) -> None:
        """gc has run there."""
        self._unwritten = [item for item in self._unwritten if item != key]
        try:
            with self._locked():
                pending = self._read()
                if key in pending:
                    self._write(item for item in pending if item != key)
        except OSError as error:
            if error.errno not in FULL:  # else the next gc looks there in vain
                raise

    def _read(self) -> tuple[Key, ...]:
        """A power cut may have cut short what was written, and something else may have written."""
        try:
            pending = json.loads(self._file.read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return ()
        listed = pending if isinstance(pending, list) else ()
        return tuple(item for item in listed if isinstance(item, dict))

    def _write(self, keys: Iterable[Key]) -> None:
        pending = [dict(key) for key in keys]
        if not pending:
            self._file.unlink(missing_ok=True)
            return
        write_atomic(self._file, json.dumps(pending).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from writing between a look and a write."""
        private_folder(self._file.parent)
        handle = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

"""What this machine remembers of attempts, in their folders: what does not change any more, and
need not be asked again."""

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sgpu_decl.agent.attempt.attempt_files import parse_object
from sgpu_decl.atomic_files import write_cache
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord

_FORMAT = 1


class AttemptMemory:
    """A file of facts for each attempt. It is a cache: what it lacks is asked of the platform.
    Calls may come from several threads.

    Args:
        layout: has the folders of attempts.
        file: the name of the file in each.
    """

    def __init__(self, layout: AttemptLayout, file: str) -> None:
        self._layout = layout
        self._file = file
        self._facts: dict[AttemptRef, Mapping[str, Any]] = {}
        self._lock = threading.Lock()

    def get(self, record: LaunchRecord) -> Mapping[str, Any]:
        """The facts of an attempt; none if they are of another launch."""
        with self._lock:
            known = self._facts.get(record.ref) or self._read(record.ref)
            if known.get("token") != record.token:
                return {}
            self._facts[record.ref] = known
            return known

    def remember(self, record: LaunchRecord, **facts: Json) -> None:
        """Add facts. A file that cannot be written (a full disk, a project that is read-only) is no
        failure: this process still knows them, and the next one asks again."""
        with self._lock:
            known = {"v": _FORMAT, "token": record.token}
            for before in (self._facts.get(record.ref, {}), self._read(record.ref)):
                if before.get("token") == record.token:
                    known |= before  # another process may have added some
            self._facts[record.ref] = known | facts
            content = json.dumps(self._facts[record.ref], sort_keys=True).encode()
            write_cache(self._path(record.ref), content)

    def note_answer(self, record: LaunchRecord) -> None:
        """The platform has just said how an attempt stands. The time of the file is that moment."""
        with suppress(OSError):
            os.utime(self._path(record.ref))

    def answered_at(self, record: LaunchRecord) -> datetime | None:
        """When the platform last said how an attempt stands; None where that is not known."""
        try:
            modified = self._path(record.ref).stat().st_mtime
        except OSError:
            return None
        return datetime.fromtimestamp(modified, UTC) if self.get(record) else None

    def forget(self, ref: AttemptRef) -> None:
        """The folder of the attempt was deleted."""
        with self._lock:
            self._facts.pop(ref, None)

    def _path(self, ref: AttemptRef) -> Path:
        return self._layout.attempt(ref) / self._file

    def _read(self, ref: AttemptRef) -> Mapping[str, Any]:
        try:
            facts = parse_object(self._path(ref).read_bytes()) or {}
        except OSError:
            return {}
        return facts if facts.get("v") == _FORMAT else {}

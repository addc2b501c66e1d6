"""One entry of a journal as text, and the chain of entries."""

import hashlib
import json
from dataclasses import field
from datetime import datetime
from typing import cast

from sgpu_decl.errors import StateError
from sgpu_decl.frozen_dataclass import SOMETIMES, dataclass
from sgpu_decl.model.codec import JsonObject, to_json
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state_log import ApplySource

VERSION = 2
"""Of entries with a source; others have version 1, which an older sgpu reads."""
NO_ENTRY = "0" * 64
"""What stands for the digest of the entry before the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who appended an entry. `id` is that of the lock, `commit` the git commit of the project,
    `source` says on whose behalf an apply did it."""

    id: str
    who: str
    host: str
    operation: str
    tool_version: str
    commit: str | None = None
    source: ApplySource | None = field(default=None, metadata=SOMETIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """`prev` is the digest of the entry before, `serial` that of the state after this one, `at` the
    time of the author, which people read and nothing judges. `ops` are those of `ops.py`."""

    number: int
    prev: str
    lineage: str
    serial: int
    at: datetime
    writer: Author
    ops: tuple[Json, ...]

    @property
    def text(self) -> str:
        """Canonical JSON: equal entries are equal texts."""
        fields = cast("dict[str, Json]", to_json(self))
        version = VERSION if self.writer.source is not None else 1
        return json.dumps({"v": version, **fields}, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """The SHA-256 of an entry's text."""
    return hashlib.sha256(text.encode("ascii", "backslashreplace")).hexdigest()


def read_entry(number: int, text: str, *, store: str) -> JournalEntry:
    """Read the entry that `store` has under a number.

    Raises:
        StateError: it is no entry, or was written by a newer sgpu.
    """
    try:
        read = JsonObject(json.loads(text))
        version = read.take("v")
        if isinstance(version, int) and version > VERSION:
            raise newer(number, store)
        if type(version) is not int or version < 1:
            raise ValueError("it has no version")
        entry = read.whole(JournalEntry)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise damaged(number, store, f"cannot be read: {error}") from error
    if entry.number != number:
        raise damaged(number, store, f"says that it is entry {entry.number}")
    return entry


def damaged(number: int, store: str, what: str) -> StateError:
    return StateError(
        f"entry {number} of the state in `{store}` {what}",
        hint="nothing was changed; something other than sgpu wrote to the store: restore it from "
        "its backup",
    )


def newer(number: int, store: str) -> StateError:
    return StateError(
        f"entry {number} of the state in `{store}` was written by a newer sgpu",
        hint="upgrade sgpu on this machine; nothing was changed",
        code="state_newer",
    )

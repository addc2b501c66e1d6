"""A shared state as this machine has read it last, without a question to its store."""

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from sgpu_decl.errors import SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.owner import Presence
from sgpu_decl.model.state import Attempt, LockHolder, State
from sgpu_decl.storing.journal.position import is_whole
from sgpu_decl.storing.journal.replica import Replica
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.state_store import AT_ONCE, Patience, StateWriter

if TYPE_CHECKING:
    from sgpu_decl.storing.journal.port import Journal

_T = TypeVar("_T")


class OfflineStore:
    """`StateStore` says what each call promises; those that would need the entries are refused.

    Args:
        journal: the entries that the replica is made of. Only its name is asked for.
        replica: the database on this machine.
        url: how `open_state_store` finds the store of a replica again.
    """

    def __init__(self, journal: "Journal", replica: Path, *, url: Callable[[Path], str]) -> None:
        self._journal = journal
        self._path = replica
        self._replica = Replica(replica, journal)
        self._url = url

    @property
    def url(self) -> str:
        return self._url(self._path)

    @property
    def file(self) -> Path | None:
        return None

    def last_read(self) -> tuple[int, datetime]:
        position = self._replica.position()
        if position.at is None or not self._replica.read(is_whole):
            raise SgpuError(
                f"this machine has no copy of the shared state in `{self._journal.name}` that this "
                "version of sgpu can use",
                hint="give the command once without `--offline`",
                code="no_copy",
            )
        return position.number, position.at

    def targets(self) -> tuple[str, ...]:
        files = self._path.parent.parent.glob(f"*/{self._path.name}")
        return tuple(sorted(item.parent.name for item in files))

    def of_target(self, target: str) -> "OfflineStore":
        path = self._path.parent.with_name(target) / self._path.name
        return OfflineStore(self._journal, path, url=self._url)

    def presence(self, lineage: str) -> "Presence":  # noqa: ARG002  the protocol's
        return Presence.UNKNOWN

    def read(self) -> State | None:
        return self._reading(queries.state_of)

    def read_all(self) -> tuple[State, tuple[Attempt, ...]] | None:
        return self._reading(queries.everything_of)

    def history(self, address: Address) -> tuple[Attempt, ...]:
        return self._reading(lambda item: queries.history_of(item, address)) or ()

    def log(self, most: int) -> NoReturn:  # noqa: ARG002  the protocol's
        raise _needs_store()

    def read_past(self, number: int) -> NoReturn:  # noqa: ARG002  the protocol's
        raise _needs_store()

    def check(self) -> None:
        self.last_read()
        self._replica.check()

    def lock(
        self,
        operation: str,  # noqa: ARG002  the protocol's
        *,
        lineage: str,  # noqa: ARG002
        patience: Patience = AT_ONCE,  # noqa: ARG002
    ) -> "AbstractContextManager[StateWriter]":
        raise _needs_store()

    def unlock(self, lock_id: str) -> NoReturn:  # noqa: ARG002  the protocol's
        raise _needs_store()

    def holder(self) -> LockHolder | None:
        lock = self._replica.head().lock
        return lock[0] if lock else None

    def abandoned_lock(self) -> None:
        """None: the clock of the store says whether a lease is over."""

    def close(self) -> None:
        """There is no connection."""

    def _reading(self, ask: Callable[[sqlite3.Connection], _T]) -> _T | None:
        self.last_read()
        return self._replica.read(ask)


def _needs_store() -> SgpuError:
    return SgpuError(
        "this needs the shared state itself, not the copy of this machine",
        hint="leave out `--offline`",
        code="needs_store",
    )

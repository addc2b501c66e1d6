"""Changing state: one call, one transaction, one step of the serial."""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from sgpu_decl import __version__
from sgpu_decl.errors import NotFound, SgpuError, StateError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.state import Attempt, Intent, IntentEnd, Resource, State
from sgpu_decl.model.state_log import ApplySource
from sgpu_decl.model.times import to_text
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.sqlite.database import explained, transaction
from sgpu_decl.storing.sqlite.rows import ATTEMPT_COLUMNS, attempt_row, intent_row

_COLUMNS = ", ".join(ATTEMPT_COLUMNS)
_MARKS = ", ".join("?" * len(ATTEMPT_COLUMNS))
# What was decided at launch never changes afterwards; what was observed does.
_OBSERVED = ("state", "started_at", "ended_at", "exit_code", "failure")
_KEEP_ATTEMPT = (
    f"INSERT INTO attempts ({_COLUMNS}) VALUES ({_MARKS}) "  # noqa: S608
    "ON CONFLICT (address, number) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _OBSERVED)
    + " WHERE "
    + " OR ".join(f"attempts.{name} IS NOT excluded.{name}" for name in _OBSERVED)
)
_KEEP_RESOURCE = (
    "INSERT INTO resources (address, backend, owner, spec, last, numbered, gone, remote) "
    "VALUES (?, ?, ?, ?, ?5, max(coalesce(?5, 0), ?), ?, ?) "
    "ON CONFLICT (address) DO UPDATE SET backend = excluded.backend, owner = excluded.owner, "
    "spec = excluded.spec, gone = excluded.gone, remote = excluded.remote, "
    "last = max(coalesce(resources.last, excluded.last), coalesce(excluded.last, resources.last)), "
    "numbered = max(resources.numbered, excluded.numbered)"
)
_KEEP_INTENT = "INSERT OR REPLACE INTO intents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KEEP_LIST = "INSERT OR IGNORE INTO package_lists VALUES (?, ?)"
_HAS_HISTORY = (
    "SELECT EXISTS (SELECT 1 FROM resources WHERE address = :at AND NOT gone) "
    "OR EXISTS (SELECT 1 FROM attempts WHERE address = :at)"
)
_HAS_INTENT = "SELECT EXISTS (SELECT 1 FROM intents WHERE address = :at)"
# Where something was moved away from before, the higher of both numbers stays taken.
_COPY_RESOURCE = (
    "INSERT INTO resources (address, backend, owner, spec, last, numbered, gone, remote) "
    "SELECT :to, backend, owner, spec, last, numbered, gone, remote "
    "FROM resources WHERE address = :at "
    "ON CONFLICT (address) DO UPDATE SET backend = excluded.backend, owner = excluded.owner, "
    "spec = excluded.spec, last = excluded.last, gone = excluded.gone, remote = excluded.remote, "
    "numbered = max(resources.numbered, excluded.numbered)"
)
_LEAVE_RESOURCE = "UPDATE resources SET gone = 1, last = NULL WHERE address = :at"
# An address has no line break: the keys of matrix cells are JSON.
_MOVE_ATTEMPTS = (
    "UPDATE attempts SET address = :to, formerly = coalesce(formerly || char(10), '') || :at "
    "WHERE address = :at"
)
_MOVE_INTENTS = "UPDATE intents SET address = :to WHERE address = :at"
_LOST = "UPDATE attempts SET state = ? WHERE address = ? AND number = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a change records of its own: the time, and the version of the sgpu that made it."""

    at: datetime
    tool_version: str


def current_stamp() -> Stamp:
    return Stamp(at=datetime.now(UTC), tool_version=__version__)


class SqliteWriter:
    """Changes the tables of one connection. Threads may share it: calls wait for each other.

    Args:
        check: called first in each transaction; it may raise to refuse it.
        before_first_write: called once, before the first transaction.
        before_commit: called last in each transaction; it may raise to take all back.
        stamp: gives what each change records of its own.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        path: Path,
        check: Callable[[], None],
        before_first_write: Callable[[], None] = lambda: None,
        before_commit: Callable[[], None] = lambda: None,
        stamp: Callable[[], Stamp] = current_stamp,
    ) -> None:
        self._connection = connection
        self._path = path
        self._check = check
        self._before_first_write: Callable[[], None] | None = before_first_write
        self._before_commit = before_commit
        self._stamp = stamp
        self._guard = threading.RLock()
        self._open = False
        self._touched: set[Address] = set()
        self._resources: dict[Address, Resource] | None = None
        self._active: dict[Address, tuple[Attempt, ...]] = {}

    @property
    def state(self) -> State:
        """The state as of now. Read from the database once; each write then renews what it
        touched, so that asking after every change costs no reading of everything."""
        with self._guard, explained(self._path):
            if self._resources is None:
                self._resources = queries.resources_of(self._connection)
                self._active = {}
                for attempt in queries.active_of(self._connection):
                    where = attempt.ref.address
                    self._active[where] = (*self._active.get(where, ()), attempt)
            lineage, serial = queries.serial_of(self._connection)
            return State(
                lineage=lineage,
                serial=serial,
                resources=MappingProxyType(self._resources.copy()),
                active=tuple(
                    item for where in sorted(self._active, key=str) for item in self._active[where]
                ),
                intents=queries.intents_of(self._connection),
                package_lists=queries.package_lists_of(self._connection),
            )

    def check_held(self) -> None:
        """Nobody takes the lock of a process that lives; it may have been broken by hand."""
        with self._guard, explained(self._path):
            self._check()

    def begin(self, *intents: Intent) -> None:
        """Commit intents before their side effects. The same token again is the same intent."""
        with self.together():
            for intent in intents:
                with self._writing():
                    self._connection.execute(_KEEP_INTENT, intent_row(intent))

    def launched(self, intent: Intent, resource: Resource, attempt: Attempt) -> None:
        """Close an intent and remember what it made.

        Raises:
            StateError: another launch has this attempt number.
        """
        with self._writing(attempt.ref.address, resource.address):
            (known,) = self._connection.execute(
                "SELECT max(token) FROM attempts WHERE address = ? AND number = ?",
                (str(attempt.ref.address), attempt.ref.number),
            ).fetchone()
            if known not in {None, attempt.token}:
                raise StateError(
                    f"`{attempt.ref}` is in the history already, of another launch",
                    hint="plan again",
                )
            self._connection.execute(_KEEP_ATTEMPT, attempt_row(attempt))
            self._keep_resource(resource, last=attempt.ref.number)
            self._connection.execute("DELETE FROM intents WHERE token = ?", (intent.token,))

    def made(self, intent: Intent, resource: Resource) -> None:
        """Close an intent and remember the resource that it made."""
        with self._writing(resource.address):
            self._keep_resource(resource, last=None)
            self._connection.execute("DELETE FROM intents WHERE token = ?", (intent.token,))

    def abandon(self, intent: Intent) -> None:
        """Close an intent whose side effect never happened."""
        with self._writing():
            self._connection.execute("DELETE FROM intents WHERE token = ?", (intent.token,))

    def end(self, ends: Sequence[IntentEnd]) -> None:
        """Close the intents of launches, in one transaction."""
        with self.together():
            for end in ends:
                if end.resource is None or end.attempt is None:
                    self.abandon(end.intent)
                else:
                    self.launched(end.intent, end.resource, end.attempt)

    def keep(self, ends: Sequence[IntentEnd]) -> None:  # noqa: ARG002  the protocol's
        """Nothing is kept beside a state of this machine: the next apply asks for its intents."""
        return

    def push_kept(self) -> None:
        """Nothing was kept."""

    def record_resource(self, resource: Resource) -> None:
        """Remember a resource as it is now; its history and its last attempt are left alone."""
        with self._writing(resource.address):
            last = resource.last.ref.number if resource.last else None
            self._keep_resource(resource, last=last)

    def record_packages(self, lists: Sequence[PackageList]) -> None:
        """Remember what package lists hold. If all are known, nothing is written."""
        with self._guard, explained(self._path):
            recorded = queries.package_lists_of(self._connection)
        fresh = [(item.digest, item.text) for item in lists if item.digest not in recorded]
        if fresh:
            with self._writing():
                self._connection.executemany(_KEEP_LIST, fresh)

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Remember what was observed of attempts. If all of it is known, nothing is written."""
        if not attempts:
            return
        with self._guard, explained(self._path):
            recorded = {
                attempt.ref: attempt
                for address in {attempt.ref.address for attempt in attempts}
                for attempt in queries.history_of(self._connection, address)
            }
        fresh = [attempt for attempt in attempts if recorded.get(attempt.ref) != attempt]
        if not fresh:
            return
        with self._writing(*{attempt.ref.address for attempt in fresh}):
            self._connection.executemany(_KEEP_ATTEMPT, map(attempt_row, fresh))

    def plan_applied(self, plan_id: str) -> None:
        with self._writing():
            self._connection.execute(
                "INSERT OR IGNORE INTO applied_plans VALUES (?, ?)",
                (plan_id, to_text(self._stamp().at)),
            )

    def attribute(self, source: ApplySource) -> None:
        """A state of this machine has no log."""

    def replace(self, state: State, attempts: Sequence[Attempt]) -> None:
        """Put another version of this state in the place of what is recorded."""
        with self._writing():
            self._resources = None
            for table in ("resources", "attempts", "intents", "package_lists"):
                self._connection.execute(f"DELETE FROM {table}")  # noqa: S608
            self._connection.execute("UPDATE meta SET serial = max(serial, ?)", (state.serial,))
            for resource in state.resources.values():
                self._keep_resource(
                    resource, last=resource.last.ref.number if resource.last else None
                )
            self._connection.executemany(_KEEP_ATTEMPT, map(attempt_row, attempts))
            self._connection.executemany(_KEEP_INTENT, map(intent_row, state.intents))
            lists = state.package_lists.values()
            self._connection.executemany(_KEEP_LIST, [(item.digest, item.text) for item in lists])

    def applied(self, plan_id: str) -> bool:
        with self._guard, explained(self._path):
            query = "SELECT 1 FROM applied_plans WHERE plan_id = ?"
            return self._connection.execute(query, (plan_id,)).fetchone() is not None

    def move(self, source: Address, destination: Address) -> None:
        """Give a resource and its history another address. Its numbers stay taken at the old one.

        Raises:
            NotFound: nothing is recorded at `source`.
            SgpuError: `destination` has a history of its own, or is of another kind.
        """
        if source.kind is not destination.kind:
            raise SgpuError(
                f"`{source}` cannot become `{destination}`: they are of different kinds",
                hint=f"name a `{source.kind}`",
                code="move_refused",
            )
        with self._writing():
            self._resources = None
            self._must_have_history(source)
            if self._holds(_HAS_HISTORY, destination):
                raise SgpuError(
                    f"`{destination}` is recorded already, and two histories cannot be one",
                    hint="choose an address that was never used",
                    code="move_refused",
                )
            both = {"at": str(source), "to": str(destination)}
            self._connection.execute(_COPY_RESOURCE, both)
            self._connection.execute(_LEAVE_RESOURCE, both)
            self._connection.execute(_MOVE_ATTEMPTS, both)
            self._connection.execute(_MOVE_INTENTS, both)

    def remove(self, address: Address) -> None:
        """Let go of a resource without touching what runs: it is marked gone, its open intents are
        dropped, and attempts that were active are lost to us. History and numbers stay, so that a
        later launch cannot fall on an older attempt's folder.

        Raises:
            NotFound: nothing is recorded there.
        """
        with self._writing(address):
            if not self._holds(_HAS_INTENT, address):
                self._must_have_history(address)
            for attempt in queries.active_of(self._connection, address):
                self._connection.execute(
                    _LOST, (AttemptState.LOST.value, str(address), attempt.ref.number)
                )
            self._connection.execute(
                "UPDATE resources SET gone = 1 WHERE address = ?", (str(address),)
            )
            self._connection.execute("DELETE FROM intents WHERE address = ?", (str(address),))

    def _must_have_history(self, address: Address) -> None:
        if not self._holds(_HAS_HISTORY, address):
            raise NotFound(
                f"nothing is recorded at `{address}`",
                hint="`sgpu state list` shows what is",
            )

    def _holds(self, question: str, address: Address) -> bool:
        (found,) = self._connection.execute(question, {"at": str(address)}).fetchone()
        return bool(found)

    def _keep_resource(self, resource: Resource, *, last: int | None) -> None:
        row = (
            str(resource.address),
            resource.backend,
            resource.owner,
            resource.spec.text,
            last,
            resource.numbered,
            int(resource.gone),
            resource.remote,
        )
        self._connection.execute(_KEEP_RESOURCE, row)

    @contextmanager
    def together(self) -> Iterator[None]:
        """One transaction for all calls inside: they happen as a whole or not at all."""
        with self._guard, explained(self._path):
            if self._open:
                yield
                return
            if self._before_first_write is not None:
                self._before_first_write()
                self._before_first_write = None
            self._touched.clear()  # of a transaction that was taken back
            self._open = True
            try:
                with transaction(self._connection):
                    self._check()
                    yield
                    self._before_commit()
            finally:
                self._open = False
            while self._touched:
                self._renew(self._touched.pop())

    @contextmanager
    def _writing(self, *touched: Address) -> Iterator[None]:
        """One change, and one step of the serial."""
        with self.together():
            yield
            self._connection.execute(
                "UPDATE meta SET serial = serial + 1, tool_version = ?",
                (self._stamp().tool_version,),
            )
            self._touched.update(touched)

    def _renew(self, address: Address) -> None:
        if self._resources is None:
            return
        resource = queries.resource_at(self._connection, address)
        if resource is None:
            self._resources.pop(address, None)
        else:
            self._resources[address] = resource
        self._active[address] = queries.active_of(self._connection, address)
        if not self._active[address]:
            del self._active[address]

"""Changing a state that lies in a journal, under its lock."""

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sgpu_decl import __version__
from sgpu_decl.errors import Locked, SgpuError
from sgpu_decl.model.address import Address
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.project_home import ProjectHome
from sgpu_decl.model.state import Attempt, Intent, IntentEnd, Resource, State
from sgpu_decl.model.state_log import ApplySource
from sgpu_decl.places.file_place import elapsed
from sgpu_decl.storing.journal import ops
from sgpu_decl.storing.journal.append import PATIENCE, StaleReads, append_once
from sgpu_decl.storing.journal.entry import Author, JournalEntry, digest
from sgpu_decl.storing.journal.lock_lease import LockLease
from sgpu_decl.storing.journal.ops import Op
from sgpu_decl.storing.journal.port import Compacted, Journal, StoreDown
from sgpu_decl.storing.journal.position import Position, position_of, put_position
from sgpu_decl.storing.journal.replica import Replica
from sgpu_decl.storing.journal.unpushed import Unpushed
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.sqlite.lock_row import check_lock
from sgpu_decl.storing.sqlite.rows import Cell
from sgpu_decl.storing.sqlite.writer import SqliteWriter, Stamp


class NumberTaken(Exception):
    """Another entry has the number: the replica is behind."""


class JournalWriter:
    """Made by `JournalStore.lock`; `connection` is one of the replica. Threads may share it.

    Args:
        cells: those of the lock that is held.
        renewed: when its entry was about to be appended, by `elapsed`.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        journal: Journal,
        replica: Replica,
        author: Author,
        cells: dict[str, Cell],
        lease: LockLease,
        renewed: float,
    ) -> None:
        self._connection = connection
        self._journal = journal
        self._replica = replica
        self._author = author
        self._cells = cells
        self._lease = lease
        self._renewed = renewed
        self._patience = PATIENCE
        self._unpushed = Unpushed(replica.path.parent)
        self._guard = threading.RLock()
        self._stamp = _stamp()
        self._ops: tuple[Op, ...] = ()
        self._tables = self._new_tables()
        self._last = position_of(connection)  # the last entry of this writer
        self._lineage, _ = queries.serial_of(connection)

    @property
    def state(self) -> State:
        with self._guard:
            return self._tables.state

    def check_held(self) -> None:
        """The lease is judged by a clock of this machine that began before the last entry was
        appended: it ends here before it ends for others. The journal is asked as well: the lock may
        have been broken by hand, or taken by somebody for whom the store's clock has jumped."""
        silent = elapsed() - self._renewed
        if silent > self._lease.seconds - self._lease.margin:
            raise Locked(
                f"this process may have lost the state lock: it has recorded nothing for "
                f"{silent:.0f} s",
                hint="nothing more was launched; run `sgpu plan` again",
                code="lock_lost",
            )
        last = self._last
        try:
            found = self._journal.after(last.number - 1, most=2)
        except Compacted:
            found = ()
        if [digest(item.text) for item in found] != [last.digest]:
            with self._guard:
                self._catch_up()

    def attribute(self, source: ApplySource) -> None:
        with self._guard:
            self._author = replace(self._author, source=source)

    def begin(self, *intents: Intent) -> None:
        self._write(*map(ops.begin, intents))

    def launched(self, intent: Intent, resource: Resource, attempt: Attempt) -> None:
        self._write(ops.launched(intent, resource, attempt))

    def made(self, intent: Intent, resource: Resource) -> None:
        self._write(ops.made(intent, resource))

    def abandon(self, intent: Intent) -> None:
        self._write(ops.abandon(intent))

    def end(self, ends: Sequence[IntentEnd]) -> None:
        self._write(*map(ops.end, ends))

    def keep(self, ends: Sequence[IntentEnd]) -> Path:
        state = self.state
        return self._unpushed.keep(state.lineage, state.serial, [ops.end(item) for item in ends])

    def push_kept(self) -> None:
        for file, changes in self._unpushed.of(self._lineage):
            intents = self.state.intents
            self._write(*(op for op in changes if ops.is_open(op, intents)))
            self._unpushed.drop(file)

    def record_resource(self, resource: Resource) -> None:
        self._write(ops.record_resource(resource))

    def record_packages(self, lists: Sequence[PackageList]) -> None:
        with self._guard:
            known = self._tables.state.package_lists
            fresh = [item for item in lists if item.digest not in known]
            if fresh:
                self._write(ops.record_packages(fresh))

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        self._write(ops.record_attempts(attempts))

    def plan_applied(self, plan_id: str) -> None:
        self._write(ops.plan_applied(plan_id))

    def replace(self, state: State, attempts: Sequence[Attempt]) -> None:
        self._write(ops.replace(state, attempts))

    def applied(self, plan_id: str) -> bool:
        with self._guard:
            return self._tables.applied(plan_id)

    def move(self, source: Address, destination: Address) -> None:
        self._write(ops.move(source, destination))

    def remove(self, address: Address) -> None:
        self._write(ops.remove(address))

    def claim(self, home: ProjectHome) -> None:
        """Record which repository and folder the state belongs to."""
        self._write(ops.claim(home))

    def copy(self, state: State, attempts: Sequence[Attempt], plans: Sequence[str]) -> None:
        """Record a whole state, with its history and the plans that were applied, in one entry."""
        self._write(*ops.copied(state, attempts, plans))

    def renew(self) -> float:
        """Append an entry if there was none for a while. Returns the seconds until the next one is
        due. A store that does not answer is asked once, so that nobody waits for this call."""
        with self._guard:
            if elapsed() >= self._renewed + self._lease.renewal:
                patience, self._patience = self._patience, 0.0
                try:
                    self._write(ops.lock(self._cells, seconds=self._lease.seconds))
                finally:
                    self._patience = max(patience, self._patience)
            return max(0.0, self._renewed + self._lease.renewal - elapsed())

    def release(self) -> None:
        """Give the lock back. Where that cannot be done, the lease ends by itself; where it was
        lost, there is nothing to give back."""
        with suppress(SgpuError):
            self._write(ops.unlock(str(self._cells["id"])))

    def _write(self, *changes: Op) -> None:
        """Perform ops and append them as one entry, both or neither. An op that changes nothing is
        not appended."""
        if not changes:
            return
        stale = StaleReads(self._journal.name)
        with self._guard:
            while True:
                self._stamp, self._ops = _stamp(), changes
                try:
                    with ExitStack() as transaction:
                        if len(changes) > 1:
                            transaction.enter_context(self._tables.together())
                        for op in changes:
                            ops.perform(op, self._tables, self._connection, self._lineage)
                    return
                except Locked as refused:
                    if refused.code == "lock_lost":
                        self._say_who_holds()
                    raise
                except NumberTaken:
                    # Somebody took the lock, or the answer to our own entry was lost for good.
                    self._catch_up()
                    stale.wait(self._last.number)

    def _catch_up(self) -> None:
        """Read entries that this writer does not know. Once the lock is lost, it stays at its own
        last entry: what others append is no sign that it holds.

        Raises:
            Locked: the lock is lost.
        """
        self._replica.catch_up()
        self._tables = self._new_tables()
        check_lock(self._connection, str(self._cells["id"]))
        self._last = position_of(self._connection)

    def _say_who_holds(self) -> None:
        """Raise the error about a lost lock again, with who holds it now: elsewhere, it may have
        been taken since the replica was caught up."""
        with suppress(SgpuError):
            self._replica.catch_up()
        check_lock(self._connection, str(self._cells["id"]))

    def _append(self) -> None:
        """The last step of a transaction: append its entry.

        Raises:
            NumberTaken: somebody else appended one.
        """
        before = position_of(self._connection)
        _, serial = queries.serial_of(self._connection)
        entry = JournalEntry(
            number=before.number + 1,
            prev=before.digest,
            lineage=self._lineage,
            serial=serial,
            at=self._stamp.at,
            writer=self._author,
            ops=self._ops,
        )
        text, began = entry.text, elapsed()
        try:
            at = append_once(
                self._journal, entry.number, text, prev=entry.prev, patience=self._patience
            )
        except StoreDown:
            self._patience = 0.0  # the next calls, some for each launch, do not wait as long again
            raise
        self._patience = PATIENCE
        if at is None:
            raise NumberTaken
        self._renewed = began
        position = Position(number=entry.number, digest=digest(text), at=at)
        put_position(self._connection, position, tool_version=self._stamp.tool_version)
        self._last = position

    def _new_tables(self) -> SqliteWriter:
        return SqliteWriter(
            self._connection,
            path=self._replica.path,
            check=lambda: check_lock(self._connection, str(self._cells["id"])),
            before_commit=self._append,
            stamp=lambda: self._stamp,
        )


def _stamp() -> Stamp:
    return Stamp(at=datetime.now(UTC), tool_version=__version__)

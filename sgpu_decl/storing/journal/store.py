"""The state store over a journal and its replica."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sgpu_decl import __version__
from sgpu_decl.errors import NotFound, OtherProject, SgpuError
from sgpu_decl.frozen_dataclass import dataclass
from sgpu_decl.model.address import Address
from sgpu_decl.model.project_home import ProjectHome
from sgpu_decl.model.state import Attempt, LockHolder, State
from sgpu_decl.places.file_place import elapsed
from sgpu_decl.storing.journal.append import PATIENCE, StaleReads, append_once
from sgpu_decl.storing.journal.entry import Author, JournalEntry, digest, read_entry
from sgpu_decl.storing.journal.lock_lease import (
    LockLease,
    kept_renewed,
    silence,
)
from sgpu_decl.storing.journal.port import Compacted, Journal
from sgpu_decl.storing.journal.position import Head, home_of
from sgpu_decl.storing.journal.replica import Replica, replica_up_to
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.state_store import AT_ONCE, Patience, until_free, user_name

if TYPE_CHECKING:
    from sgpu_decl.model.owner import Presence
    from sgpu_decl.model.state_log import LogEntry
    from sgpu_decl.storing.journal.compaction import Compaction
    from sgpu_decl.storing.journal.ops import Op
    from sgpu_decl.storing.journal.writer import JournalWriter
    from sgpu_decl.storing.sqlite.rows import Cell

CHECKPOINT_EVERY = 256  # entries
_LOOK_AGAIN = 0.5  # seconds between two looks at a lock that is held
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """A lock that was taken. `at` is when its entry was about to be appended, by `elapsed`."""

    cells: "dict[str, Cell]"
    author: Author
    at: float


class JournalStore:
    """`StateStore` says what each call promises.

    Args:
        journal: the entries.
        replica: the database on this machine that is made of them.
        url: how `open_state_store` finds the store of a replica again.
        commit: gives the git commit of the project, for the log.
        homes: gives what the project may be known as, the first one for a new state. Without any, a
            state of every project is taken for that of this one.
    """

    def __init__(
        self,
        journal: Journal,
        replica: Path,
        *,
        url: Callable[[Path], str],
        lease: LockLease | None = None,
        commit: Callable[[], str | None] = lambda: None,
        homes: Callable[[], Sequence[ProjectHome]] = lambda: (),
    ) -> None:
        self._journal = journal
        self._replica = Replica(replica, journal)
        self._url = url
        self._lease = lease or LockLease()
        self._commit = commit
        self._homes = homes
        self._caught_up = False

    @property
    def url(self) -> str:
        return self._url(self._replica.path)

    @property
    def name(self) -> str:
        """The place of the entries, for messages."""
        return self._journal.name

    @property
    def file(self) -> Path | None:
        return None

    def targets(self) -> tuple[str, ...]:
        return self._journal.targets()

    def of_target(self, target: str) -> "JournalStore":
        path = self._replica.path
        return JournalStore(
            self._journal.of_target(target),
            path.parent.with_name(target) / path.name,
            url=self._url,
            lease=self._lease,
            commit=self._commit,
            homes=self._homes,
        )

    def presence(self, lineage: str) -> "Presence":
        from sgpu_decl.model.owner import Presence

        try:
            first = self._journal.after(0, most=1)
            if not first:
                return Presence.MISSING
            entry = read_entry(first[0].number, first[0].text, store=self._journal.name)
        except SgpuError:
            return Presence.UNKNOWN
        return Presence.PRESENT if entry.lineage == lineage else Presence.MISSING

    def last_read(self) -> None:
        return None

    def read(self) -> State | None:
        return self._reading(queries.state_of)

    def read_all(self) -> tuple[State, tuple[Attempt, ...]] | None:
        return self._reading(queries.everything_of)

    def history(self, address: Address) -> tuple[Attempt, ...]:
        """As of the last `read`, so that the histories of many runs cost one question."""
        if not self._caught_up:
            self._catch_up()
        return self._replica.read(lambda item: queries.history_of(item, address)) or ()

    def log(self, most: int) -> "Sequence[LogEntry]":
        from sgpu_decl.storing.journal.log import log_entry

        newest = self._head().position.number
        try:
            entries = self._journal.after(max(0, newest - most), most=most)
        except Compacted as gap:
            entries = self._journal.after(gap.first - 1, most=most)
        return [log_entry(item, store=self._journal.name) for item in reversed(entries)]

    def read_anew(self) -> tuple[State, tuple[Attempt, ...]] | None:
        """As `read_all`, from the entries alone: the copy of this machine is left out."""
        return self._read_up_to(self._head().position.number)

    def read_past(self, number: int) -> tuple[State, tuple[Attempt, ...]] | None:
        newest = self._head().position.number
        if not 1 <= number <= newest:
            raise NotFound(
                f"the state has no entry {number}",
                hint=f"its newest is {newest}: `sgpu state log` lists them"
                if newest
                else "it has none yet: `sgpu apply` adds the first one",
            )
        try:
            return self._read_up_to(number)
        except Compacted as gap:
            raise NotFound(
                f"the state after entry {number} is not known any more: the entries 2 to "
                f"{gap.first - 1} were deleted by `sgpu state compact`",
                hint=f"entry {gap.first} is the oldest one that can be shown",
            ) from gap

    def compact(self, older_than: float, *, patience: Patience = AT_ONCE) -> "Compaction":
        """Delete the entries that are older than `older_than` seconds, but for the first one and
        the newest one. A checkpoint takes their place.

        Raises:
            SgpuError: this user may not delete, or a newer sgpu has written one of them.
        """
        from sgpu_decl.storing.journal.compaction import Compaction, compact

        lineage = self._head().lineage
        if lineage is None:
            return Compaction(entries=0, first=None)
        with self.lock("state compact", lineage=lineage, patience=patience):
            return compact(self._journal, older_than=older_than)

    def claim(self, home: ProjectHome, *, patience: Patience = AT_ONCE) -> None:
        """Record which repository and folder the state belongs to.

        Raises:
            NotFound: nothing is recorded yet.
        """
        lineage = self._head().lineage
        if lineage is None:
            raise NotFound(
                f"there is no state of this project and target in `{self.name}` yet",
                hint="`sgpu apply` makes one, which belongs to your repository",
            )
        with self.lock("state claim", lineage=lineage, patience=patience) as writer:
            writer.claim(home)

    def begin_anew(self, lineage: str, serial: int) -> None:
        """Let go of the copy of this machine where the store has lost all entries, and what is
        about to be recorded is the same state, as new as the copy. Else nothing is done."""
        head = self._replica.head()
        lost = head.position.number > 0 and not self._journal.after(0, most=1)
        if lost and head.lineage == lineage and head.serial <= serial:
            self._replica.drop()

    def _read_up_to(self, number: int) -> tuple[State, tuple[Attempt, ...]] | None:

        with replica_up_to(self._journal, number) as replica:
            return replica.read(queries.everything_of)

    def check(self) -> None:
        self._catch_up()
        self._replica.check()

    def holder(self) -> LockHolder | None:
        lock = self._head().lock
        return lock[0] if lock else None

    def abandoned_lock(self) -> LockHolder | None:
        from sgpu_decl.storing.sqlite.liveness import provably_dead_here

        head = self._head()
        if head.lock is None:
            return None
        over = silence(head.position.at, self._journal.now()) >= head.seconds
        return head.lock[0] if over or provably_dead_here(head.lock[1]) else None

    @contextmanager
    def lock(
        self, operation: str, *, lineage: str, patience: Patience = AT_ONCE
    ) -> "Iterator[JournalWriter]":
        from sgpu_decl.storing.journal.writer import JournalWriter

        taken = until_free(lambda: self._take(operation, lineage), patience, pause=_LOOK_AGAIN)
        with ExitStack() as opened:
            with ExitStack() as given_back:  # if the copy of this machine cannot be opened
                given_back.callback(self._give_back, taken)
                began = self._replica.position().number
                connection = opened.enter_context(closing(self._replica.open(lineage)))
                writer = JournalWriter(
                    connection,
                    journal=self._journal,
                    replica=self._replica,
                    author=taken.author,
                    cells=taken.cells,
                    lease=self._lease,
                    renewed=taken.at,
                )
                given_back.pop_all()
            try:
                with kept_renewed(writer.renew):
                    yield writer
            finally:
                writer.release()
        self._add_checkpoint(began)

    def unlock(self, lock_id: str) -> None:
        from sgpu_decl.storing.journal import ops
        from sgpu_decl.storing.sqlite.lock_row import no_such_lock

        stale = StaleReads(self.name)
        while True:
            head = self._head()
            holder = head.lock[0] if head.lock else None
            if head.lineage is None or holder is None or holder.id != lock_id:
                raise no_such_lock(lock_id, holder)
            author = self._author("state unlock", lock_id)
            appended = self._append(self._entry((ops.unlock(lock_id),), author, head, head.lineage))
            self._catch_up()
            if appended:
                return
            stale.wait(self._replica.position().number)

    def _give_back(self, taken: _Taken) -> None:
        """Give a lock back that was taken and not used. Where that fails, its lease ends."""
        with suppress(SgpuError):
            self.unlock(str(taken.cells["id"]))

    def close(self) -> None:
        self._journal.close()

    def _catch_up(self) -> None:
        self._replica.catch_up()
        if not self._caught_up:
            self._refuse_other_project()
        self._caught_up = True

    def _refuse_other_project(self) -> None:
        """Refuse the state of a project that has the same name by chance.

        Raises:
            OtherProject: it belongs to another repository, or to another folder of it.
        """
        owner = self._replica.read(home_of)
        homes = self._homes() if owner is not None else ()
        if owner is None or not homes or any(map(owner.is_same, homes)):
            return
        raise OtherProject(
            f"the state of this project and target in `{self.name}` belongs to another project: "
            f"{owner}. This one is {homes[0]}",
            hint="give this project another `project.name` in `sgpu.yml`. If it is the same one, "
            "and its repository or folder got another name: `sgpu state claim`",
        )

    def _reading(self, ask: Callable[[sqlite3.Connection], _T]) -> _T | None:
        self._catch_up()
        return self._replica.read(ask)

    def _head(self) -> Head:
        self._catch_up()
        return self._replica.head()

    def _take(self, operation: str, lineage: str) -> _Taken:
        """Take the lock if it is free, if its holder is dead, or if its lease is over.

        Raises:
            Locked: it is held.
        """
        from sgpu_decl.storing.journal import ops
        from sgpu_decl.storing.sqlite.liveness import provably_dead_here
        from sgpu_decl.storing.sqlite.lock_row import held_error, new_lock

        stale = StaleReads(self.name)
        while True:
            now = self._journal.now()
            head = self._head()
            if head.lock is not None and not provably_dead_here(head.lock[1]):
                silent = silence(head.position.at, now)
                left = head.seconds - silent
                if left > 0:
                    taken_over = f"taken over in {left:.0f} s if it stays silent"
                    raise held_error(head.lock[0], f"silent for {silent:.0f} s; {taken_over}")
            cells, at = new_lock(operation), elapsed()
            author = self._author(operation, str(cells["id"]))
            op = ops.lock(cells, seconds=self._lease.seconds)
            homes = self._homes() if head.lineage is None else ()
            claims = [ops.claim(home) for home in homes[:1]]
            entry = self._entry((*claims, op), author, head, head.lineage or lineage)
            if self._append(entry):
                self._catch_up_or_return(entry)
                return _Taken(cells=cells, author=author, at=at)
            self._catch_up()
            stale.wait(self._replica.position().number)

    def _catch_up_or_return(self, entry: JournalEntry) -> None:
        """Read the lock that `entry` has taken. Where the copy of this machine does not take it,
        give the lock back, which needs no copy."""
        from sgpu_decl.storing.journal import ops

        try:
            self._catch_up()
        except BaseException:  # also an interrupt: else others wait until the lease is over
            unlocking = replace(
                entry,
                number=entry.number + 1,
                prev=digest(entry.text),
                at=datetime.now(UTC),
                ops=(ops.unlock(entry.writer.id),),
            )
            with suppress(SgpuError):
                self._append(unlocking, patience=0.0)
            raise

    def _entry(
        self, changes: "tuple[Op, ...]", author: Author, head: Head, lineage: str
    ) -> JournalEntry:
        """The entry after `head` for ops that leave the serial as it is."""
        return JournalEntry(
            number=head.position.number + 1,
            prev=head.position.digest,
            lineage=lineage,
            serial=head.serial,
            at=datetime.now(UTC),
            writer=author,
            ops=changes,
        )

    def _append(self, entry: JournalEntry, *, patience: float = PATIENCE) -> bool:
        """Append an entry; false if somebody else appended one of its number."""
        return (
            append_once(self._journal, entry.number, entry.text, prev=entry.prev, patience=patience)
            is not None
        )

    def _author(self, operation: str, lock_id: str) -> Author:
        import os

        return Author(
            id=lock_id,
            who=user_name(),
            host=os.uname().nodename,
            operation=operation,
            tool_version=__version__,
            commit=self._commit(),
        )

    def _add_checkpoint(self, began: int) -> None:
        """Add a checkpoint where this session passed a multiple of `CHECKPOINT_EVERY` entries. One
        that cannot be added costs others time and nothing else."""
        with suppress(SgpuError):
            if began // CHECKPOINT_EVERY != self._replica.position().number // CHECKPOINT_EVERY:
                self._journal.put_checkpoint(*self._replica.checkpoint())

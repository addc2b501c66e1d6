"""The copy of a journal's state on this machine: tables of SQLite's store, and how far they go."""

import gzip
import io
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sgpu_decl.errors import SgpuError, StateError
from sgpu_decl.scratch_folders import scratch_folder
from sgpu_decl.storing.journal.entry import (
    JournalEntry,
    damaged,
    digest,
    newer,
    read_entry,
)
from sgpu_decl.storing.journal.op_checks import check_op
from sgpu_decl.storing.journal.ops import UnknownOp, perform
from sgpu_decl.storing.journal.port import Compacted, Entries, JournalGap, Stored
from sgpu_decl.storing.journal.position import (
    NOTHING,
    Head,
    Position,
    empty,
    fill_from,
    head_of,
    is_whole,
    make_table,
    position_of,
    put_position,
)
from sgpu_decl.storing.sqlite import queries
from sgpu_decl.storing.sqlite.database import connect_writing, explained, prepare
from sgpu_decl.storing.sqlite.store import SqliteStore
from sgpu_decl.storing.sqlite.writer import SqliteWriter, Stamp
from sgpu_decl.storing.state_json import UNREADABLE, problem_of

_T = TypeVar("_T")
_PART = 1 << 20
_LEAST_ROOM, _MOST_TIMES = 64 << 20, 200
"""What a checkpoint may unpack to: tables of similar runs shrink to a thirtieth."""


class Replica:
    """`path` is the database, `.sgpu/<target>/replica.db`. Nothing is made before the journal has
    an entry. Several processes may use one replica."""

    def __init__(self, path: Path, journal: Entries) -> None:
        self.path = path
        self._journal = journal
        self._database = SqliteStore(path)

    def read(self, ask: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """What `ask` reads from the tables as they are; None where nothing was ever applied.

        Raises:
            StateError: the replica cannot be read.
        """
        with self._advised():
            return self._database.reading(ask)

    def position(self) -> Position:
        return self.read(position_of) or NOTHING

    def head(self) -> Head:
        return self.read(head_of) or Head()

    def check(self) -> None:
        """Read all of the tables.

        Raises:
            StateError: they are damaged.
        """
        with self._advised():
            self._database.check()

    def catch_up(self) -> None:
        """Bring the tables to the last entry of the journal.

        Raises:
            StateError: the chain is broken, or it is not the journal that the replica was made of.
            Compacted: entries were deleted, and no checkpoint can replace them.
            StoreDown: the journal does not answer.
        """
        position = self.position()
        if position is NOTHING:
            position = self._from_checkpoint()
        try:
            position, found = self._since(position)
        except Compacted as gap:
            # The copy ends before the entries that are left, or there was none that could be used.
            position, found = self._since(self._remade(position, gap))
        if found:
            entries = tuple(self._chain(position, found))
            with self._advised():
                self._apply(entries, anew=position is NOTHING)

    def open(self, lineage: str) -> sqlite3.Connection:
        """A connection that may write. The caller closes it."""
        with self._advised(), explained(self.path), ExitStack() as opened:
            connection = opened.enter_context(closing(connect_writing(self.path)))
            prepare(connection, self.path, lineage=lineage)
            make_table(connection)
            opened.pop_all()
            return connection

    def drop(self) -> None:
        """Delete the tables. The next call makes them of the entries that there are then."""
        with explained(self.path):
            for end in ("-wal", "-shm", ""):
                self.path.with_name(self.path.name + end).unlink(missing_ok=True)

    def checkpoint(self) -> tuple[int, bytes]:
        """The number of the last entry in the tables, and the tables as one compressed file."""
        with self._advised(), explained(self.path), _draft() as draft:
            with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
                connection.execute("VACUUM INTO ?", (os.fspath(draft),))
            with closing(sqlite3.connect(draft)) as copy:
                number = position_of(copy).number
            return number, gzip.compress(draft.read_bytes(), compresslevel=6, mtime=0)

    def _since(self, position: Position) -> tuple[Position, Sequence[Stored]]:
        """The entries that the tables lack, after the position that they can be added to."""
        found = self._after(max(position.number - 1, 0))
        if position is NOTHING:
            return position, found
        found = self._continued(position, found)
        if self.read(is_whole):
            return position, found
        return NOTHING, self._after(0)  # an older sgpu made the tables, and left something out

    def _remade(self, before: Position, gap: Compacted) -> Position:
        """Make the tables of a checkpoint, where entries that they lack were deleted.

        What `state compact` leaves as the oldest checkpoint holds all that the entries did. So it
        counts also where an older sgpu made it, whose entries had nothing that it lacks.

        Raises:
            Compacted: there is no such checkpoint.
            StateError: it is of another state than the tables, or of an older one.
        """
        for ask, whole in (
            (self._journal.checkpoint, True),
            (self._journal.oldest_checkpoint, False),
        ):
            found = ask()
            if found is not None and self._filled(found[1], before, whole=whole):
                return self.position()
        raise gap

    def _refuse_other(self, before: Position, head: Head) -> None:
        """Refuse a checkpoint that cannot be what became of the tables. Where their last entry is
        gone, it cannot be compared."""
        mine = self.head()
        grown = head.position.number < before.number or mine.serial <= head.serial
        if before is NOTHING or (mine.lineage == head.lineage and grown):
            return
        raise StateError(
            f"the state in `{self._journal.name}` is not the one that this machine has read: its "
            f"copy `{self.path}` goes to entry {before.number}, and the oldest checkpoint of the "
            "store is of another state, or of an older one",
            hint="was the store restored from a backup, or replaced on purpose? Then delete "
            f"`{self.path}`, and look with `sgpu plan` at what the older state would launch",
            code="state_diverged",
        )

    def _from_checkpoint(self) -> Position:
        """Make the replica of the newest checkpoint, if there is one. One that is damaged, that an
        older sgpu made, or that is not of these entries, is left alone: the entries are the truth,
        and are read from the first one on."""
        newest = self._journal.checkpoint()
        if newest is not None:
            self._filled(newest[1], NOTHING, whole=True)
        return self.position()

    def _filled(self, data: bytes, before: Position, *, whole: bool) -> bool:
        """Whether a checkpoint could be put into the tables, which go to `before`; `whole` as in
        `_has_made`. Another process may have been faster.

        Its file is not given the name of the database: SQLite would add what a `-wal` file says,
        which may have been left by a process that was killed.

        Raises:
            StateError: it is of another state than the tables, or of an older one.
        """
        with explained(self.path), _draft() as draft:
            if not _unpacked(data, draft):
                return False
            if not self._has_made(draft, whole=whole):
                return False
            with closing(sqlite3.connect(draft)) as connection:
                head = head_of(connection)
            self._refuse_other(before, head)
            assert head.lineage is not None  # noqa: S101  it has made an entry
            with self._advised(), closing(self.open(head.lineage)) as connection:
                fill_from(connection, draft, expected=before)
        return True

    def _has_made(self, draft: Path, *, whole: bool = True) -> bool:
        """Whether the tables in a file are made of the entries of the journal; `whole` if they have
        to keep all that this sgpu keeps of these."""
        with suppress(sqlite3.Error, ValueError, StateError, Compacted):
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                position = position_of(connection)
                fits = position.number > 0 and (not whole or is_whole(connection) is True)
            found = self._after(position.number - 1, most=1) if fits else ()
            return [digest(item.text) for item in found] == [position.digest]
        return False

    def _after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        try:
            return self._journal.after(number, most=most)
        except Compacted:
            raise
        except JournalGap as gap:
            raise StateError(
                f"the state in `{self._journal.name}` has a gap: {gap.message}",
                hint="nothing was changed; restore the store from its backup",
            ) from gap

    def _continued(self, position: Position, found: Sequence[Stored]) -> Sequence[Stored]:
        """The entries after `position`, once it is known to be the same journal."""
        if (
            found
            and found[0].number == position.number
            and digest(found[0].text) == position.digest
        ):
            return found[1:]
        last = f"ends before entry {position.number}"
        if found:
            last = f"has another entry {position.number}"
        raise StateError(
            f"the state in `{self._journal.name}` is not the one that this machine has read: its "
            f"copy `{self.path}` goes to entry {position.number}, and the store {last}",
            hint="was the store restored from a backup, or replaced on purpose? Then delete "
            f"`{self.path}`, and look with `sgpu plan` at what the older state would launch",
            code="state_diverged",
        )

    def _chain(
        self, position: Position, found: Sequence[Stored]
    ) -> Iterator[tuple[Stored, JournalEntry, str]]:
        """The entries that follow, each with its digest."""
        store = self._journal.name
        before, number, lineage = position.digest, position.number, self.head().lineage
        for stored in found:
            number += 1
            if stored.number != number:
                raise damaged(number, store, "is missing")
            entry = read_entry(number, stored.text, store=store)
            if entry.prev != before:
                raise damaged(number - 1, store, "was changed after the next one was appended")
            if lineage not in (None, entry.lineage):
                raise damaged(number, store, "belongs to another state")
            before, lineage = digest(stored.text), entry.lineage
            yield stored, entry, before

    def _apply(self, entries: Sequence[tuple[Stored, JournalEntry, str]], *, anew: bool) -> None:
        stamp: Stamp | None = None

        def current() -> Stamp:
            assert stamp is not None  # noqa: S101  set for each entry
            return stamp

        lineage = entries[0][1].lineage
        with closing(self.open(lineage)) as connection:
            writer = SqliteWriter(connection, path=self.path, check=lambda: None, stamp=current)
            with writer.together():
                if anew and not is_whole(connection):
                    empty(connection)
                position = position_of(connection)  # another process may have been faster
                for stored, entry, entry_digest in entries:
                    if entry.number <= position.number:
                        continue
                    stamp = Stamp(at=entry.at, tool_version=entry.writer.tool_version)
                    self._perform(entry, writer, connection)
                    put_position(
                        connection,
                        Position(number=entry.number, digest=entry_digest, at=stored.at),
                        tool_version=entry.writer.tool_version,
                    )

    def _perform(
        self, entry: JournalEntry, writer: "SqliteWriter", connection: sqlite3.Connection
    ) -> None:
        store = self._journal.name
        try:
            for op in entry.ops:
                check_op(op)
                perform(op, writer, connection, entry.lineage)
        except UnknownOp as error:
            raise newer(entry.number, store) from error
        except UNREADABLE as error:
            raise damaged(entry.number, store, problem_of(error)) from error
        except SgpuError as error:
            # What the copy itself lacks, such as room on the disk, says nothing of the entry.
            if error.__cause__ and not isinstance(error.__cause__, sqlite3.IntegrityError):
                raise
            raise damaged(entry.number, store, f"does not fit: {error.message}") from error
        _, serial = queries.serial_of(connection)
        if serial != entry.serial:
            raise damaged(
                entry.number, store, f"gives serial {serial}, and says that it is {entry.serial}"
            )

    @contextmanager
    def _advised(self) -> Iterator[None]:
        """What SQLite's store says about a damaged database, with the way out of a copy."""
        try:
            yield
        except StateError as error:
            if str(self.path) not in error.message:
                raise
            raise StateError(
                error.message,
                hint=f"it is a copy of `{self._journal.name}`: delete `{self.path}`, and the next "
                "command makes it again",
                code=error.code,
            ) from error


def _unpacked(data: bytes, file: Path) -> bool:
    """Write what a checkpoint holds to a file. False for one that is damaged, or that would be
    larger than tables ever are for its size: it may have been made to fill the disk."""
    room = _LEAST_ROOM + _MOST_TIMES * len(data)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed, file.open("wb") as opened:
            while part := packed.read(_PART):
                room -= len(part)
                if room < 0:
                    return False
                opened.write(part)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False
    return True


@contextmanager
def _draft() -> Iterator[Path]:
    """A name for a database that is needed for as long as the block lasts."""
    with scratch_folder("checkpoint") as folder:
        yield folder / "checkpoint.db"


@contextmanager
def replica_up_to(entries: Entries, last: int) -> Iterator[Replica]:
    """The tables after the entry of a number, made for as long as the block lasts.

    Raises:
        StateError, Compacted, StoreDown: as `Replica.catch_up`.
    """
    with scratch_folder("checkpoint") as folder:
        replica = Replica(folder / "replica.db", _EntriesUpTo(entries, last))
        replica.catch_up()
        yield replica


class _EntriesUpTo:
    """The entries up to the one of a number, that one included."""

    def __init__(self, entries: Entries, last: int) -> None:
        self._entries = entries
        self._last = last

    @property
    def name(self) -> str:
        return self._entries.name

    def after(self, number: int, *, most: int | None = None) -> Sequence[Stored]:
        left = max(0, self._last - number)
        return self._entries.after(number, most=left if most is None else min(most, left))

    def checkpoint(self) -> tuple[int, bytes] | None:
        """Only the newest checkpoint and the oldest one can be had: none, if they are newer than
        the last entry."""
        newest = self._entries.checkpoint()
        if newest is None or newest[0] <= self._last:
            return newest
        return self.oldest_checkpoint()

    def oldest_checkpoint(self) -> tuple[int, bytes] | None:
        oldest = self._entries.oldest_checkpoint()
        return oldest if oldest is not None and oldest[0] <= self._last else None

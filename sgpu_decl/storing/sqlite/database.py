"""Opening the state database: creating it safely, knowing ours from others, naming what broke."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sgpu_decl import __version__
from sgpu_decl.errors import Locked, SgpuError, StateError
from sgpu_decl.storing.sqlite.rows import LAUNCH_COLUMNS
from sgpu_decl.storing.sqlite.schema import APPLICATION_ID, DDL, VERSION
from sgpu_decl.storing.state_folder import make_state_folder, unreachable

_BUSY_SECONDS = 10.0


def backup_path(path: Path) -> Path:
    return path.with_name(path.name + ".backup")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite or the system says about the database into an error with a next step."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(path, error) from error
    except OSError as error:
        raise unreachable(path, error) from error
    except UnicodeEncodeError as error:
        raise SgpuError(
            f"the state `{path}` keeps text, and {error.object[error.start]!a} is no character",
            hint="nothing was recorded; is a name, or a value of `${env.…}`, no UTF-8?",
            code="state_unreachable",
        ) from error
    except ValueError as error:
        raise unusable(path, f"holds a value that cannot be read: {error}") from error


def connect_reading(path: Path) -> sqlite3.Connection:
    """Open for reading without making a file beside it.

    A database in WAL mode that no one has open has no `-wal` file; then it is opened as immutable,
    which works on a read-only folder too. The caller checks afterwards that it stood still.
    """
    wal = path.with_name(path.name + "-wal")
    query = "mode=ro" if wal.exists() else "mode=ro&immutable=1"
    uri = f"file:{quote(str(path.absolute()))}?{query}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)


def connect_writing(path: Path) -> sqlite3.Connection:
    """Open for writing; the file and its folder are made, for the user alone, where missing."""
    make_state_folder(path.parent)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        _refuse_emptied(path)
    else:
        with os.fdopen(handle):
            os.fchmod(handle, 0o600)  # a umask may have taken our own bits away
    # The writer guards its connection by a lock of its own, so that threads may share it.
    return sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that writes: all of the block is committed, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:  # also an interrupt: the connection may be used once more
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def prepare(connection: sqlite3.Connection, path: Path, *, lineage: str) -> None:
    """Make the tables of a new database, or check that an old one is ours and whole."""
    # In one transaction: another process may be making the tables at this moment.
    connection.execute("BEGIN")
    try:
        if is_ours(connection, path):
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()
            if answer != ("ok",):
                raise unusable(path, f"is corrupt: {answer[0] if answer else 'no answer'}")
    finally:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    with transaction(connection):
        # Another process may have been faster: looked at again now that nobody else can write.
        if not is_ours(connection, path):
            for statement in DDL:
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES (1, ?, 0, ?)", (lineage, __version__))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        for name in _lacking_columns(connection):
            connection.execute(f"ALTER TABLE attempts ADD COLUMN {name} TEXT")


def complete_attempts(connection: sqlite3.Connection) -> None:
    """Let this connection, which only reads, see all fields of launches: null where the state of an
    older sgpu has no column for one."""
    if lacking := _lacking_columns(connection):
        nulls = ", ".join(f"NULL AS {name}" for name in sorted(lacking))
        # A view of the connection's own, which hides the table.
        connection.execute(
            f"CREATE TEMP VIEW attempts AS SELECT *, {nulls} FROM main.attempts"  # noqa: S608
        )


def _lacking_columns(connection: sqlite3.Connection) -> frozenset[str]:
    """The fields of a launch that the state of an older sgpu has no column for. An older sgpu can
    go on with a state that has more."""
    columns = connection.execute("SELECT name FROM pragma_table_info('attempts')")
    return frozenset(LAUNCH_COLUMNS) - {str(name) for (name,) in columns}


def is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """False for a database without any table: one that is just being made.

    Raises:
        StateError: another program's database, or one of a newer sgpu.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application == 0 and tables == 0:
        return False
    if application != APPLICATION_ID:
        raise StateError(
            f"`{path}` is a database of another program",
            hint="move it away; sgpu makes its own when something is applied",
            code="state_foreign",
        )
    if version > VERSION:
        raise StateError(
            f"`{path}` was written by a newer sgpu (state version {version}, this one reads "
            f"{VERSION})",
            hint="upgrade sgpu on this machine; nothing was changed",
            code="state_newer",
        )
    if version < VERSION:
        raise unusable(path, f"is of version {version}, which this sgpu does not read")
    return True


def _refuse_emptied(path: Path) -> None:
    """An empty file is a database that is just being made, except where one has been before."""
    if path.stat().st_size == 0 and backup_path(path).exists():
        raise emptied(path)


def emptied(path: Path) -> StateError:
    """The error about an empty file where a database was, which has a backup."""
    return unusable(path, "is empty, and it was not before")


def unusable(path: Path, what: str) -> StateError:
    """The error about a database that cannot be used, with the way back to its backup."""
    backup = backup_path(path)
    if backup.exists():
        hint = (
            f"nothing was changed; the last backup is `{backup}`: move `{path.name}`, "
            f"`{path.name}-wal` and `{path.name}-shm` away and copy the backup to `{path.name}`"
        )
    else:
        hint = (
            f"nothing was changed and there is no backup; move `{path.name}` away to begin a new "
            "state (runs that are recorded in it will be unknown)"
        )
    return StateError(f"the state `{path}` {what}", hint=hint)


def _translated(path: Path, error: sqlite3.Error) -> SgpuError:
    # Extended codes carry the primary one in their low byte.
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return Locked(
            f"the state `{path}` is being written by another process",
            hint="try again in a moment",
        )
    if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
        return SgpuError(
            f"the state `{path}` cannot be opened: {error} ({error.sqlite_errorname})",
            hint="make the file and its folder readable and writable for you",
            code="state_unreachable",
        )
    if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
        return SgpuError(
            f"the state `{path}` cannot be read or written: {error} ({error.sqlite_errorname})",
            hint="is its disk full or failing? earlier records are intact",
            code="state_unreachable",
        )
    if code == sqlite3.SQLITE_NOTADB:
        return unusable(path, "is not a SQLite database")
    return unusable(path, f"is corrupt: {error}")


def migrated_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.migrated")


def is_migrated(file: Path) -> bool:
    """Whether the state was copied to a shared store, and there is none of its name since."""
    return migrated_file(file).exists() and not file.exists()


def note_place(file: Path, place: str) -> None:
    """Write into a database where its state is copied to, for messages."""
    with explained(file), closing(connect_writing(file)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS migrated (place TEXT NOT NULL)")
        connection.execute("DELETE FROM migrated")
        connection.execute("INSERT INTO migrated VALUES (?)", (place,))


def refuse_migrated(file: Path) -> None:
    """Refuse to use or to make a state that was copied to a shared store.

    Raises:
        SgpuError: it was, and there is none of its name since.
    """
    if not is_migrated(file):
        return
    old = migrated_file(file)
    raise SgpuError(
        f"the state of this project was migrated to {_place(old)}, and `{os.fspath(old)}` was kept",
        hint="name the store with `state` in `sgpu.yml` again. To bring the state back: "
        "`sgpu state pull > state.json`, then remove `state`, then `sgpu state push state.json`",
        code="state_migrated",
    )


def _place(old: Path) -> str:
    try:
        with closing(connect_reading(old)) as connection:
            (place,) = connection.execute("SELECT place FROM migrated").fetchone()
    except (sqlite3.Error, TypeError):  # an older sgpu did it
        return "a shared one"
    return f"`{place}`"

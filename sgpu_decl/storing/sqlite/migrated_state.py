"""The name that a state of this machine has after it was copied to a store that machines share. As
long as it is there, no new state begins in the place of the old one."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sgpu_decl.errors import SgpuError
from sgpu_decl.storing.sqlite.database import connect_reading, connect_writing, explained


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

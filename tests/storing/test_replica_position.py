"""How far a copy of a journal goes, where several processes keep one copy."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sgpu_decl.storing.journal.position import NOTHING, make_table, position_of


def test_another_process_may_make_the_table_at_the_same_moment(tmp_path: Path) -> None:
    path = tmp_path / "replica.db"
    faster: list[str] = []
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as slow,
        closing(sqlite3.connect(path, isolation_level=None)) as fast,
    ):

        def outrun(statement: str) -> None:
            """Called when a statement begins: the last one adds the row."""
            if statement.startswith("INSERT") and not faster:
                faster.append(statement)
                make_table(fast)

        slow.set_trace_callback(outrun)
        make_table(slow)
        assert faster
        assert position_of(slow) is NOTHING

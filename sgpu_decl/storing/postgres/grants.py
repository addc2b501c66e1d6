"""The SQL that gives roles the rights that a state in PostgreSQL needs.

Source: https://www.postgresql.org/docs/current/sql-grant.html
"""

from sgpu_decl.storing.postgres.journal import TABLES
from sgpu_decl.storing.postgres.proposals import PROPOSALS

__all__ = ["grants"]


def grants(schema: str, *, planner: str, applier: str) -> str:
    """Statements for the owner of the database, which may be run again. `planner` may read and add
    proposals; `applier` may add entries as well. Neither may change or delete rows, or make a
    table."""
    into, reader, writer = map(_quoted, (schema, planner, applier))
    made = ";\n".join(statement.format(schema=into) for statement in (*TABLES, PROPOSALS))
    rights = "\n".join(
        f"GRANT USAGE ON SCHEMA {into} TO {role};\n"
        f"GRANT {allowed} ON ALL TABLES IN SCHEMA {into} TO {role};"
        for role, allowed in ((reader, "SELECT"), (writer, "SELECT, INSERT"))
    )
    proposing = f"GRANT INSERT ON {into}.proposals TO {reader};"
    return f"{made};\n{rights}\n{proposing}\n"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'

"""Reading values out of an open state database."""

import sqlite3
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import ACTIVE
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.state import Attempt, Intent, LockHolder, Resource, State
from sgpu_decl.model.times import from_text
from sgpu_decl.storing.sqlite.rows import ATTEMPT_COLUMNS, INTENT_COLUMNS, attempt_of, intent_of

if TYPE_CHECKING:
    from sgpu_decl.model.environment import PackageList
    from sgpu_decl.storing.sqlite.liveness import ProcessMark

_ATTEMPT = ", ".join(f"a.{name}" for name in ATTEMPT_COLUMNS)
_INTENT = ", ".join(INTENT_COLUMNS)
# Written out, as SQLite takes the partial index only for the very condition it was made with.
_IS_ACTIVE = "a.state IN ('queued', 'staging', 'starting', 'running', 'stopping')"
_RESOURCE = (
    f"SELECT r.address, r.backend, r.owner, r.spec, r.gone, r.numbered, r.remote, {_ATTEMPT} "  # noqa: S608
    "FROM resources r LEFT JOIN attempts a ON a.address = r.address AND a.number = r.last"
)
_ATTEMPTS = f"SELECT {_ATTEMPT} FROM attempts a"  # noqa: S608


def state_of(connection: sqlite3.Connection) -> State:
    """The whole state, as of one moment when the caller holds a transaction."""
    lineage, serial = serial_of(connection)
    resources = resources_of(connection)
    return State(
        lineage=lineage,
        serial=serial,
        resources=MappingProxyType(resources),
        active=_active_beside(connection, resources),
        intents=intents_of(connection),
        package_lists=package_lists_of(connection),
    )


def everything_of(connection: sqlite3.Connection) -> tuple[State, tuple[Attempt, ...]]:
    """The state, and the history of all runs."""
    return state_of(connection), _all_attempts(connection)


def serial_of(connection: sqlite3.Connection) -> tuple[str, int]:
    row = connection.execute("SELECT lineage, serial FROM meta").fetchone()
    if row is None:
        raise ValueError("it has no lineage")
    return str(row[0]), int(row[1])


def resources_of(connection: sqlite3.Connection) -> dict[Address, Resource]:
    resources = map(_resource, connection.execute(f"{_RESOURCE} ORDER BY r.address"))
    return {resource.address: resource for resource in resources}


def resource_at(connection: sqlite3.Connection, address: Address) -> Resource | None:
    row = connection.execute(f"{_RESOURCE} WHERE r.address = ?", (str(address),)).fetchone()
    return None if row is None else _resource(row)


def active_of(
    connection: sqlite3.Connection, address: Address | None = None
) -> tuple[Attempt, ...]:
    if address is None:
        rows = connection.execute(f"{_ATTEMPTS} WHERE {_IS_ACTIVE} ORDER BY a.address, a.number")
        return tuple(map(attempt_of, rows))
    rows = connection.execute(f"{_ATTEMPTS} WHERE a.address = ? ORDER BY a.number", (str(address),))
    attempts = (attempt_of(row, address) for row in rows)
    return tuple(attempt for attempt in attempts if attempt.state in ACTIVE)


def _active_beside(
    connection: sqlite3.Connection, resources: Mapping[Address, Resource]
) -> tuple[Attempt, ...]:
    """Most active attempts are the last of their resource, and were read with it already."""
    attempts = [
        resource.last
        for resource in resources.values()
        if resource.last and resource.last.state in ACTIVE
    ]
    older = connection.execute(
        f"{_ATTEMPTS} WHERE {_IS_ACTIVE} AND NOT EXISTS "  # noqa: S608
        "(SELECT 1 FROM resources r WHERE r.address = a.address AND r.last = a.number)"
    )
    beside = [attempt_of(row) for row in older]
    if beside:
        attempts = sorted(
            (*attempts, *beside), key=lambda item: (str(item.ref.address), item.ref.number)
        )
    return tuple(attempts)


def intents_of(connection: sqlite3.Connection) -> tuple[Intent, ...]:
    rows = connection.execute(f"SELECT {_INTENT} FROM intents ORDER BY created_at, token")  # noqa: S608
    lineage, _ = serial_of(connection)
    return tuple(intent_of(row, lineage) for row in rows)


def package_lists_of(connection: sqlite3.Connection) -> "dict[str, PackageList]":
    rows = connection.execute("SELECT digest, packages FROM package_lists").fetchall()
    if not rows:
        return {}
    from sgpu_decl.model.environment import PackageList

    return {str(digest): PackageList(str(text), str(digest)) for digest, text in rows}


def applied_plans_of(connection: sqlite3.Connection) -> tuple[str, ...]:
    rows = connection.execute("SELECT plan_id FROM applied_plans ORDER BY applied_at, plan_id")
    return tuple(str(plan_id) for (plan_id,) in rows)


def history_of(connection: sqlite3.Connection, address: Address) -> tuple[Attempt, ...]:
    rows = connection.execute(f"{_ATTEMPTS} WHERE a.address = ? ORDER BY a.number", (str(address),))
    return tuple(attempt_of(row, address) for row in rows)


def _all_attempts(connection: sqlite3.Connection) -> tuple[Attempt, ...]:
    return tuple(map(attempt_of, connection.execute(f"{_ATTEMPTS} ORDER BY a.address, a.number")))


def holder_of(connection: sqlite3.Connection) -> "tuple[LockHolder, ProcessMark] | None":
    row = connection.execute(
        "SELECT id, who, host, pid, boot, started, operation, since FROM lock"
    ).fetchone()
    if row is None:
        return None
    from sgpu_decl.storing.sqlite.liveness import ProcessMark

    identity, who, host, pid, boot, started, operation, since = row
    holder = LockHolder(
        id=identity,
        who=who,
        host=host,
        pid=pid,
        operation=operation,
        since=from_text(since),
    )
    return holder, ProcessMark(host=host, pid=pid, boot=boot, started=started)


def _resource(row: tuple[str | int | None, ...]) -> Resource:
    text, backend, owner, spec, gone, numbered, remote = row[:7]
    address = Address.parse(str(text))
    last = None if row[7] is None else attempt_of(row[7:], address)
    return Resource(
        address=address,
        backend=str(backend),
        owner=str(owner),
        # One for both, as they are equal but for launch and meta fields that were updated.
        spec=last.inputs.spec if last and last.inputs.spec.text == spec else Spec(str(spec)),
        last=last,
        gone=bool(gone),
        numbered=int(numbered or 0),
        remote=None if remote is None else str(remote),
    )

"""The calls of a `StateWriter` as JSON, and back.

The cells are those of SQLite's rows: an entry of another sgpu is read as its database would be.
Whoever appends an op performs it by this code, too, so that every replica is the same.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from sgpu_decl.model.address import Address
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.jsonable import Json, Spec
from sgpu_decl.model.project_home import ProjectHome
from sgpu_decl.model.state import Attempt, Intent, IntentEnd, Resource, State
from sgpu_decl.storing.journal.position import put_home, put_seconds
from sgpu_decl.storing.sqlite.lock_row import delete_lock, put_lock
from sgpu_decl.storing.sqlite.rows import (
    ATTEMPT_COLUMNS,
    INTENT_COLUMNS,
    Cell,
    attempt_of,
    attempt_row,
    intent_of,
    intent_row,
)
from sgpu_decl.storing.sqlite.writer import SqliteWriter

Op = dict[str, Json]


class UnknownOp(Exception):
    """An op that this sgpu does not know."""


def lock(cells: Mapping[str, Cell], *, seconds: float) -> Op:
    """Take the lock, or renew it, for that time after its holder's last entry."""
    return {"op": "lock", "seconds": seconds, "lock": dict(cells)}


def unlock(lock_id: str) -> Op:
    return {"op": "unlock", "id": lock_id}


def claim(home: ProjectHome) -> Op:
    """Say which repository and folder the state belongs to."""
    return {"op": "claim", "repository": home.repository, "folder": home.folder}


def begin(intent: Intent) -> Op:
    return {"op": "begin", "intent": _intent(intent)}


def launched(intent: Intent, resource: Resource, attempt: Attempt) -> Op:
    return {
        "op": "launched",
        "intent": _intent(intent),
        "resource": _resource(resource),
        "attempt": _attempt(attempt),
    }


def made(intent: Intent, resource: Resource) -> Op:
    return {"op": "made", "intent": _intent(intent), "resource": _resource(resource)}


def abandon(intent: Intent) -> Op:
    return {"op": "abandon", "intent": _intent(intent)}


def end(ended: IntentEnd) -> Op:
    """The op that closes the intent of a launch."""
    if ended.resource is None or ended.attempt is None:
        return abandon(ended.intent)
    return launched(ended.intent, ended.resource, ended.attempt)


def is_open(op: Any, intents: Sequence[Intent]) -> bool:
    """Whether the intent that an op closes is one of `intents`, at the same address."""
    closes = (op["intent"]["token"], op["intent"]["address"])
    return any(closes == (intent.token, str(intent.address)) for intent in intents)


def record_resource(resource: Resource) -> Op:
    return {"op": "record_resource", "resource": _resource(resource)}


def record_packages(lists: Sequence[PackageList]) -> Op:
    return {
        "op": "record_packages",
        "lists": [{"digest": item.digest, "text": item.text} for item in lists],
    }


def record_attempts(attempts: Sequence[Attempt]) -> Op:
    return {"op": "record_attempts", "attempts": [_attempt(item) for item in attempts]}


def plan_applied(plan_id: str) -> Op:
    return {"op": "plan_applied", "plan_id": plan_id}


def move(source: Address, destination: Address) -> Op:
    return {"op": "move", "source": str(source), "destination": str(destination)}


def remove(address: Address) -> Op:
    return {"op": "remove", "address": str(address)}


def replace(state: State, attempts: Sequence[Attempt]) -> Op:
    return {
        "op": "replace",
        "serial": state.serial,
        "resources": [_resource(item) for item in state.resources.values()],
        "attempts": [_attempt(item) for item in attempts],
        "intents": [_intent(item) for item in state.intents],
        "lists": [
            {"digest": item.digest, "text": item.text} for item in state.package_lists.values()
        ],
    }


def copied(state: State, attempts: Sequence[Attempt], plans: Sequence[str]) -> list[Op]:
    """The ops that make a whole state in empty tables: `attempts` is the history of all runs."""
    written: list[Op] = []
    if state.package_lists:
        written.append(record_packages(list(state.package_lists.values())))
    written += [record_resource(item) for item in state.resources.values()]
    written += [
        launched(_closed(attempt), state.resources[attempt.ref.address], attempt)
        for attempt in attempts
    ]
    written += [begin(intent) for intent in state.intents]
    return written + [plan_applied(plan) for plan in plans]


def _closed(attempt: Attempt) -> Intent:
    """The intent that an attempt was launched by."""
    return Intent(
        token=attempt.token,
        address=attempt.ref.address,
        owner="",
        action="create",
        attempt=attempt.ref.number,
        plan_id=attempt.plan_id or "",
        created_at=attempt.created_at,
    )


def perform(op: Any, writer: SqliteWriter, connection: sqlite3.Connection, lineage: str) -> None:
    """Change the tables of `connection`, by `writer`, as an op says.

    Raises:
        UnknownOp: a newer sgpu has it.
        ValueError, KeyError, TypeError: it lacks something, or holds values of another type.
        SgpuError: what `StateWriter` says.
    """
    match op["op"]:
        case "lock" | "unlock" | "claim":
            with writer.together():
                _perform_beside(op, connection)
        case "begin":
            writer.begin(_intent_of(op, lineage))
        case "launched":
            writer.launched(
                _intent_of(op, lineage), _resource_of(op["resource"]), _attempt_of(op["attempt"])
            )
        case "made":
            writer.made(_intent_of(op, lineage), _resource_of(op["resource"]))
        case "abandon":
            writer.abandon(_intent_of(op, lineage))
        case "record_resource":
            writer.record_resource(_resource_of(op["resource"]))
        case "record_packages":
            writer.record_packages([PackageList(**item) for item in op["lists"]])
        case "record_attempts":
            writer.record_attempts([_attempt_of(item) for item in op["attempts"]])
        case "plan_applied":
            writer.plan_applied(op["plan_id"])
        case "move":
            writer.move(Address.parse(op["source"]), Address.parse(op["destination"]))
        case "remove":
            writer.remove(Address.parse(op["address"]))
        case "replace":
            state = State(
                lineage=lineage,
                serial=op["serial"],
                resources={item.address: item for item in map(_resource_of, op["resources"])},
                intents=tuple(_intent_of({"intent": item}, lineage) for item in op["intents"]),
                package_lists={item["digest"]: PackageList(**item) for item in op["lists"]},
            )
            writer.replace(state, [_attempt_of(item) for item in op["attempts"]])
        case other:
            raise UnknownOp(str(other))


def _perform_beside(op: Any, connection: sqlite3.Connection) -> None:
    """The ops that leave the serial as it is."""
    match op["op"]:
        case "lock":
            put_lock(connection, op["lock"])
            put_seconds(connection, op["seconds"])
        case "unlock":
            delete_lock(connection, op["id"])
        case "claim":
            put_home(connection, ProjectHome(repository=op["repository"], folder=op["folder"]))


_RESOURCE_CELLS = frozenset(
    ("address", "backend", "owner", "spec", "gone", "numbered", "remote", "last")
)


def keeps_all(op: Any) -> bool:
    """Whether `perform` keeps all that an op says. A newer sgpu may add cells, which this one would
    leave out of its tables."""
    resources = [item for item in (*op.get("resources", ()), op.get("resource")) if item]
    lasts = (item["last"] for item in resources)
    attempts = [*op.get("attempts", ()), op.get("attempt"), *lasts]
    intents = [*op.get("intents", ()), op.get("intent")]
    return (
        all(item.keys() <= set(ATTEMPT_COLUMNS) for item in attempts if item)
        and all(item.keys() <= set(INTENT_COLUMNS) for item in intents if item)
        and all(item.keys() <= _RESOURCE_CELLS for item in resources)
    )


def _intent(intent: Intent) -> Op:
    return dict(zip(INTENT_COLUMNS, intent_row(intent), strict=True))


def _intent_of(op: Any, lineage: str) -> Intent:
    return intent_of([op["intent"].get(name) for name in INTENT_COLUMNS], lineage)


def _attempt(attempt: Attempt) -> Op:
    return dict(zip(ATTEMPT_COLUMNS, attempt_row(attempt), strict=True))


def _attempt_of(cells: Any) -> Attempt:
    return attempt_of([cells.get(name) for name in ATTEMPT_COLUMNS])


def _resource(resource: Resource) -> Op:
    return {
        "address": str(resource.address),
        "backend": resource.backend,
        "owner": resource.owner,
        "spec": resource.spec.text,
        "gone": resource.gone,
        "numbered": resource.numbered,
        "remote": resource.remote,
        "last": None if resource.last is None else _attempt(resource.last),
    }


def _resource_of(cells: Any) -> Resource:
    last = cells["last"]
    return Resource(
        address=Address.parse(cells["address"]),
        backend=cells["backend"],
        owner=cells["owner"],
        spec=Spec(cells["spec"]),
        last=None if last is None else _attempt_of(last),
        gone=cells["gone"],
        numbered=cells["numbered"],
        remote=cells["remote"],
    )

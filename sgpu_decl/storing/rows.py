"""Database rows to values and back. A value that cannot be read raises ValueError."""

import json
from collections.abc import Mapping, Sequence

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.state import Attempt, Intent, Resource
from sgpu_decl.storing.times import from_text, to_text

__all__ = [
    "ATTEMPT_COLUMNS",
    "Cell",
    "attempt_of",
    "attempt_row",
    "intent_of",
    "intent_row",
]

Cell = str | int | float | None

ATTEMPT_COLUMNS = (
    "address",
    "number",
    "token",
    "backend",
    "state",
    "spec",
    "fingerprint",
    "code_digest",
    "environment_digest",
    "packages_digest",
    "pool",
    "created_at",
    "started_at",
    "ended_at",
    "exit_code",
    "failure",
    "plan_id",
)


def attempt_row(attempt: Attempt) -> tuple[Cell, ...]:
    """The cells of an attempt in the order of `ATTEMPT_COLUMNS`."""
    return (
        str(attempt.ref.address),
        attempt.ref.number,
        attempt.token,
        attempt.backend,
        attempt.state.value,
        attempt.spec,
        attempt.fingerprint,
        attempt.code_digest,
        attempt.environment_digest,
        attempt.packages_digest,
        attempt.pool,
        to_text(attempt.created_at),
        to_text(attempt.started_at),
        to_text(attempt.ended_at),
        attempt.exit_code,
        attempt.failure.value if attempt.failure else None,
        attempt.plan_id,
    )


def attempt_of(row: Sequence[Cell], address: Address | None = None) -> Attempt:
    """`address` saves reading it again where the caller has it already."""
    (
        where,
        number,
        token,
        backend,
        state,
        spec,
        fingerprint,
        code_digest,
        environment_digest,
        packages_digest,
        pool,
        created_at,
        started_at,
        ended_at,
        exit_code,
        failure,
        plan_id,
    ) = row
    if not isinstance(number, int):
        raise ValueError(f"attempt number `{number}` is not an integer")
    return Attempt(
        ref=AttemptRef(address or Address.parse(_text(where)), number),
        token=_text(token),
        backend=_text(backend),
        state=AttemptState(_text(state)),
        spec=_text(spec),
        fingerprint=_text(fingerprint),
        code_digest=_maybe(code_digest),
        environment_digest=_maybe(environment_digest),
        packages_digest=_maybe(packages_digest),
        pool=_maybe(pool),
        created_at=from_text(_text(created_at)),
        started_at=from_text(_maybe(started_at)),
        ended_at=from_text(_maybe(ended_at)),
        exit_code=exit_code if isinstance(exit_code, int) else None,
        failure=None if failure is None else FailureClass(_text(failure)),
        plan_id=_maybe(plan_id),
    )


def intent_row(intent: Intent) -> tuple[Cell, ...]:
    record, made = intent.attempt_record, intent.resource_record
    return (
        intent.token,
        str(intent.address),
        intent.owner,
        intent.action,
        intent.attempt,
        intent.plan_id,
        None if record is None else json.dumps(dict(_named(record))),
        to_text(intent.created_at),
        None if made is None else json.dumps(_resource_cells(made)),
    )


def intent_of(row: Sequence[Cell]) -> Intent:
    token, address, owner, action, attempt, plan_id, record, created_at, made = row
    attempt_record = None
    if record is not None:
        cells = json.loads(_text(record))
        if not isinstance(cells, dict):
            raise ValueError("an intent's attempt is not a mapping")
        attempt_record = attempt_of([cells.get(name) for name in ATTEMPT_COLUMNS])
    if not isinstance(attempt, int):
        raise ValueError(f"attempt number `{attempt}` is not an integer")
    return Intent(
        token=_text(token),
        address=Address.parse(_text(address)),
        owner=_text(owner),
        action=_text(action),
        attempt=attempt,
        plan_id=_text(plan_id),
        attempt_record=attempt_record,
        created_at=from_text(_text(created_at)),
        resource_record=None if made is None else _resource_of(json.loads(_text(made))),
    )


def _resource_cells(resource: Resource) -> dict[str, Cell]:
    return {
        "address": str(resource.address),
        "backend": resource.backend,
        "owner": resource.owner,
        "spec": resource.spec,
        "numbered": resource.numbered,
    }


def _resource_of(cells: object) -> Resource:
    """A resource that was about to be made: it has no attempts, and is nowhere yet."""
    if not isinstance(cells, dict) or not isinstance(cells.get("numbered"), int):
        raise ValueError("an intent's resource is not a mapping")
    return Resource(
        address=Address.parse(_text(cells.get("address"))),
        backend=_text(cells.get("backend")),
        owner=_text(cells.get("owner")),
        spec=_text(cells.get("spec")),
        last=None,
        numbered=cells["numbered"],
    )


def _named(attempt: Attempt) -> Mapping[str, Cell]:
    return dict(zip(ATTEMPT_COLUMNS, attempt_row(attempt), strict=True))


def _text(cell: Cell) -> str:
    if not isinstance(cell, str):
        raise ValueError(f"`{cell}` should be text")
    return cell


def _maybe(cell: Cell) -> str | None:
    return None if cell is None else _text(cell)

"""Database rows to values and back. A value that cannot be read raises ValueError."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.codec import JsonObject, key_of, to_json
from sgpu_decl.model.jsonable import LARGEST_NUMBER, Spec
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord, Provenance
from sgpu_decl.model.state import Attempt, Intent, Resource
from sgpu_decl.model.times import from_text, to_text

Cell = str | int | float | None

_INPUTS = tuple(field.name for field in fields(LaunchInputs))
_REQUIRED = frozenset(field.name for field in fields(LaunchInputs) if field.default is MISSING)
# A state of an older sgpu may lack some: they are added once this one writes.
LAUNCH_COLUMNS = {
    **{
        key_of(field): "TEXT NOT NULL" if field.name in _REQUIRED else "TEXT"
        for field in fields(LaunchInputs)
    },
    "reference": "TEXT",
    "formerly": "TEXT",
    "reason": "TEXT",
    "git_commit": "TEXT",  # `commit` is a word of SQL
    "git_dirty": "TEXT",
    "function": "TEXT",
}
_IDENTITY = ("address", "number", "token", "backend", "state")
_OBSERVED = ("created_at", "started_at", "ended_at", "exit_code", "failure", "plan_id")
ATTEMPT_COLUMNS = (*_IDENTITY, *LAUNCH_COLUMNS, *_OBSERVED)
INTENT_COLUMNS = (
    "token",
    "address",
    "owner",
    "action",
    "attempt",
    "plan_id",
    "attempt_record",
    "created_at",
    "resource_record",
)
_BEFORE, _AFTER = len(_IDENTITY), len(_IDENTITY) + len(_INPUTS)


def attempt_row(attempt: Attempt) -> tuple[Cell, ...]:
    """The cells of an attempt in the order of `ATTEMPT_COLUMNS`."""
    return (
        str(attempt.ref.address),
        attempt.ref.number,
        attempt.token,
        attempt.backend,
        attempt.state.value,
        attempt.inputs.spec.text,
        *(getattr(attempt.inputs, name) for name in _INPUTS[1:]),
        attempt.reference,
        "\n".join(map(str, attempt.formerly)) or None,
        attempt.provenance.reason,
        attempt.provenance.commit,
        None if attempt.provenance.dirty is None else json.dumps(attempt.provenance.dirty),
        attempt.provenance.function,
        to_text(attempt.created_at),
        to_text(attempt.started_at),
        to_text(attempt.ended_at),
        attempt.exit_code,
        attempt.failure.value if attempt.failure else None,
        attempt.plan_id,
    )


def attempt_of(row: Sequence[Cell], address: Address | None = None) -> Attempt:
    """`address` saves reading it again where the caller has it already."""
    where, number, token, backend, state = row[:_BEFORE]
    reference, formerly, reason, commit, dirty, function, *observed = row[_AFTER:]
    created_at, started_at, ended_at, exit_code, failure, plan_id = observed
    return Attempt(
        ref=AttemptRef(address or Address.parse(_text(where)), _number(number)),
        token=_text(token),
        backend=_text(backend),
        inputs=_inputs_of(row[_BEFORE:_AFTER]),
        state=AttemptState(_text(state)),
        created_at=from_text(_text(created_at)),
        started_at=from_text(_maybe(started_at)),
        ended_at=from_text(_maybe(ended_at)),
        exit_code=None if exit_code is None else _number(exit_code, least=-LARGEST_NUMBER),
        failure=None if failure is None else FailureClass(_text(failure)),
        plan_id=_maybe(plan_id),
        reference=_maybe(reference),
        formerly=_addresses(formerly),
        provenance=Provenance(
            reason=_maybe(reason),
            commit=_maybe(commit),
            dirty=None if dirty is None else _text(dirty) == "true",
            function=_maybe(function),
        ),
    )


def _addresses(cell: Cell) -> tuple[Address, ...]:
    return () if cell is None else tuple(map(Address.parse, _text(cell).split("\n")))


def _inputs_of(cells: Sequence[Cell]) -> LaunchInputs:
    values: dict[str, Any] = {
        name: _text(cell) if name in _REQUIRED else _maybe(cell)
        for name, cell in zip(_INPUTS, cells, strict=True)
    }
    return LaunchInputs(**{**values, "spec": Spec(values["spec"])})


def intent_row(intent: Intent) -> tuple[Cell, ...]:
    """The cells of an intent in the order of `INTENT_COLUMNS`."""
    launch, job = intent.launch, intent.job
    return (
        intent.token,
        str(intent.address),
        intent.owner,
        intent.action,
        intent.attempt,
        intent.plan_id,
        None if launch is None else json.dumps(to_json(launch)),
        to_text(intent.created_at),
        None if job is None else json.dumps(to_json(job)),
    )


def intent_of(row: Sequence[Cell], lineage: str) -> Intent:
    """`lineage` is the state's: an intent of an older sgpu does not name it."""
    token, address, owner, action, attempt, plan_id, launch, created_at, job = row
    return Intent(
        token=_text(token),
        address=Address.parse(_text(address)),
        owner=_text(owner),
        action=_text(action),
        attempt=_number(attempt),
        plan_id=_text(plan_id),
        created_at=from_text(_text(created_at)),
        launch=None if launch is None else _launch_of(launch, owner, lineage),
        job=None if job is None else _job_of(job),
    )


def _launch_of(text: Cell, owner: Cell, lineage: str) -> LaunchRecord:
    """A launch that was decided. An older sgpu recorded neither its owner nor its lineage."""
    cells = json.loads(_text(text))
    older = {"owner": owner, "lineage": lineage}
    return JsonObject({**older, **cells}, lenient=True).part(LaunchRecord)


def _job_of(text: Cell) -> Resource:
    """A job that was about to be made: it has no attempts, and is nowhere yet."""
    return JsonObject({"last": None, **json.loads(_text(text))}, lenient=True).part(Resource)


def _text(cell: Cell) -> str:
    if not isinstance(cell, str):
        raise ValueError(f"`{cell}` should be text")
    return cell


def _number(cell: Cell, *, least: int = 0) -> int:
    if isinstance(cell, bool) or not isinstance(cell, int) or not least <= cell <= LARGEST_NUMBER:
        raise ValueError(f"`{str(cell)[:40]}` should be a number")
    return cell


def _maybe(cell: Cell) -> str | None:
    return None if cell is None else _text(cell)

"""The state as the JSON that `sgpu state pull` prints (`schemas/state.v1.schema.json`), and the way
back."""

import json
from collections import defaultdict
from typing import Any, cast

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState, FailureClass
from sgpu_decl.model.codec import JsonObject, to_json
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord, Provenance
from sgpu_decl.model.state import Attempt, Intent, Resource, State
from sgpu_decl.model.times import from_text, to_text

FORMAT_VERSION = "1.1"
UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What reading a state raises that lacks something, or holds values of another kind."""


def state_to_json(everything: tuple[State, tuple[Attempt, ...]] | None) -> dict[str, Json]:
    """Return everything that is recorded, as `StateStore.read_all` gives it: resources by address
    and attempts by number. Without a state yet, the lineage is null, the serial 0 and the lists are
    empty."""
    if everything is None:
        return {
            "format_version": FORMAT_VERSION,
            "lineage": None,
            "serial": 0,
            "resources": [],
            "intents": [],
            "package_lists": {},
        }
    state, attempts = everything
    histories: defaultdict[Address, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        histories[attempt.ref.address].append(attempt)
    return {
        "format_version": FORMAT_VERSION,
        "lineage": state.lineage,
        "serial": state.serial,
        "resources": [
            _resource(state.resources[address], histories[address])
            for address in sorted(state.resources)
        ],
        "intents": [_intent(intent) for intent in state.intents],
        "package_lists": {
            digest: json.loads(state.package_lists[digest].text)
            for digest in sorted(state.package_lists)
        },
    }


def _resource(resource: Resource, history: list[Attempt]) -> dict[str, Json]:
    return {
        "address": str(resource.address),
        "kind": resource.address.kind.value,
        "backend": resource.backend,
        "owner": resource.owner,
        "gone": resource.gone,
        "numbered": resource.numbered,
        "remote": None if resource.remote is None else json.loads(resource.remote),
        "spec": json.loads(resource.spec),
        "attempts": [
            {
                **attempt_to_json(attempt),
                "spec": None if attempt.inputs.spec == resource.spec else _parsed(attempt),
                "formerly": [str(address) for address in attempt.formerly],
            }
            for attempt in history
        ],
    }


def attempt_to_json(attempt: Attempt) -> dict[str, Json]:
    """One line of history in the public JSON."""
    written = cast("dict[str, Json]", to_json(attempt))
    del written["spec"]  # that of the resource is printed
    return {"attempt": attempt.ref.number, **written}


def _intent(intent: Intent) -> dict[str, Json]:
    return {
        "token": intent.token,
        "address": str(intent.address),
        "owner": intent.owner,
        "action": intent.action,
        "attempt": intent.attempt,
        "plan_id": intent.plan_id,
        "created_at": to_text(intent.created_at),
        "launch": to_json(intent.launch),
        "job": to_json(intent.job),
    }


def problem_of(error: Exception) -> str:
    """What is wrong with what was read, in words that follow its name."""
    if isinstance(error, KeyError):
        return f"lacks `{error.args[0]}`"
    if isinstance(error, ValueError):
        return f"cannot be read: {error}"
    return "cannot be read: it holds a value of another kind than it should"


def state_from_json(document: object) -> tuple[State, tuple[Attempt, ...]]:
    """Read what `state_to_json` made of a state.

    Raises:
        one of UNREADABLE: it is something else, or was made by an older sgpu, which left something
            out.
    """
    from sgpu_decl.storing.journal import ops
    from sgpu_decl.storing.journal.op_checks import check_op

    written = cast("dict[str, Any]", document)
    if written["format_version"].partition(".")[0] != "1":
        raise ValueError(f"its `format_version` is {written['format_version']}")
    if written["lineage"] is None:
        raise ValueError("it is that of a state that holds nothing")
    histories = {
        Address.parse(item["address"]): tuple(
            _attempt_from(Address.parse(item["address"]), attempt, canonical(item["spec"]))
            for attempt in item["attempts"]
        )
        for item in written["resources"]
    }
    attempts = tuple(attempt for history in histories.values() for attempt in history)
    state = State(
        lineage=written["lineage"],
        serial=written["serial"],
        resources={
            address: _resource_from(address, item, histories[address])
            for address, item in zip(histories, written["resources"], strict=True)
        },
        active=tuple(attempt for attempt in attempts if attempt.state.active),
        intents=tuple(_intent_from(item) for item in written["intents"]),
        package_lists={
            digest: PackageList.from_text(canonical(packages))
            for digest, packages in written["package_lists"].items()
        },
    )
    check_op(ops.replace(state, attempts))  # what no entry may hold, no state does
    return state, attempts


def _resource_from(
    address: Address, item: dict[str, Any], history: tuple[Attempt, ...]
) -> Resource:
    return Resource(
        address=address,
        backend=item["backend"],
        owner=item["owner"],
        spec=canonical(item["spec"]),
        last=history[-1] if history else None,
        gone=item["gone"],
        numbered=item["numbered"],
        remote=None if item["remote"] is None else _handle(item["remote"]),
    )


def _handle(remote: Json) -> str:
    return str(JobHandle.parse(canonical(remote)))


def _attempt_from(address: Address, item: dict[str, Any], spec: str) -> Attempt:
    inputs = {**item, "spec": spec if item["spec"] is None else canonical(item["spec"])}
    failure = item["class"]
    return Attempt(
        ref=AttemptRef(address, item["attempt"]),
        token=item["token"],
        backend=item["backend"],
        inputs=JsonObject(inputs).part(LaunchInputs),
        state=AttemptState(item["state"]),
        created_at=from_text(item["created_at"]),
        started_at=from_text(item["started_at"]),
        ended_at=from_text(item["ended_at"]),
        exit_code=item["exit_code"],
        failure=None if failure is None else FailureClass(failure),
        plan_id=item["plan_id"],
        reference=item["reference"],
        formerly=tuple(map(Address.parse, item["formerly"])),
        provenance=JsonObject(item).part(Provenance),
    )


def _intent_from(item: dict[str, Any]) -> Intent:
    launch, job = item["launch"], item["job"]
    return Intent(
        token=item["token"],
        address=Address.parse(item["address"]),
        owner=item["owner"],
        action=item["action"],
        attempt=item["attempt"],
        plan_id=item["plan_id"],
        created_at=from_text(item["created_at"]),
        launch=None if launch is None else JsonObject(launch).whole(LaunchRecord),
        job=None if job is None else JsonObject(job).whole(Resource),
    )


def _parsed(attempt: Attempt) -> Json:
    return cast("Json", json.loads(attempt.inputs.spec))

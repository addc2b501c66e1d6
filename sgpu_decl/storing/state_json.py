"""The state as the JSON that `sgpu state pull` prints (`schemas/state.v1.schema.json`), and the way
back."""

import json
from collections import defaultdict
from typing import Any, cast

from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.codec import JsonObject, to_json
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.job import JobHandle
from sgpu_decl.model.jsonable import Json, Spec, canonical
from sgpu_decl.model.state import Attempt, Intent, Resource, State

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
        "intents": to_json(state.intents),
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
        "spec": resource.spec.fields,
        "attempts": [
            {
                **attempt_to_json(attempt),
                "spec": None
                if attempt.inputs.spec == resource.spec
                else attempt.inputs.spec.fields,
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
            _attempt_from(Address.parse(item["address"]), attempt, item["spec"])
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
        intents=tuple(JsonObject(item).part(Intent) for item in written["intents"]),
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
    remote = item["remote"]
    return JsonObject(item).part(
        Resource,
        address=address,
        spec=Spec.of(item["spec"]),
        last=history[-1] if history else None,
        remote=None if remote is None else str(JobHandle.parse(canonical(remote))),
    )


def _attempt_from(address: Address, item: dict[str, Any], spec: Json) -> Attempt:
    spec = canonical(spec if item["spec"] is None else item["spec"])
    return JsonObject({**item, "spec": spec}).part(
        Attempt,
        ref=AttemptRef(address, item["attempt"]),
        exit_code=item["exit_code"],  # which may be negative
        formerly=tuple(map(Address.parse, item["formerly"])),
    )

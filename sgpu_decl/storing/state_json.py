"""The state as the JSON that `sgpu state pull` prints (`schemas/state.v1.schema.json`)."""

import json
from collections import defaultdict
from typing import cast

from sgpu_decl.model.address import Address
from sgpu_decl.model.codec import to_json
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.state import Attempt, Intent, Resource, State
from sgpu_decl.model.times import to_text

FORMAT_VERSION = "1.0"


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
        "remote": None if resource.remote is None else json.loads(resource.remote),
        "spec": json.loads(resource.spec),
        "attempts": [attempt_to_json(attempt) for attempt in history],
    }


def attempt_to_json(attempt: Attempt) -> dict[str, Json]:
    """One line of history in the public JSON."""
    launch_inputs = cast("dict[str, Json]", to_json(attempt.inputs))
    del launch_inputs["spec"]  # that of the resource is printed
    return {
        "attempt": attempt.ref.number,
        "state": attempt.state.value,
        "token": attempt.token,
        "backend": attempt.backend,
        **launch_inputs,
        "created_at": to_text(attempt.created_at),
        "started_at": to_text(attempt.started_at),
        "ended_at": to_text(attempt.ended_at),
        "exit_code": attempt.exit_code,
        "class": attempt.failure.value if attempt.failure else None,
        "plan_id": attempt.plan_id,
        "reference": attempt.reference,
        **cast("dict[str, Json]", to_json(attempt.provenance)),
    }


def _intent(intent: Intent) -> dict[str, Json]:
    return {
        "token": intent.token,
        "address": str(intent.address),
        "action": intent.action,
        "attempt": intent.attempt,
        "plan_id": intent.plan_id,
        "created_at": to_text(intent.created_at),
    }

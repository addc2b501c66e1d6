"""Checks that planning could have made a saved plan: its parts agree with each other and with the
state.

A checksum would find accidents only, since whoever edits a plan can write a new checksum. So all
that apply relies on, and all that was shown, is derived again from the spec that is launched.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import canonical, digest
from sgpu_decl.model.plan import Action, Change, Plan, PlannedLaunch
from sgpu_decl.model.rename import Rename
from sgpu_decl.model.run_outputs import pins
from sgpu_decl.model.state import State
from sgpu_decl.planning.field_changes import leaves, parse
from sgpu_decl.planning.fingerprint import TOKEN_PREFIX, fingerprint, token
from sgpu_decl.planning.last_known import NO_ATTEMPTS, CurrentAttempts, current_attempts
from sgpu_decl.planning.planner import is_applyable, summary_of
from sgpu_decl.planning.renames import moved, moves_of
from sgpu_decl.planning.run_changes import differences
from sgpu_decl.planning.run_order import launch_levels

_MOST_ATTEMPTS = 1_000_000_000
_LONGEST_PATH = 4096
_LAUNCHING = (Action.CREATE, Action.REPLACE)
_RECORDING = (*_LAUNCHING, Action.UPDATE)
_ENDING = (Action.DESTROY, Action.FORGET)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")
_CHECK = re.compile(r"[a-z][a-z0-9_]{0,63}")
_PLACEMENT = re.compile(r"[ -~]{1,65536}")
_CELL = re.compile(r"\d{1,6}(,\d{1,6}){0,99}", re.ASCII)
_COUNTED = re.compile(r"\d{1,4}:sha256:[0-9a-f]{64}", re.ASCII)
_TOKEN = re.compile(re.escape(TOKEN_PREFIX) + r"[a-z2-7]{52}")


def contradictions(plan: Plan) -> Iterator[str]:
    """The parts of a plan that contradict each other, in words that follow "the plan"."""
    if not _NAME.fullmatch(plan.lineage):
        yield "names a state that cannot be"
    project = PurePosixPath(plan.project)
    if not project.is_absolute() or ".." in project.parts or "\0" in plan.project:
        yield "names no folder as its project"
    addresses = [str(change.address) for change in plan.changes]
    if addresses != sorted(set(addresses)):
        yield "lists its changes twice, or out of order"
    if plan.summary != summary_of(plan.changes):
        yield "counts other changes than it holds"
    if plan.applyable != is_applyable(plan.changes, plan.checks):
        yield "says of itself whether it can be applied, and its checks say otherwise"
    if not all(_CHECK.fullmatch(check.id) for check in plan.checks):
        yield "names a check that cannot be"
    sources = [change.moved_from for change in plan.changes if change.moved_from is not None]
    if len(set(sources)) < len(sources) or not set(sources).isdisjoint(
        change.address for change in plan.changes
    ):
        yield "moves a history that it uses for something else"
    if plan.destroy and any(change.action not in _ENDING for change in plan.changes):
        yield "says that it destroys, and does something else"
    try:
        launch_levels(plan.changes)
    except ValueError:
        yield "lists runs that wait for each other"
    launched = {one.address: one.attempt for one in plan.changes if one.launches}
    for change in plan.changes:
        for what in _contradictions(plan, change, launched):
            yield f"{what} of `{change.address}`"


def disagreements(plan: Plan, state: State) -> Iterator[str]:
    """The parts of a plan that contradict the state, in words that follow "the plan"."""
    moves = {
        change.address: change.moved_from
        for change in plan.changes
        if change.moved_from is not None
    }
    renames = {
        Rename(address=replace(address, key=""), before=replace(before, key=""))
        for address, before in moves.items()
    }
    if moves_of(renames, state) != moves:
        yield "moves what is not recorded, or onto what is"
        return
    state = moved(state, moves)
    known = current_attempts(state, {})
    awaited = {AttemptRef(one.address, one.attempt) for one in plan.changes if one.attempt}
    awaited |= {attempt.ref for attempt in state.active}
    for change in plan.changes:
        attempts = known.get(change.address, NO_ATTEMPTS)
        if not awaited.issuperset(upstream.ref for upstream in change.after):
            yield f"waits for runs that nothing launches of `{change.address}`"
        yield from (f"{what} of `{change.address}`" for what in _disagreements(change, attempts))


def _contradictions(
    plan: Plan, change: Change, launched: Mapping[Address, int | None]
) -> Iterator[str]:
    launch = change.launch
    if change.kind is not change.address.kind:
        yield "gives another kind"
    if change.moved_from is not None and change.moved_from.kind is not change.kind:
        yield "gives another kind to the history"
    numbers = [change.attempt, change.prior.attempt if change.prior else None]
    numbers += [*launch.stop, *launch.wait_for, *launch.beside] if launch else []
    numbers += [upstream.attempt for upstream in change.after]
    if not all(number is None or 1 <= number <= _MOST_ATTEMPTS for number in numbers):
        yield "names an attempt that cannot be"
    if launch is None:
        refused = any(check.severity is Severity.ERROR for check in plan.checks)
        if not refused and (change.fields or change.action in _RECORDING):
            yield "lacks the launch"
        return
    yield from _misformed(change, launch)
    if change.kind is Kind.RUN:
        yield from _contradictions_of_run(plan, change, launch, launched)
    elif change.kind is Kind.JOB and launch.inputs.fingerprint != digest(launch.inputs.spec):
        yield "does not fit the fingerprint"


def _fits_order(change: Change, spec: str, launched: Mapping[Address, int | None]) -> bool:
    """Whether a launch waits for the runs that its spec names, and reads what they will leave.

    Args:
        launched: the attempts that the plan launches.
    """
    named = parse(spec).get("after")
    names = named if isinstance(named, list) else []
    waits = {upstream.address for upstream in change.after}
    return (
        all(address.name in names for address in waits)
        and all(address in waits for address in launched if address.name in names)
        and all(
            launched.get(Address.run(name), number) == number for name, number in pins(spec).items()
        )
    )


def _misformed(change: Change, launch: PlannedLaunch) -> Iterator[str]:
    if launch.token is not None and not _TOKEN.fullmatch(launch.token):
        yield "does not fit the token"
    if (launch.token is not None) and change.action not in _LAUNCHING:
        yield "launches without an action that does"
    inputs = launch.inputs
    digests = (inputs.code_digest, inputs.environment_digest, inputs.packages_digest)
    if not all(item is None or _DIGEST.fullmatch(item) for item in (*digests, inputs.fingerprint)):
        yield "names a digest that cannot be"
    if inputs.placement is not None and not _PLACEMENT.fullmatch(inputs.placement):
        yield "names a placement that cannot be"
    if inputs.cell is not None and not _CELL.fullmatch(inputs.cell):
        yield "names a cell that cannot be"
    if inputs.counted is not None and not _COUNTED.fullmatch(inputs.counted):
        yield "names code that cannot be"
    owner = launch.owner
    if not owner or "\0" in owner or owner.startswith("/") or len(owner) > _LONGEST_PATH:
        yield "names no file as the owner"


def _contradictions_of_run(
    plan: Plan, change: Change, launch: PlannedLaunch, launched: Mapping[Address, int | None]
) -> Iterator[str]:
    inputs = launch.inputs
    backend = _backend_of(change.address, inputs.spec)
    if backend is None:
        yield "launches what is no run"
        return
    if change.action in _ENDING:
        return
    if backend != change.backend:
        yield "shows another backend than it launches on"
    values = dict(leaves(parse(inputs.spec)))
    if not all(
        field.path not in values if field.removed else values.get(field.path, ...) == field.after
        for field in change.fields
    ):
        yield "shows other fields than are launched"
    if change.action not in _LAUNCHING:
        return
    if not _fits_order(change, inputs.spec, launched):
        yield "does not fit `after`"
    if (change.code.digest if change.code else None) != inputs.code_digest:
        yield "shows other code than is launched"
    if (change.environment.digest if change.environment else None) != inputs.environment_digest:
        yield "shows another environment than is launched"
    made = fingerprint(inputs.spec, inputs.code_digest, inputs.environment_digest)
    if made != inputs.fingerprint:
        yield "does not fit the fingerprint"
    number = change.attempt
    if number is None or launch.token != token(plan.lineage, change.address, number, made):
        yield "does not fit the token"
    if number is not None and any(
        earlier >= number for earlier in (*launch.stop, *launch.wait_for, *launch.beside)
    ):
        yield "waits for a later attempt"


def _backend_of(address: Address, spec: str) -> str | None:
    """The backend of a run's spec; none where the text is not the spec of a run."""
    try:
        value = json.loads(spec)
        if not isinstance(value, dict) or canonical(value) != spec:
            return None
        return str(RunConfig.model_validate({"name": address.name, **value}).backend.kind)
    except (ValueError, RecursionError):  # of JSON, and of pydantic
        return None


def _disagreements(change: Change, attempts: CurrentAttempts) -> Iterator[str]:
    launch = change.launch
    if launch is None:
        return
    active = {attempt.ref.number for attempt in attempts.active}
    if not {*launch.stop, *launch.wait_for, *launch.beside} <= active:
        yield "waits for attempts that are not active"
    if change.action in _ENDING:
        resource = attempts.resource
        if resource is None or (resource.spec, resource.owner) != (
            launch.inputs.spec,
            launch.owner,
        ):
            yield "ends something else than what is recorded"
        return
    if change.kind is not Kind.RUN:
        return
    if change.action in _LAUNCHING and change.attempt != attempts.next_attempt:
        yield "does not fit the number of the next attempt"
    shown = {field.path: (field.before, field.after) for field in change.fields}
    if shown not in _expected(launch.inputs.spec, attempts):
        yield "does not show what changes"


def _expected(spec: str, attempts: CurrentAttempts) -> list[dict[str, object]]:
    """The fields that may be shown, by the attempt that they were compared with."""
    if not attempts.known:
        return [{path: (None, value) for path, value in leaves(parse(spec))}]
    lifecycle = parse(spec).get("lifecycle")
    ignored = lifecycle.get("ignore_changes", ()) if isinstance(lifecycle, dict) else ()
    return [
        {
            difference.path: (difference.before, difference.after)
            for difference in differences(spec, attempts, base, ignored)
        }
        for base in (attempts.last, *attempts.active)
    ]

"""The schemas of what sgpu writes: plans, states and event lines.

Vocabularies come from the model, so that a new action or reason is published with it.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt import AttemptState, FailureClass
from sgpu_decl.model.field_origin import OriginRole
from sgpu_decl.model.plan import FORMAT_VERSION, Action, Cause, FieldEffect, Reason

__all__ = ["events_schema", "plan_schema", "state_schema"]

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time", "description": "RFC 3339, UTC."}
_AMOUNT: Schema = {"type": ["number", "null"], "description": "Null where unknown, never 0."}


def plan_schema() -> Schema:
    """`plan -o json` → data, and the same object in a saved plan (which holds more)."""
    return {
        **_object(
            format_version={
                "type": "string",
                "pattern": r"^1\.[0-9]+$",
                "description": f"This is {FORMAT_VERSION}. Readers take any 1.x.",
            },
            tool_version=_TEXT,
            target=_maybe(_TEXT),
            project_name=_described(_maybe(_TEXT), "The name in the project file."),
            git={
                **_object(
                    commit=_maybe(_TEXT),
                    branch=_described(_maybe(_TEXT), "`HEAD` where no branch is checked out."),
                    dirty={
                        "type": ["boolean", "null"],
                        "description": "Whether a tracked file differs from the commit. Null "
                        "where nothing is launched, or git cannot tell.",
                    },
                    base=_described(
                        _maybe(_TEXT), "The commit that the plan was compared with (`--base`)."
                    ),
                    tree=_described(
                        _maybe(_TEXT),
                        "The tree of the project's folder: the same after a merge, a squash or a "
                        "rebase.",
                    ),
                ),
                "type": ["object", "null"],
                "description": "The checkout; null outside of one.",
            },
            lineage=_described(_TEXT, "Identifies the state that the plan was made against."),
            serial=_described(_COUNT, "The state's serial; a plan against an older one is stale."),
            created_at=_TIME,
            config_digest=_TEXT,
            complete=_described(_FLAG, "Whether nothing was left out (`--select`)."),
            applyable=_described(_FLAG, "Whether applying would do something and may."),
            changes=_described(_list(_change()), "Every resource, sorted by address."),
            checks=_list(
                _object(
                    id=_TEXT,
                    severity=_one_of(Severity),
                    address=_maybe(_TEXT),
                    summary=_TEXT,
                    hint=_maybe(_TEXT),
                    place=_maybe(_place()),
                )
            ),
            estimate=_object(
                gpu_hours_expected=_AMOUNT,
                gpu_hours_worst=_AMOUNT,
                cost_expected=_AMOUNT,
                cost_worst=_AMOUNT,
                currency=_maybe(_TEXT),
                price_source=_maybe(_TEXT),
            ),
            summary=_described(
                _object(**{str(action): _COUNT for action in _BY_COUNT}), "Counts runs and jobs."
            ),
        ),
        "additionalProperties": True,
    }


_BY_COUNT = (
    Action.CREATE,
    Action.UPDATE,
    Action.REPLACE,
    Action.DESTROY,
    Action.ADOPT,
    Action.NO_OP,
    Action.FORGET,
)


def state_schema() -> Schema:
    """`state pull`."""
    attempt = _object(
        attempt=_described(_COUNT, "The number: `train#8` is 8."),
        state=_one_of(AttemptState),
        token=_described(_TEXT, "Finds the launch again at its backend."),
        fingerprint=_TEXT,
        code_digest=_maybe(_TEXT),
        environment_digest=_described(_maybe(_TEXT), "Of a declared environment."),
        packages_digest=_described(_maybe(_TEXT), "Names a list of `package_lists`."),
        pool=_described(_maybe(_TEXT), "The id of the pool that its GPUs come from, if any."),
        cell=_described(
            _maybe(_TEXT), "Of a cell of a matrix: the index of each of its values in its axis."
        ),
        counted=_described(
            _maybe(_TEXT), "The digest of the code that counts, after the number of the rule."
        ),
        created_at=_TIME,
        started_at=_maybe(_TIME),
        ended_at=_maybe(_TIME),
        exit_code=_maybe({"type": "integer"}),
        backend=_TEXT,
        plan_id=_described(_maybe(_TEXT), "The plan that launched it."),
        reference=_described(_maybe(_TEXT), "Where its backend has it, in the backend's words."),
        reason=_described(_maybe(_TEXT), "Why it was launched: the `reason` of its plan."),
        commit=_described(_maybe(_TEXT), "The git commit that it was launched from."),
        dirty=_described(_maybe(_FLAG), "Whether a tracked file differed from the commit."),
        spec={
            "type": ["object", "null"],
            "description": "Its config, without defaults; null: that of the resource.",
        },
        formerly=_described(_list(_TEXT), "The addresses that its run had before, oldest first."),
        **{"class": _maybe(_one_of(FailureClass))},
    )
    resource = _object(
        address=_TEXT,
        kind=_one_of(Kind),
        backend=_TEXT,
        owner=_described(_TEXT, "The file that declares it, relative to the project."),
        gone=_described(_FLAG, "Destroyed or forgotten; its history stays."),
        numbered=_described(_COUNT, "The highest attempt number that was ever given."),
        remote={
            "type": ["object", "null"],
            "description": "Where a job is kept: its id, workspace, and what marks it there.",
        },
        spec={"type": "object", "description": "The config last applied, without defaults."},
        attempts=_list(attempt),
    )
    intent: Schema = {
        "type": "object",
        "description": "An effect that was decided and may or may not have happened.",
        "properties": {
            "token": _TEXT,
            "address": _TEXT,
            "owner": _TEXT,
            "action": _TEXT,
            "attempt": _COUNT,
            "launch": {"type": ["object", "null"], "description": "The launch, if it is one."},
            "job": {
                "type": ["object", "null"],
                "description": "The job that is made, if it is one.",
            },
        },
        "required": ["token", "address"],
    }
    return _object(
        format_version=_TEXT,
        lineage=_TEXT,
        serial=_COUNT,
        resources=_list(resource),
        intents=_list(intent),
        package_lists={
            "type": "object",
            "description": "The packages that ranks found, by digest: pairs of name and version.",
            "additionalProperties": _list(_list(_TEXT)),
        },
    )


def events_schema() -> Schema:
    """One line of `events.log`, after its checksum."""
    return {
        "type": "object",
        "properties": {
            "seq": {"type": "integer", "description": "The line's number."},
            "time": {**_TIME, "description": "When, on the wall clock."},
            "mono_ns": {"type": "integer", "description": "When, on the monotonic clock, in ns."},
            "event": {"type": "string", "description": "What happened."},
            "rank": {"type": ["integer", "null"], "description": "The rank it happened to."},
            "restart": {"type": ["integer", "null"], "description": "The restart it belongs to."},
        },
        "required": ["seq", "time", "mono_ns", "event"],
        "additionalProperties": True,
    }


def _change() -> Schema:
    package = {"type": "object", "properties": {"name": _TEXT}, "required": ["name"]}
    change = _object(
        address=_TEXT,
        kind=_one_of(Kind),
        backend=_TEXT,
        action=_one_of(Action),
        reason=_one_of(Reason),
        cause={
            "enum": [*(str(cause) for cause in Cause), None],
            "description": "Compared with a base: `change` (this branch does it), `pending` (the "
            "base would do the same), `drift` (it would, and nobody changed a file) or "
            "`withdrawn` (the base would do it, this branch does not). Else null.",
        },
        moved_from=_described(
            _maybe(_TEXT), "The address that its history has until the plan is applied, if another."
        ),
        unavailable=_described(
            _maybe(_TEXT), "Why `prior` cannot be asked now: it is as it was known last."
        ),
        destructive=_described(_FLAG, "Whether something that runs or is kept would be lost."),
        depends_on=_list(_TEXT),
        after=_described(
            _list(_object(address=_TEXT, attempt=_COUNT)),
            "Attempts of other runs that must succeed before its ranks start.",
        ),
        attempt=_described(_maybe(_COUNT), "The attempt that would be launched, or is attached."),
        prior=_maybe(
            _object(
                attempt=_COUNT,
                state=_one_of(AttemptState),
                ended_at=_maybe(_TIME),
                failure=_maybe(_one_of(FailureClass)),
            )
        ),
        fields=_list(_field()),
        code=_maybe(_object(digest=_TEXT, files=_COUNT, bytes=_COUNT, changed=_list(_TEXT))),
        environment=_maybe(
            _object(
                digest=_maybe(_TEXT),
                added=_list(package),
                removed=_list(package),
                changed=_list(package),
                bytes=_maybe(_COUNT),
                bytes_to_stage=_maybe(_COUNT),
            )
        ),
    )
    return {**change, "additionalProperties": True}


def _place() -> Schema:
    count = {"type": "integer", "minimum": 1}
    return _object(file=_TEXT, line=count, column=count)


def _field() -> Schema:
    field = _object(
        path=_described(_TEXT, "Dotted, relative to the resource: `args.n`."),
        before={"description": 'A secret is `{"secret": "scheme:reference"}`.'},
        after={},
        effect=_one_of(FieldEffect),
        origin=_maybe(_place()),
    )
    origin = _object(
        option=_maybe(_TEXT),
        file=_maybe(_TEXT),
        line=_maybe(_COUNT),
        column=_maybe(_COUNT),
        role=_one_of(OriginRole),
        layer=_described(_maybe(_TEXT), "Such as `target prod`; null for the run or job itself."),
    )
    field["properties"]["origins"] = _described(
        _list(origin), "Only with `--blame`: what gave the value, the strongest first."
    )
    return field


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _one_of(vocabulary: type[StrEnum]) -> Schema:
    return {"enum": [str(word) for word in _words(vocabulary)]}


def _words(vocabulary: type[StrEnum]) -> Iterable[StrEnum]:
    return vocabulary


def _described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text}

"""The schemas of what sgpu writes: plans, states, event lines and lines of a stream.

They are made from the types, so that a new field, action or reason is published with it.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime

from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.address import Kind
from sgpu_decl.model.attempt_view import AttemptView
from sgpu_decl.model.codec import Schema, schema_of
from sgpu_decl.model.event import Step
from sgpu_decl.model.launch import LaunchInputs, Provenance
from sgpu_decl.model.plan import (
    FORMAT_VERSION,
    Change,
    EnvironmentChange,
    Estimate,
    FieldChange,
    GitFacts,
    OriginRole,
    Plan,
)
from sgpu_decl.model.state import Attempt, Intent

_TEXT = schema_of(str, {})
_COUNT = schema_of(int, {})
_FLAG = schema_of(bool, {})
_TIME = schema_of(datetime, {})
_FROM_1: Schema = {"type": "integer", "minimum": 1}
_UNKNOWN = "Null where unknown, never 0."
_PACKAGES: Schema = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": _TEXT}, "required": ["name"]},
}
_NOTES: Mapping[type, Mapping[str, str | Schema]] = {
    Plan: {
        "format_version": {
            "type": "string",
            "pattern": r"^1\.[0-9]+$",
            "description": f"This is {FORMAT_VERSION}. Readers take any 1.x.",
        },
        "project_name": "The name in the project file.",
        "git": "The checkout; null outside of one.",
        "lineage": "Identifies the state that the plan was made against.",
        "serial": "The state's serial; a plan against an older one is stale.",
        "complete": "Whether nothing was left out (`--select`).",
        "applyable": "Whether applying would do something and may.",
        "changes": "Every resource, sorted by address.",
        "summary": "Counts runs and jobs.",
    },
    GitFacts: {
        "branch": "`HEAD` where no branch is checked out.",
        "dirty": "Whether a tracked file differs from the commit. Null where nothing is launched, "
        "or git cannot tell.",
        "base": "The commit that the plan was compared with (`--base`).",
        "tree": "The tree of the project's folder: the same after a merge, a squash or a rebase.",
    },
    Estimate: {
        "gpu_hours_expected": _UNKNOWN,
        "gpu_hours_worst": _UNKNOWN,
        "cost_expected": _UNKNOWN,
        "cost_worst": _UNKNOWN,
    },
    Change: {
        "cause": "Compared with a base: `change` (this branch does it), `pending` (the base would "
        "do the same), `drift` (it would, and nobody changed a file) or `withdrawn` (the base "
        "would do it, this branch does not). Else null.",
        "moved_from": "The address that its history has until the plan is applied, if another.",
        "unavailable": "Why `prior` cannot be asked now: it is as it was known last.",
        "destructive": "Whether something that runs or is kept would be lost.",
        "after": "Attempts of other runs that must succeed before its ranks start.",
        "attempt": "The attempt that would be launched, or is attached.",
    },
    FieldChange: {
        "path": "Dotted, relative to the resource: `args.n`.",
        "before": 'A secret is `{"secret": "scheme:reference"}`.',
    },
    EnvironmentChange: {"added": _PACKAGES, "removed": _PACKAGES, "changed": _PACKAGES},
    Place: {"line": _FROM_1, "column": _FROM_1},
    Attempt: {
        "attempt": {**_COUNT, "description": "The number: `train#8` is 8."},
        "token": "Finds the launch again at its backend.",
        "exit_code": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "plan_id": "The plan that launched it.",
        "reference": "Where its backend has it, in the backend's words.",
        "formerly": {
            "type": "array",
            "items": _TEXT,
            "description": "The addresses that its run had before, oldest first.",
        },
    },
    Intent: {
        "launch": {"type": ["object", "null"], "description": "The launch, if it is one."},
        "job": {"type": ["object", "null"], "description": "The job that is made, if it is one."},
    },
    LaunchInputs: {
        "environment_digest": "Of a declared environment.",
        "packages_digest": "Names a list of `package_lists`.",
        "pool": "The id of the pool that its GPUs come from, if any.",
        "cell": "Of a cell of a matrix: the index of each of its values in its axis.",
        "counted": "The digest of the code that counts, after the number of the rule.",
        "spec": {
            "type": ["object", "null"],
            "description": "Its config, without defaults; null: that of the resource.",
        },
    },
    Provenance: {
        "reason": "Why it was launched: the `reason` of its plan.",
        "commit": "The git commit that it was launched from.",
        "dirty": "Whether a tracked file differed from the commit.",
        "function": "Of a call: the name of the function.",
    },
}


def plan_schema() -> Schema:
    """`plan -o json` → data, and the same object in a saved plan (which holds more)."""
    plan = schema_of(Plan, _NOTES)
    change = plan["properties"]["changes"]["items"]
    for grows in (plan, change):
        grows["additionalProperties"] = True
    origin = _object(
        option=_maybe(_TEXT),
        file=_maybe(_TEXT),
        line=_maybe(_COUNT),
        column=_maybe(_COUNT),
        role=schema_of(OriginRole, {}),
        layer=_described(_maybe(_TEXT), "Such as `target prod`; null for the run or job itself."),
    )
    change["properties"]["fields"]["items"]["properties"]["origins"] = _described(
        _list(origin), "Only with `--blame`: what gave the value, the strongest first."
    )
    return plan


def state_schema() -> Schema:
    """`state pull`."""
    resource = _object(
        address=_TEXT,
        kind=schema_of(Kind, {}),
        backend=_TEXT,
        owner=_described(_TEXT, "The file that declares it, relative to the project."),
        gone=_described(_FLAG, "Destroyed or forgotten; its history stays."),
        numbered=_described(_COUNT, "The highest attempt number that was ever given."),
        remote={
            "type": ["object", "null"],
            "description": "Where a job is kept: its id, workspace, and what marks it there.",
        },
        spec={"type": "object", "description": "The config last applied, without defaults."},
        attempts=_list(schema_of(Attempt, _NOTES)),
    )
    intent = _described(
        schema_of(Intent, _NOTES), "An effect that was decided and may or may not have happened."
    )
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


def stream_schema() -> Schema:
    """One line of `--json-into`; each type has keys of its own. Types and keys may be added."""
    attempt = _described(_maybe(_COUNT), "The attempt that is launched or attached, if any.")
    change = {
        "address": _TEXT,
        "attempt": attempt,
        "step": _described(schema_of(Step, {}), "What was done."),
        "message": _described(_maybe(_TEXT), "Why it failed, or what else there is to say."),
    }
    diagnostic = {
        **dict.fromkeys(("code", "summary"), _TEXT),
        "severity": schema_of(Severity, {}),
        **{name: _maybe(_TEXT) for name in ("file", "hint")},
        **{name: _maybe(_COUNT) for name in ("line", "column")},
        "related": {"type": "array"},
    }
    error = _described(
        _maybe({"type": "object"}),
        "The error with which the command ended, as `-o json` shows it.",
    )
    seen = {one.name: one.type for one in fields(AttemptView)}
    keys: dict[str, tuple[str, dict[str, Schema]]] = {
        "version": ("The first line.", {"tool_version": _TEXT}),
        "plan": (
            "A plan that was made or loaded: the object of `plan.v1.schema.json`.",
            {"plan": {"type": "object"}},
        ),
        "change_started": ("A launch begins.", change),
        "change_done": ("A change was carried out.", change),
        "change_failed": ("A change was not carried out.", change),
        "run_state": (
            "An attempt that is followed has another state.",
            {
                **dict.fromkeys(("address", "name"), _TEXT),
                "attempt": _FROM_1,
                **{
                    name: schema_of(seen[name], {})
                    for name in ("state", "started_at", "ended_at", "restart")
                },
            },
        ),
        "diagnostic": (
            "A check of the plan, or a finding of the command.",
            {"diagnostic": _open(diagnostic)},
        ),
        "summary": ("The last line.", {"exit_code": _COUNT, "error": error}),
    }
    return {
        **_open({"v": {"const": 1}, "ts": _TIME, "type": _TEXT}),
        "oneOf": [
            {
                "description": text,
                "properties": {"type": {"const": name}, **more},
                "required": ["type", *more],
            }
            for name, (text, more) in keys.items()
        ],
    }


def _open(properties: dict[str, Schema]) -> Schema:
    """An object that may have more keys."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _object(**properties: Schema) -> Schema:
    return {**_open(properties), "additionalProperties": False}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text}

"""A plan as JSON: the public object, and the saved one that apply can be given later.

The saved object is the public one with `project`, `destroy`, `package_lists` and, for each change,
`launch`, `unchanged`, `nulls` and `drifted` added.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.jsonable import Json, canonical, digest
from sgpu_decl.model.plan import (
    FORMAT_VERSION,
    Change,
    Check,
    CodeChange,
    EnvironmentChange,
    Estimate,
    FieldChange,
    Launch,
    Plan,
    Prior,
    Summary,
)
from sgpu_decl.planning.loading import CHECKSUM, saved_from_json

__all__ = [
    "plan_id",
    "plan_to_json",
    "saved_from_json",
    "saved_text",
    "saved_to_json",
    "time_text",
]


def plan_to_json(plan: Plan) -> dict[str, Json]:
    """Return the plan of the public contract (`schemas/plan.v1.schema.json`)."""
    return _plan(plan, [_change(change) for change in plan.changes])


def saved_to_json(plan: Plan) -> dict[str, Json]:
    """Return the public object plus all that apply needs."""
    changes: list[Json] = [
        {
            **_change(change),
            "unchanged": change.unchanged,
            "nulls": _nulls(change.fields),
            "drifted": [it.path for it in change.fields if it.drifted],
            "launch": _launch(change.launch),
        }
        for change in plan.changes
    ]
    return {
        **_plan(plan, changes),
        "project": plan.project,
        "destroy": plan.destroy,
        "package_lists": [it.text for it in plan.package_lists],
    }


def saved_text(plan: Plan) -> str:
    """Return the text of a saved plan: canonical, so that equal plans are equal files."""
    return canonical({**saved_to_json(plan), CHECKSUM: plan_id(plan)}) + "\n"


def plan_id(plan: Plan) -> str:
    """Return what identifies a plan: the same plan cannot be applied twice."""
    return digest(canonical(saved_to_json(plan)))


def time_text(moment: datetime) -> str:
    """Return RFC 3339 in UTC, with microseconds only where there are some."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _plan(plan: Plan, changes: list[Json]) -> dict[str, Json]:
    return {
        "format_version": FORMAT_VERSION,
        "tool_version": plan.tool_version,
        "target": plan.target,
        "lineage": plan.lineage,
        "serial": plan.serial,
        "created_at": time_text(plan.created_at),
        "config_digest": plan.config_digest,
        "complete": plan.complete,
        "applyable": plan.applyable,
        "changes": changes,
        "checks": [_check(check) for check in plan.checks],
        "estimate": _estimate(plan.estimate),
        "summary": _summary(plan.summary),
    }


def _change(change: Change) -> dict[str, Json]:
    return {
        "address": str(change.address),
        "kind": str(change.kind),
        "backend": change.backend,
        "action": str(change.action),
        "reason": str(change.reason),
        "destructive": change.destructive,
        "depends_on": [str(address) for address in change.depends_on],
        "attempt": change.attempt,
        "prior": _prior(change.prior),
        "fields": [_field(field) for field in change.fields],
        "code": _code(change.code),
        "environment": _environment(change.environment),
    }


def _prior(prior: Prior | None) -> Json:
    if prior is None:
        return None
    return {
        "attempt": prior.attempt,
        "state": str(prior.state),
        "ended_at": None if prior.ended_at is None else time_text(prior.ended_at),
    }


def _field(field: FieldChange) -> Json:
    return {
        "path": field.path,
        "before": field.before,
        "after": field.after,
        "effect": str(field.effect),
        "origin": None if field.origin and field.origin.is_option else _place(field.origin),
    }


def _nulls(fields: Sequence[FieldChange]) -> Json:
    """The fields whose null is a value, on either side: any other null says that there is none."""
    return {
        "before": [it.path for it in fields if it.before is None and not it.added],
        "after": [it.path for it in fields if it.after is None and not it.removed],
    }


def _place(place: Place | None) -> Json:
    return None if place is None else dict(place.to_json())


def _code(code: CodeChange | None) -> Json:
    if code is None:
        return None
    return {
        "digest": code.digest,
        "files": code.files,
        "bytes": code.bytes,
        "changed": list(code.changed),
    }


def _environment(environment: EnvironmentChange | None) -> Json:
    if environment is None:
        return None
    packages = environment.packages
    return {
        "digest": environment.digest,
        "added": [{"name": p.name, "version": p.after} for p in packages if p.before is None],
        "removed": [
            {"name": p.name, "version": p.before}
            for p in packages
            if p.before is not None and p.after is None
        ],
        "changed": [
            {"name": p.name, "before": p.before, "after": p.after}
            for p in packages
            if p.before is not None and p.after is not None
        ],
        "bytes": environment.bytes,
        "bytes_to_stage": environment.bytes_to_stage,
    }


def _launch(launch: Launch | None) -> Json:
    if launch is None:
        return None
    return {
        "spec": launch.spec,
        "owner": launch.owner,
        "fingerprint": launch.fingerprint,
        "token": launch.token,
        "code_digest": launch.code_digest,
        "environment_digest": launch.environment_digest,
        "packages_digest": launch.packages_digest,
        "pool": launch.pool,
        "stop": list(launch.stop),
        "wait_for": list(launch.wait_for),
    }


def _check(check: Check) -> Json:
    return {
        "id": check.id,
        "severity": str(check.severity),
        "address": None if check.address is None else str(check.address),
        "summary": check.summary,
        "hint": check.hint,
        "place": _place(check.place),
    }


def _estimate(estimate: Estimate) -> Json:
    return {
        "gpu_hours_expected": estimate.gpu_hours_expected,
        "gpu_hours_worst": estimate.gpu_hours_worst,
        "cost_expected": estimate.cost_expected,
        "cost_worst": estimate.cost_worst,
        "currency": estimate.currency,
        "price_source": estimate.price_source,
    }


def _summary(summary: Summary) -> Json:
    return {
        "create": summary.create,
        "update": summary.update,
        "replace": summary.replace,
        "destroy": summary.destroy,
        "adopt": summary.adopt,
        "no_op": summary.no_op,
        "forget": summary.forget,
    }

"""The changed settings of jobs as the YAML says them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sgpu_decl.model.address import Kind
from sgpu_decl.model.backend_kinds import job_rules
from sgpu_decl.model.job import JobField, JobRules
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.plan import Change, FieldChange, Plan
from sgpu_decl.planner.field_changes import leaves


def in_words_of_yaml(plan: Plan) -> Plan:
    """The plan with the fields of its jobs as the YAML says them: a `timeout` of `2h` and not
    `timeout_seconds` of 7200. Settings that the YAML has no field for stay as they are."""
    if all(change.kind is not Kind.JOB or not change.fields for change in plan.changes):
        return plan
    changes = tuple(
        replace(change, fields=_in_words(change)) if change.kind is Kind.JOB else change
        for change in plan.changes
    )
    return replace(plan, changes=changes)


def _in_words(change: Change) -> Sequence[FieldChange]:
    if change.launch is None:
        return change.fields
    rules = job_rules(change.backend)
    after = dict(leaves(change.launch.inputs.spec.fields))
    before = _before(after, change.fields)
    fields: dict[str, FieldChange] = {}
    for field in change.fields:
        told = _told(field, before, after, rules)
        if told is not None:
            earlier = fields.get(told.path)
            fields[told.path] = told if earlier is None else _joined(earlier, told)
    changed = (one for one in fields.values() if one.drifted or one.before != one.after)
    return tuple(sorted(changed, key=lambda field: field.path))


def _before(after: Mapping[str, Json], fields: Iterable[FieldChange]) -> dict[str, Json]:
    """All settings as they were, by their paths."""
    settings = dict(after)
    for field in fields:
        settings.pop(field.path, None)
        if not field.added:
            settings[field.path] = field.before
    return settings


def _told(
    field: FieldChange, before: Mapping[str, Json], after: Mapping[str, Json], rules: JobRules
) -> FieldChange | None:
    """A changed setting, or None where it goes without saying."""
    old = _side(field.path, before, rules, missing=field.added)
    new = _side(field.path, after, rules, missing=field.removed)
    known = [side for side in (old, new) if side is not None]
    if len({side.path for side in known}) != 1:
        return field
    if all(side.implied for side in known):
        return None
    return replace(
        field,
        path=known[0].path,
        before=old.value if old is not None else None,
        after=new.value if new is not None else None,
    )


def _side(
    path: str, settings: Mapping[str, Json], rules: JobRules, *, missing: bool
) -> JobField | None:
    return None if missing or path not in settings else rules.field(path, settings)


def _joined(one: FieldChange, other: FieldChange) -> FieldChange:
    """Two settings that are one field: what one of them lacks, the other has."""
    return replace(
        one,
        before=other.before if one.added else one.before,
        after=other.after if one.removed else one.after,
        added=one.added and other.added,
        removed=one.removed and other.removed,
        drifted=one.drifted or other.drifted,
    )

"""A plan as JSON: the public object, and the saved one that apply can be given later.

Both are the fields of `model/plan`. The saved object has more keys than the public one: `project`,
`destroy`, `values_left_out`, `identity` and `package_lists`, and for each change `launch`,
`unchanged`, `nulls` and `drifted`. It is read strictly, since apply carries it out without deciding
again: a key that is unknown is refused, unless a newer 1.x wrote it, and one that is missing,
unless an older 1.x did.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NoReturn, cast

from sgpu_decl.config.run import run_config
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.frozen_dataclass import PRIVATE, dataclass
from sgpu_decl.model.address import Kind
from sgpu_decl.model.codec import BadValue, JsonObject, MissingKey, UnknownKey, to_json
from sgpu_decl.model.environment import PackageList
from sgpu_decl.model.jsonable import Json, Spec, canonical, digest
from sgpu_decl.model.plan import (
    FORMAT_VERSION,
    Action,
    Change,
    EnvironmentChange,
    FieldChange,
    GitFacts,
    Plan,
)
from sgpu_decl.planner.environment_changes import PackageSides

_CHECKSUM = "checksum"  # the digest of all the rest of a saved plan
_SEAL = "seal"  # of plans that were saved while there were sealed ones
_VALIDATED = frozenset({Action.CREATE, Action.REPLACE, Action.UPDATE})  # others have old specs
_LONGEST_BRANCH = 1000  # files have shorter names
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")  # names of files have it
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_AGAIN = "make it again with `sgpu plan --out run.plan`"


def plan_to_json(plan: Plan) -> dict[str, Json]:
    """Return the plan of the public contract (`schemas/plan.v1.schema.json`)."""
    changes = [_published(Change, _change(change)) for change in plan.changes]
    return _published(Plan, _plan(plan, changes))


def saved_to_json(plan: Plan) -> dict[str, Json]:
    """Return the public object plus all that apply needs."""
    return {
        **_plan(plan, [_saved_change(change) for change in plan.changes]),
        "package_lists": [item.text for item in plan.package_lists],
    }


def saved_text(plan: Plan) -> str:
    """Return the text of a saved plan: canonical, so that equal plans are equal files."""
    return canonical({**saved_to_json(plan), _CHECKSUM: plan_id(plan)}) + "\n"


def plan_id(plan: Plan) -> str:
    """Return what identifies a plan: the same plan cannot be applied twice."""
    return digest(canonical(saved_to_json(plan)))


def saved_from_json(
    text: str, file: str | None = None
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """Read a saved plan; `file` names it in diagnostics. Never raises for a bad one."""
    about = f"`{file}`" if file else "the plan file"
    try:
        value = json.loads(text, parse_constant=_constant)
        checksum = None
        if isinstance(value, dict):
            value.pop(_SEAL, None)
            checksum = value.pop(_CHECKSUM, None)
        plan = _saved_plan(value)
        whole = canonical(value)
        if checksum != digest(whole):
            raise _Refused("was changed after it was saved", code="plan_edited")
        whole.encode("utf-8", "surrogateescape")  # names of files may be no UTF-8
    except json.JSONDecodeError as error:
        return None, (_not_json(text, about, file, error),)
    except RecursionError:
        return None, (_refusal("bad_plan", f"{about} is nested too deeply for a plan"),)
    except _Refused as refused:
        return None, (_refusal(refused.code, f"{about} {refused.why}", refused.hint),)
    except UnknownKey as error:
        summary = f"{about} holds `{error.path}`, which this version does not know"
        return None, (_refusal("bad_plan", summary, _OTHER_VERSION),)
    except MissingKey as error:
        return None, (_refusal("bad_plan", f"{about} is not a whole plan: {error}"),)
    except BadValue as error:
        return None, (_refusal("bad_plan", f"{about} is not a plan: {error}"),)
    except UnicodeEncodeError:
        return None, (_refusal("bad_plan", f"{about} holds text that is no Unicode"),)
    except ValueError:
        return None, (_refusal("bad_plan", f"{about} holds a number that no plan has"),)
    return plan, ()


_OTHER_VERSION = "apply it with the version of `sgpu` that made it, or plan again"


class _Refused(Exception):
    def __init__(self, why: str, *, code: str = "bad_plan", hint: str = _AGAIN) -> None:
        super().__init__(why)
        self.why = why
        self.code = code
        self.hint = hint


def _refusal(code: str, summary: str, hint: str = _AGAIN) -> Diagnostic:
    return Diagnostic(code=code, severity=Severity.ERROR, summary=summary, hint=hint)


def _not_json(text: str, about: str, file: str | None, error: json.JSONDecodeError) -> Diagnostic:
    place = Place(file, error.lineno, error.colno) if file else None
    if not text.strip():
        return _refusal("bad_plan", f"{about} is empty")
    # What was cut off fails at its very end, or in a text that never closes.
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        summary = f"{about} is cut off before its end"
        return replace(_refusal("truncated_plan", summary), place=place)
    return replace(_refusal("bad_plan", f"{about} is not JSON"), place=place)


def _constant(name: str) -> NoReturn:
    raise _Refused(f"holds `{name}`, which is not JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nulls:
    """The paths of fields whose null is a value; any other null says that there is none."""

    before: tuple[str, ...]
    after: tuple[str, ...]

    @classmethod
    def of(cls, change: Change) -> "_Nulls":
        return cls(
            before=tuple(
                field.path for field in change.fields if field.before is None and not field.added
            ),
            after=tuple(
                field.path for field in change.fields if field.after is None and not field.removed
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedOfChange:
    nulls: _Nulls
    drifted: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedOfPlan:
    package_lists: tuple[str, ...]


def _published(kind: type[Plan | Change], value: dict[str, Json]) -> dict[str, Json]:
    private = {one.name for one in fields(kind) if one.metadata == PRIVATE}
    return {key: item for key, item in value.items() if key not in private}


def _plan(plan: Plan, changes: Sequence[Json]) -> dict[str, Json]:
    written = cast("dict[str, Json]", to_json(replace(plan, changes=())))
    return {"format_version": FORMAT_VERSION, **written, "changes": changes}


def _saved_change(change: Change) -> dict[str, Json]:
    change = replace(change, fields=tuple(change.fields))
    return {
        **_change(change),
        "nulls": to_json(_Nulls.of(change)),
        "drifted": [field.path for field in change.fields if field.drifted],
    }


def _change(change: Change) -> dict[str, Json]:
    written = cast("dict[str, Json]", to_json(replace(change, fields=(), environment=None)))
    written["fields"] = [_field(field) for field in change.fields]
    if change.environment is not None:
        written["environment"] = _environment(change.environment)
    return written


def _field(field: FieldChange) -> Json:
    is_option = field.origin is not None and field.origin.is_option
    return to_json(replace(field, origin=None) if is_option else field)


def _environment(environment: EnvironmentChange) -> Json:
    written = cast("dict[str, Json]", to_json(environment))
    return {**written, **PackageSides.of(environment.packages).to_json()}


def _saved_plan(value: object) -> Plan:
    readers = {
        Plan: _read_plan,
        GitFacts: _read_git,
        Change: _read_change,
        EnvironmentChange: _read_environment,
    }
    if not isinstance(value, dict):
        raise _Refused("is not a plan: the file is not an object")
    if "format_version" not in value:
        raise _Refused("is not a plan: it has no `format_version`")
    version = value["format_version"]
    if not isinstance(version, str) or not re.fullmatch(r"1\.\d{1,4}", version, re.ASCII):
        raise _Refused(
            f"has the plan format `{version}`; this version of `sgpu` reads `{FORMAT_VERSION}`",
            code="plan_format",
            hint=_OTHER_VERSION,
        )
    minor, ours = (int(text.partition(".")[2]) for text in (version, FORMAT_VERSION))
    if minor == 0:
        value = _of_1_0(value)
    if minor < 2:
        value = {"identity": None, **value}
    if minor < 3:
        value = _of_1_2(value)
    if minor < 4:
        value = {"platforms": [], **value}
    return JsonObject(value, readers=readers, newer=minor > ours).whole(Plan)


def _of_1_0(value: dict[str, Json]) -> dict[str, Json]:
    """A plan of the format 1.0, whose `git` lacked keys and was text, as one of the format 1.1."""
    git = value.get("git")
    if isinstance(git, dict):
        dirty = {"true": True, "false": False}.get(str(git.get("dirty")))
        git = {"commit": None, "branch": None, "base": None, "tree": None, **git, "dirty": dirty}
    changes = value.get("changes")
    if isinstance(changes, list):
        lacking = {"cause": None, "moved_from": None}
        changes = [
            {**lacking, **_launch_of_1_0(one)} if isinstance(one, dict) else one for one in changes
        ]
    return {
        **value, "git": git, "project_name": None, "values_left_out": [], "changes": changes
    }  # fmt: skip


def _of_1_2(value: dict[str, Json]) -> dict[str, Json]:
    """A plan of the format 1.2, whose changes lacked `unavailable` and the failure of the last
    attempt, as one of the format 1.3."""
    changes = value.get("changes")
    if not isinstance(changes, list):
        return value
    changes = [_change_of_1_2(one) if isinstance(one, dict) else one for one in changes]
    return {**value, "changes": changes}


def _change_of_1_2(change: dict[str, Json]) -> dict[str, Json]:
    prior = change.get("prior")
    if isinstance(prior, dict):
        prior = {"failure": None, **prior}
    return {"unavailable": None, **change, **({"prior": prior} if prior else {})}


def _launch_of_1_0(change: dict[str, Json]) -> dict[str, Json]:
    launch = change.get("launch")
    if not isinstance(launch, dict):
        return change
    return {**change, "launch": {"beside": [], **launch}}


def _read_plan(saved: JsonObject) -> Plan:
    saved.take("format_version")
    if "changes" in saved and "project" not in saved:
        raise _Refused("is the output of `sgpu plan -o json`, which lacks what apply needs")
    lists = saved.part(_SavedOfPlan).package_lists
    plan = saved.part(Plan)
    if not plan.project.startswith("/") or "\0" in plan.project:
        raise _Refused("names no folder as its project")
    return replace(plan, package_lists=tuple(map(PackageList.from_text, lists)))


def _read_git(saved: JsonObject) -> GitFacts:
    git = saved.part(GitFacts)
    ids = (git.commit, git.base, git.tree)  # words of git commands, and of commands in hints
    branch = git.branch or ""
    if (
        not all(one is None or _OBJECT_ID.fullmatch(one) for one in ids)
        or not branch.isprintable()
        or len(branch) > _LONGEST_BRANCH
    ):
        raise _Refused("is not a plan: `git` says what no checkout does")
    return git


def _read_change(saved: JsonObject) -> Change:
    more, change = saved.part(_SavedOfChange), saved.part(Change)
    fields = tuple(
        replace(
            field,
            added=field.before is None and field.path not in more.nulls.before,
            removed=field.after is None and field.path not in more.nulls.after,
            drifted=field.path in more.drifted,
        )
        for field in change.fields
    )
    if change.launch is not None:
        inputs = change.launch.inputs
        digests = (inputs.code_digest, inputs.environment_digest, inputs.packages_digest)
        if not all(item is None or _DIGEST.fullmatch(item) for item in digests):
            raise _Refused(f"launches `{change.address}` with a digest that cannot be")
        if not _is_spec(inputs.spec, change):
            raise _Refused(f"launches as `{change.address}` what is no {change.kind}")
    return replace(change, fields=fields)


def _is_spec(spec: Spec, change: Change) -> bool:
    """Whether it is the spec of a run or a job, so that it can be shown and launched."""
    try:
        if not isinstance(spec.fields, dict) or Spec.of(spec.fields) != spec:
            return False
        if change.kind is Kind.RUN and change.action in _VALIDATED:
            run_config(change.address.name, spec)
    except (ValueError, RecursionError):  # of JSON, and of pydantic
        return False
    return True


def _read_environment(saved: JsonObject) -> EnvironmentChange:
    packages = saved.part(PackageSides).changes
    return replace(saved.part(EnvironmentChange), packages=packages)

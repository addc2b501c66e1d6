"""The page of fields: from the models, the policies of planning, and the examples beside this file."""

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from sgpu_decl.config.backend import BackendOptions, known_options
from sgpu_decl.config.field_help import FieldHelp, describe
from sgpu_decl.model.backend_kinds import our_kinds
from sgpu_decl.planner.policy import OPTIONAL_FIELDS, POLICY, FieldClass, FieldRule

EXAMPLES = tomllib.loads(
    Path(__file__).with_name("field_examples.toml").read_text(encoding="utf-8")
)
ROOT = Path(__file__).resolve().parents[2]

HEAD = """\
# Fields

Every field of a run file and of a project file. `sgpu explain run.retry` prints the same about one field, and
[YAML files](../yaml.md) explains how sgpu reads files. Each field names the effect of a change:

- **a new attempt**: the run computes something else, so the next apply launches it.
- **noted for the next attempt**: the change does not start the run again.
- **kept in the state**: sgpu records the change, and does nothing else.
- **another run**: the field is part of the address.

A field inside of another field has its own effect.

If only some backends have a field, its text names them. All other fields work on every backend.

## Fields of a run

Write them at the top of a run file, or in an entry of `runs` in a project file. A decorated function takes most of them.
"""
PROJECT_HEAD = """\
## Fields of a project file

A run file may also have `variables` and `targets`. `defaults`, `presets`, `variables` and `targets` set fields of runs and jobs,
so a change of them has the effect of a change of those fields.
"""
REST = """\
The other fields of a job ({names}) have the same meaning as in a run. An entry of `environments` has the fields of `env`, without
`use`, `variables` and `secrets`. `functions` has `keep_warm`, and the fields of a run that a call does not decide itself.
"""
CHANGES = {
    FieldClass.DATA: "a new attempt",
    FieldClass.LAUNCH: "noted for the next attempt",
    FieldClass.META: "kept in the state",
    FieldClass.IDENTITY: "another run",
}
JOB_CHANGE = "the next apply changes the job in place; launches of the job continue"
RENAMED = "the run stays, with its history, and gets the new name"
OTHER_STATE = (
    "another state: the runs of the old one are not known there until they are "
    "[brought along](../state.md)"
)
PROJECT_CHANGES = {
    "project": "nothing is launched: it is shown to people",
    "project.name": "nothing is launched: it is shown in plans, and is `${project.name}`",
    "requires": "nothing is launched: other versions of sgpu refuse the project",
    "mode": "nothing is launched; jobs get the names, tags and schedules of the mode with the next apply",
    "runs": "a new run is launched, and a changed run as its fields say; a run that you remove is "
    "stopped if it is active, and removed from the state; its history stays",
    "jobs": "a new job is created in the workspace, a changed job is changed in place, and a job "
    "that you remove is deleted",
    "jobs.NAME.enabled": "the job is created, or deleted, in that target",
    "jobs.NAME.targets": "the job is created, or deleted, in these targets",
    "jobs.NAME.renamed_from": "the job stays, with its history, and gets the new name",
    "environments": "a new attempt of the runs that use it, if its packages differ",
    "functions": "none by itself: later calls are made with it",
    "state": OTHER_STATE,
    "state.password": "none: the next command logs in with it",
    "removed": "the named runs and jobs are removed from the state, and continue",
    "include": "the same as adding or removing the content of those files in the project",
    "defaults": "the change of these fields, in runs and jobs that do not set them themselves",
    "run_as": "launches of all jobs have the rights of somebody else; jobs are changed in place",
    "presets": "the change of the fields that it sets in runs and jobs",
    "presets.name_prefix": "jobs are renamed in place",
    "presets.tags": "kept in the state for runs, changed in place for jobs",
    "presets.paused": "schedules and triggers of jobs are suspended or resumed",
    "variables": "the change of the fields that refer to it",
    "targets": "the change of the fields that the target sets, only in that target",
}
"""What a change of a field of a project does, for it and the fields below it."""

AS_IN_A_RUN = frozenset({"tags", "permissions", "budget", "on_finish", "lifecycle", "backend"})
"""Fields of a job that mean what they mean in a run."""


def page() -> str:
    parts = [HEAD]
    for field in run_fields():
        parts += [*_section(field, "run"), *_change(_path(field))]
        parts += [*_backends(_path(field)), ""]
    parts.append(PROJECT_HEAD)
    for field in project_fields():
        parts += [*_section(field, "project"), *_change_in_project(_path(field)), ""]
    names = ", ".join(f"`{name}`" for name in sorted(AS_IN_A_RUN))
    return "\n".join([*parts, REST.format(names=names)])


def run_fields() -> Iterator[FieldHelp]:
    for field in describe("run").children:
        if _path(field) not in ("variables", "targets"):  # they are shown with those of a project
            yield from _with_children(field)


def project_fields() -> Iterator[FieldHelp]:
    for field in describe("project").children:
        yield field
        if _path(field) in ("project", "presets", "state"):
            yield from describe(field.path).children
        if _path(field) == "functions":
            yield describe(f"{field.path}.keep_warm")
        if _path(field) == "jobs":
            for child in describe(f"{field.path}.NAME").children:
                if child.path.rpartition(".")[2] not in AS_IN_A_RUN:
                    yield from _with_children(child)


def _with_children(field: FieldHelp) -> Iterator[FieldHelp]:
    yield field
    for child in describe(field.path).children:
        yield from _with_children(child)


def _path(field: FieldHelp) -> str:
    path = field.path.partition(".")[2]
    return path.replace("permissions.NAME.", "permissions.")


def _section(field: FieldHelp, kind: str) -> Iterator[str]:
    path = _path(field)
    yield f"{'###' if '.' not in path else '####'} `{path}`\n"
    yield f"{field.description}\n"
    yield f"- Type: {field.type}{'; required' if field.required else ''}"
    if field.default is not None:
        yield f"- Default: `{field.default}`"
    example = EXAMPLES[kind][path]
    if "\n" not in example:
        yield f"- Example: `{example}`"
    else:
        lines = ["```yaml", *example.splitlines(), "```"]
        yield "\n".join(["- Example:\n", *(f"    {line}" for line in lines), ""])


def _change(path: str) -> Iterator[str]:
    if path == "renamed_from":
        yield f"- A change: {RENAMED}"
        return
    rule = _rule(path)
    yield f"- A change: {CHANGES[rule.field_class]} ({rule.why})"
    kinds = [
        kind.name for kind in our_kinds()
        if any(path == one or path.startswith(f"{one}.") for one in kind.capabilities.in_place)
    ]  # fmt: skip
    if kinds:
        yield f"- While an attempt is active, a change is made in place on {_names(kinds)}"


def _change_in_project(path: str) -> Iterator[str]:
    top, _, setting = path.replace(".NAME", "").partition(".")
    if top == "jobs" and setting and path not in PROJECT_CHANGES:
        change = JOB_CHANGE
    else:
        named = path
        while named not in PROJECT_CHANGES:
            named = named.rpartition(".")[0]
        change = PROJECT_CHANGES[named]
    yield f"- A change: {change}"
    if top == "jobs":
        field = path.replace(".NAME", ".*").partition(".*.")[2]
        keeping = (kind.name for kind in our_kinds() if kind.jobs and kind.jobs().has(field))
        yield f"- Backends: {_names(keeping)}"


def _rule(path: str) -> FieldRule:
    while path not in POLICY:
        path = path.rpartition(".")[0]
    return POLICY[path]


def _backends(path: str) -> Iterator[str]:
    """Only of fields that not every backend has."""
    top = path.partition(".")[0]
    if path.startswith("backend.") and path.partition(".")[2] not in BackendOptions.model_fields:
        name = path.split(".")[1]
        yield f"- Backends: {_names(k for k, model in known_options().items() if name in model.model_fields)}"
    elif POLICY[top].optional:
        own = path if path in OPTIONAL_FIELDS else top
        found = [kind.name for kind in our_kinds() if own in kind.capabilities.fields]
        yield f"- Backends: {_names(found) if found else 'none yet'}"


def _names(kinds: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(kinds))

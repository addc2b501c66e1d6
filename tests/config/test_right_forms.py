"""A value of another form is refused with the right one, which is taken when it is written."""

import re
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from sgpu_decl.config import other_tool_keys
from sgpu_decl.config.job import Job
from sgpu_decl.config.job_tasks import Task
from sgpu_decl.config.project import ProjectFile
from sgpu_decl.config.right_forms import RIGHT_FORMS
from sgpu_decl.config.run import RunConfig
from sgpu_decl.config.run_blocks import Permission
from sgpu_decl.config.target_rules import OF_RULES
from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.model.jsonable import Json
from tests.reading import read

Bad = Callable[..., tuple[Diagnostic, ...]]
RUN: dict[str, Json] = {"name": "train", "gpus": 1, "type": "CPU", "entrypoint": "train.py"}
JOB: dict[str, Json] = {"notebook": {"path": "/Workspace/report"}}
NOTHING: dict[str, Any] = {
    "project": {"name": "p"},
    "runs": {"train": {"gpus": 1, "type": "CPU", "entrypoint": "train.py"}},
}


class Loader(yaml.SafeLoader):
    """YAML in which `off` and `yes` are text, as in version 1.2."""

    yaml_implicit_resolvers = {  # noqa: RUF012  PyYAML's
        key: [one for one in value if one[0] != "tag:yaml.org,2002:bool" or key in "tTfF"]
        for key, value in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def values_of(text: str) -> Any:
    return yaml.load(text, Loader)


def text_of(values: dict[str, Json]) -> str:
    return yaml.safe_dump(values, sort_keys=False)


def laid(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Values with another one at a path."""
    first, _, rest = path.partition(".")
    inner = values.get(first)
    below = laid(inner if isinstance(inner, dict) else {}, rest, value) if rest else value
    return {**values, first: below}


def fields(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, object]]:
    """Each field of a block and of the blocks in it, by its path."""
    for name, info in model.model_fields.items():
        yield f"{before}{name}", info.annotation
        for member in members(info.annotation):
            if isinstance(member, type) and issubclass(member, BaseModel):
                yield from fields(member, f"{before}{name}.")


def members(annotation: object) -> Iterator[object]:
    if get_origin(annotation) is Annotated:
        yield from members(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from members(member)
    else:
        yield annotation


def is_taken(path: str, form: str) -> bool:
    """Whether a field takes a form, wherever a field of that name stands."""
    value = values_of(form)
    beside = {**NOTHING["runs"], "prepare": NOTHING["runs"]["train"]}
    places = [
        laid({**RUN, "entrypoint": "train.py:main"}, path, value),
        laid({k: v for k, v in RUN.items() if path != "command" or k != "entrypoint"}, path, value),
        laid({**RUN, "on_finish": {"webhook": {"url": "env:HOOK"}}}, path, value),
        laid(NOTHING, path, value),
        laid({**NOTHING, "runs": beside}, f"runs.train.{path}", value),
        laid(NOTHING, f"environments.e.{path}", value),
        laid(NOTHING, "jobs.nightly", laid(JOB, path, value)),
        laid(NOTHING, "jobs.nightly", laid({"run": "train"}, path, value)),
        {**NOTHING, "jobs": {"nightly": {path: value}}},
        {**NOTHING, "jobs": {"nightly": {"tasks": {"t": {path: value}}}}},
        laid(NOTHING, "jobs.nightly", laid(laid(JOB, "notebook.base", "gpu-4"), path, value)),
    ]
    return any(read(text_of(one), "run.yaml")[0] is not None for one in places)


@pytest.mark.parametrize("path", RIGHT_FORMS)
def test_each_form_is_taken(path: str) -> None:
    assert is_taken(path, RIGHT_FORMS[path])


def test_each_block_and_each_list_has_a_form() -> None:
    lacking = set()
    for model in (RunConfig, Job, ProjectFile):
        for path, annotation in fields(model):
            shapes = {get_origin(member) for member in members(annotation)}
            blocks = [
                member
                for member in members(annotation)
                if isinstance(member, type) and issubclass(member, BaseModel)
            ]
            inside = model is ProjectFile and path.partition(".")[0] in ("defaults", "functions")
            known = path in RIGHT_FORMS or path.rpartition(".")[2] in RIGHT_FORMS
            if (blocks or shapes & {dict, tuple, list}) and not known and not inside:
                lacking.add(path)
    assert lacking == set()


CASES = {
    "retry: always": "retry: {max: 10}",
    "retry: 3": "retry: {max: 3}",
    "retry: never": None,
    "env: {dependencies: numpy}": "dependencies: [numpy]",
    "env: {dependencies: 'torch>=2.6'}": "dependencies: [torch>=2.6]",
    "env: {dependencies: numpy and more}": "dependencies: [numpy]",
    "env: [numpy]": "env: {dependencies: [numpy]}",
    "env: {variables: [A=1, B=x y]}": "variables: {A: '1', B: 'x y'}",
    "env: {variables: A=1}": "variables: {A: '1'}",
    "env: {variables: [A]}": "variables: {NAME: value}",
    "resume: yes": "resume: auto",
    "resume: false": None,
    "args: --lr 0.1": "args: [--lr, '0.1']",
    "tags: [team=vision]": "tags: {team: vision}",
    "code: src": "code: {root: src}",
    "mlflow: off": "mlflow: {enabled: false}",
    "mlflow: vision": "mlflow: {experiment: vision}",
    "launch: {warm: no}": "warm: off",
    "lifecycle: true": "lifecycle: {prevent_destroy: true}",
    "matrix: [1, 2]": "matrix: {lr: [0.1, 0.01]}",
    "permissions: users": "permissions: [{level: view, group: users}]",
    "timeout: 1.5h": "90m",
    "timeout: 1 hour": "1h",
    "timeout: 2 days and 3 hours": "2d3h",
    "timeout: '1:30:00'": "90m",
    "timeout: 90 min": "90m",
    "timeout: 0.5 s": "500ms",
    "gpus: H100:8": "type: H100",
    "type: H100:8": "type: H100",
    "type: 8xH100": "type: H100",
    "entrypoint: -m pkg.mod": "command: [python, -m, pkg.mod]",
    "entrypoint: train.py --lr 1": "entrypoint: train.py",
    "entrypoint: python train.py.x": None,
    "entrypoint: torchrun train.py --lr 1": "entrypoint: train.py",
    "name: null": "name: train",
}


@pytest.mark.parametrize("written", CASES)
def test_a_value_of_another_form_has_the_right_one_in_its_hint(bad: Bad, written: str) -> None:
    ((path, value),) = values_of(written).items()
    lines = [line for line in text_of(RUN).splitlines() if not line.startswith(f"{path}:")]
    found = bad("\n".join((*lines, written)))[0]
    form = CASES[written]
    assert found.hint
    if form is None:
        assert found.hint == "leave it out" or "write `FILE.py`" in found.hint
        return
    assert f"`{form}`" in found.hint
    told = form if ": " in form else f"{path}: {form}"
    field = told.partition(":")[0]
    inner = values_of(told)
    is_inside = field != path and isinstance(value, dict)
    values = laid(RUN, path, {field: inner[field]}) if is_inside else {**RUN, **inner}
    if field == "matrix":
        values["entrypoint"] = "train.py:main"
    if field == "command":
        values.pop("entrypoint")
    loaded, problems = read(text_of(values), "run.yaml")
    assert loaded is not None, problems


def test_a_mistake_never_has_an_empty_hint(bad: Bad) -> None:
    for path, _ in fields(RunConfig):
        if path.count(".") > 1 or path.startswith("backend."):
            continue
        for value in ([[1]], {"a": {"b": 1}}, "a: b", 1.5, None, True):
            loaded, found = read(text_of(laid(RUN, path, value)), "run.yaml")
            for one in found if loaded is None else ():
                assert one.hint, (path, value, one)


TABLES = {
    name: table
    for name, table in vars(other_tool_keys).items()
    if name.endswith("_KEYS") and name.isupper()
}


@pytest.mark.parametrize("name", TABLES)
def test_what_is_told_for_a_key_of_another_tool_is_a_field(name: str) -> None:
    models = (RunConfig, Job, Task, ProjectFile, Permission)
    ours = {path.rpartition(".")[2] for model in models for path, _ in fields(model)}
    for key, told in TABLES[name].items():
        assert told.hint, key
        for field in re.findall(r"`(?:[^`]*?[{,] ?)?([a-z_]+)(?::|`)", told.hint):
            assert field in ours | {"nightly", "host", "kind", *OF_RULES}, (key, field)


BUNDLE = """\
project: {name: p}
jobs:
  nightly:
    tasks: [{task_key: train}]
    job_clusters: []
    schedule: {quartz_cron_expression: '0 0 6 * * ?', timezone_id: UTC}
    queue: {enabled: true}
    run_as: {user_name: me}
    email_notifications: {on_failure: [a@b.c]}
    budget_policy_id: x
    max_concurrent_runs: 1
    permissions: [{level: CAN_VIEW, group_name: users}]
presets: {trigger_pause_status: PAUSED}
run_as: {user_name: me}
resources: {jobs: {}}
targets: {prod: {workspace: {host: x}}}
"""


def test_each_word_of_a_bundle_is_told_what_it_is_here(bad: Bad) -> None:
    hints = {one.summary: one.hint or "" for one in bad(BUNDLE, "sgpu.yml")}
    unknown = {re.findall("`([^`]*)`", summary)[0] for summary in hints if "unknown key" in summary}
    assert unknown == {
        "job_clusters", "user_name", "email_notifications", "budget_policy_id", "group_name",
        "trigger_pause_status", "resources", "workspace",
    }  # fmt: skip
    assert {one for one, hint in hints.items() if not hint or "known here" in hint} == set()

"""One changed field is one path in the plan, for every field that a run has, with the effect of
its class."""

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from sgpu_decl.config.reading import read
from sgpu_decl.config.run import NOT_IN_SPEC, RunConfig
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.plan import Action, Effect
from sgpu_decl.planning.policy import FieldClass, class_of

RUN = {"name": "train", "gpus": 1, "type": "A10", "entrypoint": "train.py:main"}
# Two values of each field, neither of them its default. Where they are mappings, the path goes on.
VALUES: dict[str, tuple[Any, Any]] = {
    "description": ("a", "b"),
    "tags": ({"team": "a"}, {"team": "b"}),
    "gpus": (2, 4),
    "type": ("H100", "CPU"),
    "entrypoint": ("a.py", "b.py"),
    "command": (["a"], "b"),
    "args": ({"n": 1}, {"n": 1.0}),
    "launch.per": ("node", None),
    "launch.warm": ("off", ["torch"]),
    "launch.master_port": (29500, 29501),
    "env.base": ("gpu-4", "gpu-5"),
    "env.snapshot": (True, None),
    "env.dependencies": (["a"], ["a", "b"]),
    "env.requirements": ("a.txt", "b.txt"),
    "env.lock": ("uv.lock", "pylock.toml"),
    "env.python": ("3.11", "3.12"),
    "env.variables": ({"A": "1"}, {"A": "01"}),
    "env.secrets": ({"A": "env:A"}, {"A": "env:B"}),
    "code.root": ("src", "lib"),
    "code.include": (["a"], ["b"]),
    "code.exclude": (["a"], ["b"]),
    "code.link": (["a"], ["b"]),
    "ray.enabled": (False, None),
    "ray.cpus_per_node": (1, 2),
    "ray.gpus_per_worker": (2, 4),
    "ray.object_store_memory": ("1GiB", "2GiB"),
    "ray.dashboard": (True, None),
    "ray.startup_timeout": ("1m", "2m"),
    "timeout": ("1h", "2h"),
    "grace": ("1s", "2s"),
    "startup_timeout": ("1m", "2m"),
    "progress_timeout": ("1m", "2m"),
    "retry.max": (1, 2),
    "retry.on": (["error"], ["infra", "error"]),
    "retry.backoff": ("1s", "2s"),
    "mlflow.enabled": (False, None),
    "mlflow.experiment": ("a", "b"),
    "mlflow.run_name": ("a", "b"),
    "mlflow.tracking_uri": ("http://a", "http://b"),
    "mlflow.system_metrics": (False, None),
    "max_parallel": (1, 2),
    "until": ("always", None),
    "on_active": ("queue", "replace"),
    "lifecycle.prevent_destroy": (True, None),
    "lifecycle.ignore_changes": (["tags"], ["description"]),
    "pool": ("a", "b"),
    "priority": ("a", "b"),
    "permissions": ([{"level": "view", "user": "a"}], [{"level": "run", "user": "a"}]),
    "budget": ("a", "b"),
    "image": ("a", "b"),
    "on_finish.success": (["a"], ["b"]),
    "on_finish.failure": (["a"], ["b"]),
    "backend.environment_limit": ("1GiB", "2GiB"),
    "backend.kind": ("ray", "databricks"),
    "backend.address": ("auto", "ray://a:1"),
    "backend.profile": ("a", "b"),
    "backend.host": ("https://a.example", "https://b.example"),
    "backend.staging": ("/Workspace/Users/a/x", "/Volumes/a/b/c"),
}
EFFECTS = {
    FieldClass.DATA: (Action.CREATE, Effect.NEW_ATTEMPT),
    FieldClass.LAUNCH: (Action.UPDATE, Effect.NEXT_ATTEMPT),
    FieldClass.META: (Action.UPDATE, Effect.STATE_ONLY),
}


def fields_of(model: type[BaseModel], parent: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        path = f"{parent}{name}"
        annotation: Any = info.annotation
        listed = get_origin(annotation) is tuple  # compared as one value
        members = () if listed else get_args(annotation)
        blocks = [
            it
            for it in (annotation, *members)
            if isinstance(it, type) and issubclass(it, BaseModel)
        ]
        if blocks:
            yield from fields_of(blocks[0], f"{path}.")
        elif path not in NOT_IN_SPEC:
            yield path


def spec_with(path: str, value: Any) -> dict[str, Any]:
    """The spec of a run that has this value there; None for none."""
    run: dict[str, Any] = dict(RUN)
    if path == "command" or path == "launch.per":
        del run["entrypoint"]
        run["command"] = ["true"]
    outer, _, inner = path.partition(".")
    if inner:
        run[outer] = {} if value is None else {inner: value}
    elif value is not None:
        run[outer] = value
    loaded, found = read(
        json.dumps(run), "run.yaml", target=None, variables=(), sets=(), environ={}, git=dict
    )
    assert found == ()
    assert loaded is not None
    spec: dict[str, Any] = json.loads(loaded.runs[0].spec)
    return spec


def test_the_table_has_every_field() -> None:
    lent = {"env.use"}  # only a project has what it names, see `test_equipping`
    assert sorted(VALUES) == sorted({*fields_of(RunConfig)} - lent)


@pytest.mark.parametrize("path", VALUES)
def test_a_changed_field_is_the_one_path_of_its_change(world: Any, path: str) -> None:
    one, other = VALUES[path]
    whole = f"{path}.{next(iter(one))}" if isinstance(one, dict) else path

    before, after = spec_with(path, one), spec_with(path, other)
    change = world.had(AttemptState.SUCCEEDED, spec=before).want(spec=after).change()

    action, effect = EFFECTS[class_of(whole)]
    assert [(field.path, field.effect) for field in change.fields] == [(whole, effect)]
    assert change.action is action
    assert change.fields[0].before != change.fields[0].after or path == "args"

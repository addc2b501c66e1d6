"""One changed field is one path in the plan, for every field that a run has, with the effect of
its class."""

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from sgpu_decl.config.backend import BackendOptions, known_options
from sgpu_decl.config.run import NOT_IN_SPEC, RunConfig
from sgpu_decl.diagnostics.diagnostic import Severity
from sgpu_decl.model.attempt import AttemptState
from sgpu_decl.model.plan import Action, FieldEffect
from sgpu_decl.planner.policy import FieldClass, class_of
from tests.reading import read

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
    "parameters": ({"n": 1}, {"n": 2}),
    "launch.per": ("node", None),
    "launch.warm": ("off", ["torch"]),
    "launch.master_port": (29500, 29501),
    "launch.flight_recorder": ("off", None),
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
    "code.count": ("all", None),
    "ray.num_cpus": (1, 2),
    "ray.num_gpus": (0, 1),
    "ray.resources": ({"ssd": 1}, {"ssd": 2}),
    "ray.object_store_memory": ("1GiB", "2GiB"),
    "ray.temp_dir": ("/a", "/b"),
    "ray.port": (6379, 6380),
    "ray.dashboard": (True, None),
    "ray.metrics_export_port": (6389, 6390),
    "ray.metrics_interval": ("1s", "2s"),
    "ray.head_startup_timeout": ("2m", "4m"),
    "ray.worker_join_timeout": ("1m", "3m"),
    "ray.env": ({"A": "1"}, {"A": "2"}),
    "timeout": ("1h", "2h"),
    "grace": ("1s", "2s"),
    "startup_timeout": ("1m", "2m"),
    "progress_timeout": ("1m", "2m"),
    "preflight": (True, None),
    "idle.below": ("5%", "10%"),
    "idle.for": ("10m", "30m"),
    "idle.then": ("warn", "stop"),
    "hang_after": ("2m", "auto"),
    "hang": ("stop", None),
    "resume": ("auto", None),
    "retry.max": (1, 2),
    "retry.on": (["error"], ["infra", "error"]),
    "retry.backoff": ("1s", "2s"),
    "logs.redact": (True, None),
    "mlflow.enabled": (False, None),
    "mlflow.experiment": ("a", "b"),
    "mlflow.run_name": ("a", "b"),
    "mlflow.tracking_uri": ("http://a", "http://b"),
    "mlflow.artifact_location": ("a", "s3://b/c"),
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
    "report": (False, True),
    "on_finish.success": (["a@x.org"], ["b@x.org"]),
    "on_finish.failure": (["a@x.org"], ["b@x.org"]),
    "on_finish.command": ("./a.sh", ["./b.sh"]),
    "on_finish.webhook.url": ("https://a.example/x", "env:B"),
    "on_finish.webhook.secret": ("env:A", "env:B"),
    "on_finish.webhook.on": (["failure"], ["success"]),
    "backend.environment_limit": ("1GiB", "2GiB"),
    "backend.kind": ("ray", "databricks"),
    "backend.address": ("http://a", "https://a.example/b"),
    "backend.ranks_per_node": (1, 2),
    "backend.resources_per_rank": ({"CPU": 1}, {"CPU": 2}),
    "backend.strategy": ("pack", "spread"),
    "backend.labels": ({"a": "1"}, {"a": "2"}),
    "backend.storage": ("/a", "/b"),
    "backend.python": ("/a", "/b"),
    "backend.autoscaling": (True, False),
    "backend.insecure": (True, False),
    "backend.profile": ("a", "b"),
    "backend.host": ("https://a.example", "https://b.example"),
    "backend.hosts": (["a", "b"], ["a", "c"]),
    "backend.share_gpus": (True, False),
    "backend.staging": ("/Workspace/Users/a/x", "/Volumes/a/b/c"),
    "backend.partition": ("gpu", "gpu,long"),
    "backend.account": ("a", "b"),
    "backend.qos": ("normal", "high"),
    "backend.gpus_per_node": (1, 2),
    "backend.login": ("a", "b"),
    "backend.constraint": ("a", "b"),
    "backend.exclusive": (True, False),
    "backend.options": (["--mem=1G"], ["--mem=2G"]),
    "backend.gpu_names": ({"H100": "a"}, {"H100": "b"}),
    "backend.keep_variables": (["A"], ["A", "B"]),
    "backend.chain": (2, 3),
    "backend.modules": (["a"], ["a", "b"]),
    "backend.container": ("a", "b"),
    "backend.container_runtime": ("pyxis", "apptainer"),
    "backend.mounts": (["/a"], ["/b"]),
}
# What must stand beside a field.
BESIDE = {
    f"backend.{name}": {"kind": kind}
    for kind, options in known_options().items()
    for name in options.model_fields.keys() - BackendOptions.model_fields.keys()
}
BESIDE |= {f"on_finish.webhook.{name}": {"url": "https://a.example/x"} for name in ("secret", "on")}
EFFECTS = {
    FieldClass.DATA: (Action.CREATE, FieldEffect.NEW_ATTEMPT),
    FieldClass.LAUNCH: (Action.UPDATE, FieldEffect.NEXT_ATTEMPT),
    FieldClass.META: (Action.UPDATE, FieldEffect.STATE_ONLY),
}


def fields_of(model: type[BaseModel], parent: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        path = f"{parent}{name}"
        annotation: Any = info.annotation
        listed = get_origin(annotation) is tuple  # compared as one value
        members = () if listed else get_args(annotation)
        blocks = [
            item
            for item in (annotation, *members)
            if isinstance(item, type) and issubclass(item, BaseModel)
        ]
        if BackendOptions in blocks:
            for options in known_options().values():
                yield from fields_of(options, f"{path}.")
        elif blocks:
            yield from fields_of(blocks[0], f"{path}.")
        elif path not in NOT_IN_SPEC:
            yield path


def spec_with(path: str, value: Any) -> dict[str, Any]:
    """The spec of a run that has this value there; None for none."""
    run: dict[str, Any] = dict(RUN)
    if path == "command" or path == "launch.per":
        del run["entrypoint"]
        run["command"] = ["true"]
    outer, *inner = path.split(".")
    if inner and value is None:
        value = {}
    elif inner:
        for name in reversed(inner):
            value = {**(BESIDE.get(path, {}) if name == inner[-1] else {}), name: value}
    if value is not None:
        run[outer] = value
    loaded, found = read(
        json.dumps(run), "run.yaml", target=None, variables=(), sets=(), environ={}, git=dict
    )
    assert [one for one in found if one.severity is Severity.ERROR] == []
    assert loaded is not None
    return dict(loaded.runs[0].spec.fields)


def test_the_table_has_every_field() -> None:
    # Only a project has what these name: see `test_equipping` and `test_run_order`.
    # `ray.cluster` is set beside other fields alone: see `test_existing_cluster`.
    lent = {"after", "env.use", "ray.cluster"}
    assert sorted(VALUES) == sorted({*fields_of(RunConfig)} - lent)


def defaults_of(model: type[BaseModel], parent: str = "") -> Iterator[tuple[str, Any]]:
    """Every default written out, and what is empty in the place of nothing."""
    for name, info in model.model_fields.items():
        path, default = f"{parent}{name}", info.default
        if isinstance(default, BaseModel):
            yield path, {}
            yield from defaults_of(type(default), f"{path}.")
        elif not info.is_required() and path not in {*NOT_IN_SPEC, "entrypoint"}:
            yield path, default if default is None or isinstance(default, bool | int) else (
                list(default) if isinstance(default, tuple) else
                dict(default) if isinstance(default, dict) else str(default)
            )  # fmt: skip


EMPTY: list[tuple[str, Any]] = [
    ("args", {}), ("args", []), ("env.dependencies", []), ("on_finish", {}), ("ray", False),
    ("on_finish", {"success": []}), ("code.root", "."),
    ("backend", "local"), ("env.variables", {}), ("env.secrets", {}), ("code", {"link": []}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), [*defaults_of(RunConfig), *EMPTY], ids=str)
def test_a_default_that_is_written_out_is_the_spec_without_it(path: str, value: Any) -> None:
    outer, _, inner = path.partition(".")
    written = {**RUN, outer: {inner: value} if inner else value}
    loaded, found = read(
        json.dumps(written), "run.yaml", target=None, variables=(), sets=(), environ={}, git=dict
    )
    assert found == ()
    assert loaded is not None
    assert loaded.runs[0].spec.fields == {k: v for k, v in RUN.items() if k != "name"}


@pytest.mark.parametrize(
    ("path", "empty"),
    [("args", {}), ("args", []), ("env", {"dependencies": []}), ("on_finish", {})],
)
def test_a_spec_of_older_versions_with_something_empty_launches_nothing(
    world: Any, path: str, empty: Any
) -> None:
    spec = {k: v for k, v in RUN.items() if k != "name"}
    change = world.had(AttemptState.SUCCEEDED, spec={**spec, path: empty}).want(spec=spec).change()
    assert (change.action, change.fields) == (Action.NO_OP, ())


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

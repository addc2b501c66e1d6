"""Which field of the YAML a setting of a job comes from, and what the field says there."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sgpu_decl.backends.databricks.bases import all_bases
from sgpu_decl.backends.databricks.launching.submit import ENVIRONMENT
from sgpu_decl.backends.databricks.planning.machines import ACCELERATORS
from sgpu_decl.config.job import PERIODS
from sgpu_decl.diagnostics.amounts import written_duration
from sgpu_decl.model.job import JobField, first_match
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.permission_names import OWN_LEVELS

_TASK = "tasks.*"
_SPEC = "environments.*.spec"
_OF_RUN = ("tasks", "environments")
SLOW = "RUN_DURATION_SECONDS"
"""The metric of `health.longer_than`. Source: `JobsHealthMetric` of the SDK."""
EVENTS: Mapping[str, str] = MappingProxyType(
    {
        "on_start": "start",
        "on_success": "success",
        "on_failure": "failure",
        "on_duration_warning_threshold_exceeded": "slow",
    }
)
"""The fields of `notify`, by the platform's names of the events."""

_INTERVAL, _UNIT = "trigger.periodic.interval", "trigger.periodic.unit"


def _same(value: Json) -> Json:
    return value


def _paused(value: Json) -> Json:
    return value == "PAUSED"


def _overlap(queued: Json) -> Json:
    return "queue" if queued else "skip"


def _timeout(seconds: Json) -> Json:
    return written_duration(seconds) if isinstance(seconds, int | float) else seconds


def _type(accelerator: Json) -> Json:
    kind, gpus = ACCELERATORS.get(str(accelerator), (None, 0))
    return kind.name if kind is not None and gpus == 1 else accelerator


def _base(selected: Json) -> Json:
    for base in all_bases():
        if base.for_tasks and selected in (base.environment_version, base.base_environment):
            return base.name
    return selected


def _longer_than(rules: Json) -> Json:
    match rules:
        case [{"metric": "RUN_DURATION_SECONDS", "op": "GREATER_THAN", "value": int(seconds)}]:
            return written_duration(seconds)
    return rules


def _webhooks(listed: Json) -> Json:
    if not isinstance(listed, list):
        return listed
    return [{"webhook": one.get("id")} if isinstance(one, Mapping) else one for one in listed]


def _after(listed: Json) -> Json:
    if not isinstance(listed, list):
        return listed
    ones = [one for one in listed if isinstance(one, Mapping)]
    return [".".join(str(one[key]) for key in ("task_key", "outcome") if key in one)
            for one in ones]  # fmt: skip


def _lower(value: Json) -> Json:
    return value.lower() if isinstance(value, str) else value


def _arguments(parameters: Json) -> Json:
    """Without the archive of the code, and the file in it."""
    return parameters[2:] if isinstance(parameters, list) else parameters


def _level(level: Json) -> Json:
    return OWN_LEVELS.get(str(level), level)


@dataclass(frozen=True, slots=True)
class _Field:
    """`name` is the field of the YAML; with `below`, what lies below the setting lies below the
    field. `value` says a setting as the YAML does. A setting that is `implied` goes without
    saying."""

    name: str
    value: Callable[[Json], Json] = _same
    below: bool = False
    implied: Json = None


_FIELDS: Mapping[str, _Field] = MappingProxyType(
    {
        "name": _Field("name"),
        "description": _Field("description"),
        "schedule": _Field("schedule"),
        "schedule.quartz_cron_expression": _Field("schedule"),
        "schedule.timezone_id": _Field("timezone"),
        "schedule.pause_status": _Field("paused", _paused),
        "trigger": _Field("trigger"),
        "trigger.periodic": _Field("trigger.every"),
        _INTERVAL: _Field("trigger.every"),
        _UNIT: _Field("trigger.every"),
        "trigger.file_arrival": _Field("trigger.file_arrival"),
        "trigger.file_arrival.url": _Field("trigger.file_arrival"),
        "trigger.table_update": _Field("trigger.table_update"),
        "trigger.table_update.table_names": _Field("trigger.table_update"),
        "trigger.table_update.condition": _Field("trigger.table_update.condition", _lower),
        **{
            f"trigger.{event}.{setting}": _Field(f"trigger.{event}.{name}", _timeout)
            for event in ("file_arrival", "table_update")
            for setting, name in (
                ("min_time_between_triggers_seconds", "min_time_between"),
                ("wait_after_last_change_seconds", "wait_after_last_change"),
            )
        },
        "trigger.pause_status": _Field("paused", _paused),
        "queue": _Field("on_overlap"),
        "queue.enabled": _Field("on_overlap", _overlap),
        "max_concurrent_runs": _Field("on_overlap", implied=1),
        "timeout_seconds": _Field("timeout", _timeout),
        "tags": _Field("tags", below=True),
        "email_notifications": _Field("on_finish"),
        "email_notifications.on_success": _Field("on_finish.success"),
        "email_notifications.on_failure": _Field("on_finish.failure"),
        "email_notifications.on_start": _Field("notify.start"),
        "email_notifications.on_duration_warning_threshold_exceeded": _Field("notify.slow"),
        "webhook_notifications": _Field("notify"),
        "notify": _Field("notify", implied=True),
        **{
            f"webhook_notifications.{event}": _Field(f"notify.{name}", _webhooks)
            for event, name in EVENTS.items()
        },
        "health": _Field("health"),
        "health.rules": _Field("health.longer_than", _longer_than),
        "parameters": _Field("parameters", below=True),
        "parameters.*.default": _Field("parameters.*"),
        "run_as": _Field("run_as"),
        "run_as.user_name": _Field("run_as.user"),
        "run_as.service_principal_name": _Field("run_as.service_principal"),
        "budget_policy_id": _Field("budget"),
        "permissions": _Field("permissions"),
        "permissions.user_name": _Field("permissions.user", _level, below=True),
        "permissions.group_name": _Field("permissions.group", _level, below=True),
        "permissions.service_principal_name": _Field(
            "permissions.service_principal", _level, below=True
        ),
        "backend": _Field("backend", below=True),
        "lifecycle": _Field("lifecycle", below=True),
        "tasks": _Field("notebook"),
        f"{_TASK}.notebook_task": _Field("notebook"),
        f"{_TASK}.notebook_task.notebook_path": _Field("notebook.path"),
        f"{_TASK}.notebook_task.base_parameters": _Field("notebook.parameters", below=True),
        f"{_TASK}.compute": _Field("notebook.type"),
        f"{_TASK}.compute.hardware_accelerator": _Field("notebook.type", _type),
        f"{_TASK}.max_retries": _Field("notebook.retries"),
        f"{_TASK}.environment_key": _Field("notebook.base", implied=ENVIRONMENT),
        "environments": _Field("notebook.base"),
        f"{_SPEC}.environment_version": _Field("notebook.base", _base),
        f"{_SPEC}.base_environment": _Field("notebook.base", _base),
        f"{_SPEC}.dependencies": _Field("notebook.dependencies"),
    }
)
_ORDER: Mapping[str, _Field] = MappingProxyType(
    {
        "kind": _Field("kind", implied=True),
        "depends_on": _Field("after", _after),
        "run_if": _Field("if", _lower),
    }
)
_LIMITS: Mapping[str, _Field] = MappingProxyType(
    {"max_retries": _Field("retries"), "timeout_seconds": _Field("timeout", _timeout)}
)
_OF_KINDS: Mapping[str, Mapping[str, _Field]] = MappingProxyType(
    {
        "run": {"run.name": _Field("run")},
        "python": {
            "python": _Field("python"),
            "python.path": _Field("python"),
            "python.args": _Field("args"),
            "spark_python_task": _Field("python"),
            "spark_python_task.parameters": _Field("args", _arguments),
            "environment_key": _Field("base", implied=True),
            **_LIMITS,
        },
        "notebook": {
            "notebook": _Field("notebook", below=True),
            "notebook.path": _Field("notebook.path"),
            "notebook_task": _Field("notebook"),
            "notebook_task.notebook_path": _Field("notebook.path"),
            "notebook_task.base_parameters": _Field("notebook.parameters", below=True),
            "compute": _Field("notebook.type"),
            "compute.hardware_accelerator": _Field("notebook.type", _type),
            "max_retries": _Field("notebook.retries"),
            "timeout_seconds": _Field("timeout", _timeout),
            "environment_key": _Field("notebook.base", implied=True),
        },
        "task": {},
    }
)
"""By the kind of a task among several: parts of it, in the spec and on the platform, and the fields
of the YAML. What a task with `run` has beside is its run's."""
_BASES: Mapping[str, str] = MappingProxyType({"notebook": "notebook."})
"""Where `base` and `dependencies` of a kind of task stand, if not in the task itself."""


def _most_exact_first(fields: Mapping[str, _Field]) -> list[tuple[str, tuple[int, _Field]]]:
    def depth(path: str) -> int:
        return path.count(".") + 1 if path else 0

    return [(path, (depth(path), fields[path])) for path in sorted(fields, key=lambda p: -depth(p))]


_MOST_EXACT_FIRST = _most_exact_first(_FIELDS)
_IN_TASK = {kind: _most_exact_first({**_ORDER, **fields}) for kind, fields in _OF_KINDS.items()}
_IN_ENVIRONMENT = _most_exact_first(
    {path.removeprefix(f"{_SPEC}."): field for path, field in _FIELDS.items() if _SPEC in path}
)


def field_origins(
    name: str,
    *,
    launches_run: bool,
    kinds: Mapping[str, str] | None = None,
    notify: bool = False,
) -> dict[str, str]:
    """The fields of the YAML that lead to the settings of a job, by the paths of these.

    Args:
        name: what the job is called in the file.
        kinds: of its tasks, if it has several.
        notify: whether `notify` says who gets mail.
    """
    origins = {_named(path, name): field.name for path, field in _FIELDS.items()}
    if notify:
        origins |= {
            f"email_notifications.{event}": f"notify.{one}" for event, one in EVENTS.items()
        }
    if kinds:
        own = {path: field for path, field in origins.items() if not _is_of_run(path)}
        return own | dict(_task_origins(kinds))
    if not launches_run:
        return origins
    return {
        **{path: field for path, field in origins.items() if not _is_of_run(path)},
        **dict.fromkeys(_OF_RUN, "run"),
    }


def setting_paths(field: str, name: str) -> tuple[str, ...]:
    """The settings that a field of the YAML leads to; the field itself where it is none, but the
    path of a setting."""
    found = tuple(_named(path, name) for path, one in _FIELDS.items() if one.name == field)
    return found or (*_task_paths(field), field)


def _task_paths(field: str) -> Iterator[str]:
    """The settings of a task among several that a field leads to, whatever kind of task it is."""
    block, _, below = field.partition(".")
    key, _, name = below.partition(".")
    if block != "tasks" or not name:
        return
    for kind, fields in _OF_KINDS.items():
        for path, one in {**_ORDER, **fields}.items():
            if one.name == name and path != "kind":
                yield f"tasks.{key}.{path}"
        base = _BASES.get(kind, "")
        for path, (_, one) in _IN_ENVIRONMENT:
            if one.name.replace("notebook.", base) == name:
                yield f"environments.{key}.spec.{path}"
    if name.startswith("task."):
        yield f"tasks.{key}.{name.removeprefix('task.')}"


def _task_origins(kinds: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, kind in kinds.items():
        task, environment = f"tasks.{key}", f"environments.{key}"
        yield task, f"{task}.task" if kind == "task" else task
        for path, field in {**_ORDER, **_OF_KINDS[kind]}.items():
            if path != "kind":
                yield f"{task}.{path}", f"{task}.{field.name}"
        base = "run" if kind == "run" else f"{_BASES.get(kind, '')}base"
        yield environment, f"{task}.{base}"
        if kind != "run":
            yield f"{environment}.spec.dependencies", f"{task}.{_BASES.get(kind, '')}dependencies"


def job_field(path: str, settings: Mapping[str, Json]) -> JobField:
    """A setting as the YAML says it, where the YAML has a field for it.

    Args:
        settings: all of the job, by their paths.
    """
    value = settings[path]
    event = path.removeprefix("email_notifications.")
    if "notify" in settings and event in EVENTS:
        return JobField(f"notify.{EVENTS[event]}", value)
    block, _, below_it = path.partition(".")
    key, _, rest = below_it.partition(".")
    kind = settings.get(f"tasks.{key}.kind") if block in _OF_RUN else None
    if isinstance(kind, str):
        return _field_of_task(path, value, block, key, kind, rest)
    if _is_of_run(path) and any(_says_task(other) for other in settings):
        return JobField(path, value)  # of a run, or of a task that somebody added
    found = first_match(_MOST_EXACT_FIRST, path)
    if found is None:
        return JobField(path, value)
    depth, field = found
    below = path.split(".")[depth:]
    if below and not field.below:
        return JobField(path, value)
    if field.implied is not None:
        return JobField(path, value, implied=value == field.implied)
    name = ".".join([field.name, *below])
    if "*" in name:
        name = name.replace("*", path.split(".")[1])
    if path in (_INTERVAL, _UNIT):
        return JobField(name, _every(settings))
    return JobField(name, field.value(value))


def _field_of_task(path: str, value: Json, block: str, key: str, kind: str, rest: str) -> JobField:
    """A setting of one task among several."""
    task = f"tasks.{key}"
    if block == "environments":
        if kind == "run":
            return JobField(path, value)
        found = first_match(_IN_ENVIRONMENT, rest.removeprefix("spec."))
        if found is None:
            return JobField(path, value)
        name = found[1].name.replace("notebook.", _BASES.get(kind, ""))
        return JobField(f"{task}.{name}", found[1].value(value))
    found = first_match(_IN_TASK[kind], rest) if kind in _IN_TASK else None
    if kind == "task" and found is None:
        return JobField(f"{task}.task.{rest}", value)
    if found is None:
        return JobField(path, value)
    depth, field = found
    below = rest.split(".")[depth:]
    if below and not field.below:
        return JobField(path, value)
    if field.implied is not None:
        return JobField(path, value, implied=True)
    return JobField(".".join([task, field.name, *below]), field.value(value))


def _every(settings: Mapping[str, Json]) -> Json:
    interval, unit = settings.get(_INTERVAL), settings.get(_UNIT)
    seconds = PERIODS.get(str(unit).lower())
    if seconds is None or not isinstance(interval, int):
        return f"{interval} {unit}"
    return written_duration(interval * seconds)


def _named(pattern: str, name: str) -> str:
    key = ENVIRONMENT if pattern.startswith("environments.") else name
    return pattern.replace("*", key, 1)


def _says_task(path: str) -> bool:
    """Whether a setting is ours, and says what a task is: of a run, or of one among several."""
    return path.startswith("run.") or (path.startswith("tasks.") and path.endswith(".kind"))


def _is_of_run(path: str) -> bool:
    return path.partition(".")[0] in _OF_RUN

"""Which field of the YAML a setting of a job comes from, and what the field says there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sgpu_decl.backends.databricks.bases import all_bases
from sgpu_decl.backends.databricks.launching.submit import ENVIRONMENT, RUN_LEVELS
from sgpu_decl.backends.databricks.planning.machines import ACCELERATORS
from sgpu_decl.config.job import PERIODS
from sgpu_decl.diagnostics.amounts import written_duration
from sgpu_decl.model.job import JobField, first_match
from sgpu_decl.model.jsonable import Json

_TASK = "tasks.*"
_SPEC = "environments.*.spec"
_OF_RUN = ("tasks", "environments")
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


def _level(level: Json) -> Json:
    return next((ours for ours, theirs in RUN_LEVELS.items() if theirs == level), level)


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
        "trigger.pause_status": _Field("paused", _paused),
        "queue": _Field("on_overlap"),
        "queue.enabled": _Field("on_overlap", _overlap),
        "max_concurrent_runs": _Field("on_overlap", implied=1),
        "timeout_seconds": _Field("timeout", _timeout),
        "tags": _Field("tags", below=True),
        "email_notifications": _Field("on_finish"),
        "email_notifications.on_success": _Field("on_finish.success"),
        "email_notifications.on_failure": _Field("on_finish.failure"),
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
_MOST_EXACT_FIRST = [
    (path, (path.count(".") + 1, _FIELDS[path]))
    for path in sorted(_FIELDS, key=lambda path: -path.count("."))
]


def field_origins(name: str, *, launches_run: bool) -> dict[str, str]:
    """The fields of the YAML that lead to the settings of a job, by the paths of these.

    Args:
        name: what the job is called in the file.
    """
    origins = {_named(path, name): field.name for path, field in _FIELDS.items()}
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
    return found or (field,)


def job_field(path: str, settings: Mapping[str, Json]) -> JobField:
    """A setting as the YAML says it, where the YAML has a field for it.

    Args:
        settings: all of the job, by their paths.
    """
    value = settings[path]
    if _is_of_run(path) and any(other.startswith("run.") for other in settings):
        return JobField(path, value)
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
    if path in (_INTERVAL, _UNIT):
        return JobField(name, _every(settings))
    return JobField(name, field.value(value))


def _every(settings: Mapping[str, Json]) -> Json:
    interval, unit = settings.get(_INTERVAL), settings.get(_UNIT)
    seconds = PERIODS.get(str(unit).lower())
    if seconds is None or not isinstance(interval, int):
        return f"{interval} {unit}"
    return written_duration(interval * seconds)


def _named(pattern: str, name: str) -> str:
    key = ENVIRONMENT if pattern.startswith("environments.") else name
    return pattern.replace("*", key, 1)


def _is_of_run(path: str) -> bool:
    return path.partition(".")[0] in _OF_RUN

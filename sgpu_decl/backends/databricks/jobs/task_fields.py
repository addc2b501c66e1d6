"""`task:` of a job, checked against the classes of the platform's SDK."""

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from sgpu_decl.config.job_tasks import Task
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.nearest_names import nearest

_OURS: Mapping[str, str] = {
    "task_key": "remove it: the key of the task is its name",
    "depends_on": "write `after` beside `task`",
    "run_if": "write `if` beside `task`",
    "environment_key": "write `base` and `dependencies` beside `task`",
}
"""What the YAML says itself."""
_ENDING = "_task"


def task_findings(task: Task) -> Iterator[Diagnostic]:
    """What is wrong in the words of the platform, with paths below the task. What the SDK does not
    know is an error: a field that is misspelt would be dropped, or refused once it is sent."""
    if task.task is None:
        return
    from databricks.sdk.service.jobs import Task as PlatformTask

    kinds = [key for key in task.task if key.endswith(_ENDING)]
    if len(kinds) != 1:
        yield Diagnostic(
            code="bad_task",
            summary="`task` names "
            + (" and ".join(f"`{kind}`" for kind in kinds) or "no kind of task"),
            path=("task",),
            hint="it has one of them, such as `task: {sql_task: {…}}`",
        )
    for key in task.task.keys() & _OURS.keys():
        yield Diagnostic(
            code="bad_task",
            summary=f"`{key}` is not written in `task`",
            path=("task", key),
            hint=_OURS[key],
        )
    given = {key: value for key, value in task.task.items() if key not in _OURS}
    yield from _findings(given, PlatformTask, ("task",))


def _findings(value: Any, annotation: Any, path: tuple[str, ...]) -> Iterator[Diagnostic]:
    annotation = _bare(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        yield from _block(value, annotation, path)
    elif origin is list:
        if not isinstance(value, Sequence) or isinstance(value, str):
            yield _wrong(path, "a list")
            return
        for at, item in enumerate(value):
            yield from _findings(item, arguments[0], (*path, str(at)))
    elif origin is dict or annotation is dict:
        if not isinstance(value, Mapping):
            yield _wrong(path, "a mapping")
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        known = [str(item.value) for item in annotation]
        if value not in known and "{{" not in str(value):
            near = nearest(str(value), known)
            yield Diagnostic(
                code="bad_task",
                severity=Severity.WARNING,  # a later platform may know more
                summary=f"`{'.'.join(path)}` is `{str(value)[:80]}`, which the SDK does not know",
                path=path,
                hint=f"did you mean `{near}`?" if near else "known: " + ", ".join(known[:6]),
            )
    elif isinstance(value, Mapping | list | tuple):
        yield _wrong(path, "one value")


def _block(value: Any, block: type, path: tuple[str, ...]) -> Iterator[Diagnostic]:
    if not isinstance(value, Mapping):
        yield _wrong(path, "a mapping")
        return
    hints = _hints(block)
    for key, item in value.items():
        if key in hints:
            yield from _findings(item, hints[key], (*path, key))
            continue
        near = nearest(key, hints)
        yield Diagnostic(
            code="bad_task",
            summary=f"`{'.'.join(path)}` has no field `{key[:80]}`",
            path=(*path, key),
            hint=f"did you mean `{near}`?" if near else "known: " + ", ".join(list(hints)[:8]),
        )
    for field in dataclasses.fields(block):
        required = field.default is field.default_factory is dataclasses.MISSING
        missing = field.name not in value and field.name != "task_key"
        if required and missing and not value.keys() - hints.keys():
            yield Diagnostic(
                code="bad_task",
                summary=f"`{'.'.join(path)}` lacks `{field.name}`",
                path=path,
                hint=f"add `{field.name}`",
            )


def _wrong(path: tuple[str, ...], what: str) -> Diagnostic:
    return Diagnostic(
        code="bad_task",
        summary=f"`{'.'.join(path)}` must be {what}",
        path=path,
        hint="see the task in https://docs.databricks.com/api/workspace/jobs/create",
    )


def _bare(annotation: Any) -> Any:
    """Without `None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(one for one in get_args(annotation) if one is not type(None))
    return annotation


@cache
def _hints(block: type) -> Mapping[str, Any]:
    return get_type_hints(block)

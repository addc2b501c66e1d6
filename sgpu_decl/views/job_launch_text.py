"""A launch of a job that somebody started, for people and as JSON."""

from collections.abc import Iterator
from typing import cast

from sgpu_decl.model.codec import to_json
from sgpu_decl.model.job import StartedJob, TaskLaunch
from sgpu_decl.model.jsonable import Json
from sgpu_decl.views.failure_text import kind_words
from sgpu_decl.views.results_table import result_text
from sgpu_decl.views.status_text import cause_words
from sgpu_decl.views.terminal import escape


def task_line(task: TaskLaunch) -> str:
    """Which state a task has."""
    return f"{escape(task.name)}: {'skipped' if task.skipped else task.state}"


def launch_lines(started: StartedJob) -> Iterator[str]:
    """What the tasks of a launch left, each line with the name of its task."""
    for task in started.tasks:
        for line in _left_by(task):
            yield f"[{escape(task.name)}] {escape(line)}"


def _left_by(task: TaskLaunch) -> Iterator[str]:
    yield from (task.output or "").splitlines()
    for result in task.results:
        yield f"rank {result['rank']} returned {result_text(result['value'])}"
    cause = task.first_cause
    if cause is not None:
        yield cause_words(cause.rank, cause.summary or cause.failure or "")
        yield from filter(None, [kind_words(cause)])


def launch_fields(started: StartedJob) -> dict[str, Json]:
    """What `start -o json` says."""
    whole = cast("dict[str, Json]", to_json(started))
    return {key: item for key, item in whole.items() if key not in ("again", "behind")}

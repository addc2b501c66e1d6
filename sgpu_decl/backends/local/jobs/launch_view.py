"""A launch of a job as its folder and the attempts of its tasks show it, right after any crash."""

import os
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from sgpu_decl.agent.attempt.attempt_files import read_json
from sgpu_decl.agent.system.locks import held
from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.local.jobs.launch_walker import LAUNCH, QUEUED, RUNNING, WALKER_LOCK
from sgpu_decl.backends.local.local_attempts import LocalAttempts
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef, AttemptState
from sgpu_decl.model.job import JobLaunch, TaskLaunch
from sgpu_decl.model.jsonable import NO_FIELDS
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord
from sgpu_decl.model.times import from_text

_SHOWN, _LINES = 2_000, 100  # characters and lines of what a task left
_NEVER_STARTED = "it was not started: the process that starts the tasks of the launch is gone"


def read_launch(folder: Path) -> dict[str, Any] | None:
    """What a walker wrote of its launch; None where there is none."""
    launch = read_json(os.fspath(folder), LAUNCH)
    match launch:
        case {"state": str(), "number": int(), "created_at": str(), "tasks": dict()}:
            return launch
    return None


def is_active(folder: Path) -> bool:
    """Whether the walker of a launch lives."""
    return bool(held(os.fspath(folder / WALKER_LOCK)))


def launch_state(folder: Path, launch: Mapping[str, Any]) -> AttemptState:
    """The state of a launch. One that has not ended and has no walker any more is lost."""
    state = AttemptState(launch["state"])
    if not state.active or is_active(folder):
        return state
    again = read_launch(folder) or launch  # it may have ended between the two looks
    state = AttemptState(again["state"])
    return AttemptState.LOST if state.active else state


def job_launch(folder: Path, launch: Mapping[str, Any]) -> JobLaunch:
    return JobLaunch(
        id=f"{folder.parent.parent.name}.{folder.name}",
        state=launch_state(folder, launch),
        started_at=_moment(launch.get("started_at") or launch["created_at"]),
        ended_at=_moment(launch.get("ended_at")),
        url=str(folder),
    )


class TaskViews:
    """The tasks of launches of one job."""

    def __init__(self, layout: AttemptLayout, project: Path, environ: Mapping[str, str]) -> None:
        self._layout = layout
        self._attempts = LocalAttempts(layout, environ, project)

    def of(self, launch: Mapping[str, Any], state: AttemptState) -> Iterator[TaskLaunch]:
        """The tasks of a launch that has that state, in their order."""
        tasks = launch["tasks"]
        order = TopologicalSorter({name: task["after"] for name, task in tasks.items()})
        for name in order.static_order():
            yield self._task(name, tasks[name], _record(launch, tasks[name]), state)

    def _task(
        self, name: str, task: Mapping[str, Any], record: LaunchRecord, launch: AttemptState
    ) -> TaskLaunch:
        shown = TaskLaunch(
            name=name,
            state=AttemptState(task["state"]),
            skipped=bool(task.get("skipped")),
            started_at=_moment(task.get("started_at")),
            ended_at=_moment(task.get("ended_at")),
            output=task.get("message"),
        )
        if shown.skipped:
            return shown
        if task["state"] == QUEUED:
            lost = launch is AttemptState.LOST
            return replace(shown, state=AttemptState.LOST, output=_NEVER_STARTED) if lost else shown
        view = self._attempts.inspect([record]).get(record.ref)
        if view is None or view.state is AttemptState.STAGING:  # it was never launched
            gone = task["state"] == RUNNING and not launch.active
            return replace(shown, state=AttemptState.LOST) if gone else shown
        shown = replace(
            shown,
            state=view.state,
            started_at=view.started_at or shown.started_at,
            ended_at=view.ended_at or shown.ended_at,
            url=str(self._layout.attempt(record.ref)),
        )
        if launch.active or view.state.active:
            return shown
        return replace(
            shown,
            output="\n".join(filter(None, [shown.output, self._output(record, task)]))[-_SHOWN:]
            or None,
            first_cause=view.first_cause,
            results=tuple(self._attempts.results(record)),
        )

    def _output(self, record: LaunchRecord, task: Mapping[str, Any]) -> str:
        reader, ended = self._attempts.logs(record, ranks=None, follow=False), False
        last: deque[str] = deque(maxlen=_LINES)
        while not ended:
            pieces, ended = reader.read()
            for piece in pieces:
                rank = f"[rank {piece.rank}] " if task["run"] else ""
                last.extend(f"{rank}{line}" for line in piece.lines)
        return "\n".join(last)


def _record(launch: Mapping[str, Any], task: Mapping[str, Any]) -> LaunchRecord:
    """What finds the attempt of a task."""
    return LaunchRecord(
        ref=AttemptRef(Address.parse(task["address"]), launch["number"]),
        backend="local",
        token=task["token"],
        lineage="",
        owner=launch["owner"],
        inputs=LaunchInputs(spec=NO_FIELDS, fingerprint=""),
    )


def _moment(text: str | None) -> datetime | None:
    return from_text(text) if text else None

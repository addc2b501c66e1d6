"""`sgpu start`."""

import time
from typing import TYPE_CHECKING

import click

from sgpu_decl.cli.error_exit import show_error
from sgpu_decl.cli.options import ProjectSource, output_option, project_options
from sgpu_decl.cli.terminal_output import answer, note, show
from sgpu_decl.errors import Interrupted, RunFailed
from sgpu_decl.model.attempt import AttemptState

if TYPE_CHECKING:
    from collections.abc import Callable

    from sgpu_decl.model.job import StartedJob, TaskLaunch

_FIRST, _LONGEST = 0.5, 5.0  # seconds between two looks


@click.command("start")
@click.argument("name", metavar="JOB")
@project_options
@click.option(
    "--param", "parameters", multiple=True, metavar="NAME=VALUE",
    help="Set a parameter of the job for this launch, instead of its default (repeatable).",
)  # fmt: skip
@click.option(
    "--only", "tasks", multiple=True, metavar="TASK",
    help="Run only this task, without the tasks before it (repeatable).",
)  # fmt: skip
@click.option("--wait", is_flag=True, help="Wait for the end of the launch, and show its tasks.")
@output_option()
def command(
    *,
    source: ProjectSource,
    name: str,
    parameters: tuple[str, ...],
    tasks: tuple[str, ...],
    wait: bool,
    output: str,
) -> int:
    """Start a job now, as it was applied.

    JOB is `nightly` or `job.nightly`. If the command is interrupted before it has shown the launch,
    the same command finds that launch, and starts no second one. Once the launch is shown, Ctrl-C
    ends only the waiting.

    Exit codes: 0 ok, 1 error, 5 the launch did not succeed (with `--wait`), 130 interrupted.
    """
    from sgpu_decl.views.job_launch_text import launch_fields, launch_lines, task_line

    given = dict(_pair(text) for text in parameters)
    session = source.session()
    try:
        started = session.jobs.start(name, parameters=given, tasks=tasks)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted", hint="the same command again finds the launch if it was started"
        ) from None
    if started.again:
        note("an interrupted `sgpu start` started this launch already: no second one was started")
    note(f"{started.address}: launch {started.launch.id}, {started.launch.url}")
    if started.behind is not None:
        note(
            f"the launch {started.behind} is still active: this one waits for it, or is skipped "
            "if the job has no `on_overlap: queue`"
        )
    said: dict[str, str] = {}
    pause = _FIRST
    try:
        while wait and started.launch.state.active:
            _say(started, said, task_line)
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST)
            started = session.jobs.look_again(started)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted", hint=f"the launch goes on: see {started.launch.url}"
        ) from None
    error = None
    if wait:
        _say(started, said, task_line)
        if started.launch.state is not AttemptState.SUCCEEDED:
            error = RunFailed(
                f"the launch {started.launch.id} of `{started.address}` has the state "
                f"`{started.launch.state}`",
                hint=f"see {started.launch.url}",
            )
    if output == "json":
        answer(launch_fields(started), error=error)
        return error.exit_code if error else 0
    if wait:
        for line in launch_lines(started):
            show(line)
    if error is not None:
        show_error(error)
    return error.exit_code if error else 0


def _say(
    started: "StartedJob", said: dict[str, str], line_of: "Callable[[TaskLaunch], str]"
) -> None:
    """Say which tasks have another state."""
    for task in started.tasks:
        line = line_of(task)
        if said.get(task.name) != line:
            said[task.name] = line
            note(line)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.UsageError(f"`--param {text}` is not `NAME=VALUE`")
    return name, value

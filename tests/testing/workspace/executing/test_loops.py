"""Loops of jobs (`for_each_task`), through the SDK."""

from typing import Any

import pytest

from tests.testing.workspace.executing.conftest import User

PROGRAM = """\
import pathlib, sys
print("for", *sys.argv[1:])
seen = pathlib.Path(__file__).with_name(sys.argv[1] + ".txt")
first = not seen.exists()
seen.write_text("")
sys.exit({"bad": 1, "late": int(first)}.get(sys.argv[1], 0))
"""


def loop(user: User, inputs: str, *parameters: str, **more: Any) -> dict[str, Any]:
    where = user.stage("loop", main__py=PROGRAM)
    nested = {
        "task_key": "one",
        "max_retries": 1,
        "spark_python_task": {"python_file": f"{where}/main.py", "parameters": list(parameters)},
    }
    return {"task_key": "all", "for_each_task": {"inputs": inputs, "task": nested, **more}}


def submitted(user: User, *tasks: dict[str, Any]) -> Any:
    return user.ended(user.post("runs/submit", user.payload(*tasks))["run_id"])


def test_a_task_runs_for_each_item(user: User) -> None:
    run = submitted(user, loop(user, '["a", 2, {"x": "y"}]', "{{input}}", "{{input.x}}"))
    assert run.state.result_state.value == "SUCCESS"
    (task,) = run.tasks
    counts = task.for_each_task.stats.task_run_stats
    assert (counts.total_iterations, counts.succeeded_iterations) == (3, 3)
    iterations = user.client.jobs.get_run(task.run_id).iterations
    printed = [user.client.jobs.get_run_output(one.run_id).logs for one in iterations]
    assert printed == ["for a {{input.x}}\n", "for 2 {{input.x}}\n", 'for {"x": "y"} y\n']
    starts = [one.start_time for one in iterations]
    ends = [one.end_time for one in iterations]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_a_loop_fails_with_an_iteration_after_its_retries(user: User) -> None:
    after = user.task(user.stage(command__sh="echo\n"), depends_on=[{"task_key": "all"}])
    run = submitted(user, loop(user, '["bad", "late", "good"]', "{{input}}", concurrency=3), after)
    ended = {one.task_key: one.state for one in run.tasks}
    assert ended["all"].result_state.value == "FAILED"
    assert ended["all"].state_message == "1 of 3 iterations failed."
    assert ended["train"].result_state.value == "UPSTREAM_FAILED"
    iterations = user.client.jobs.get_run(run.tasks[0].run_id).iterations
    assert [(one.attempt_number, one.state.result_state.value) for one in iterations] == [
        (1, "FAILED"), (1, "SUCCESS"), (0, "SUCCESS"),
    ]  # fmt: skip


def test_items_come_from_a_parameter_of_the_job(user: User) -> None:
    tasks = user.payload(loop(user, "{{job.parameters.days}}", "{{input}}"))
    days = [{"name": "days", "default": '["mon"]'}]
    job_id = user.post("create", {**tasks, "name": "daily", "parameters": days})["job_id"]
    launched = user.post("run-now", {"job_id": job_id, "job_parameters": {"days": "mon"}})
    run = user.ended(launched["run_id"])
    assert "no JSON array: mon" in run.tasks[0].state.state_message
    run = user.ended(user.post("run-now", {"job_id": job_id})["run_id"])
    assert run.state.result_state.value == "SUCCESS"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": ""}, "Missing required field: inputs"),
        ({"task": {"task_key": "all", "notebook_task": {}}}, "'all' is not unique"),
        ({"task": {"task_key": "in", "for_each_task": {}}}, "cannot be nested"),
        ({"task": {"task_key": "in"}}, "Exactly one task type"),
        ({"concurrency": 0}, "1 or more"),
    ],
    ids=str,
)
def test_loops_that_are_refused(user: User, change: dict[str, Any], message: str) -> None:
    task = loop(user, "[1]")
    task["for_each_task"] |= change
    with pytest.raises(Exception, match=message):
        user.post("runs/submit", user.payload(task))

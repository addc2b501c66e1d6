"""Runs of AI Runtime tasks, from submission to their end, as a user of the SDK sees them."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk.errors import InvalidParameterValue, ResourceDoesNotExist

from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from tests.support import until
from tests.testing.workspace.conftest import client_of
from tests.testing.workspace.executing.conftest import User, processes_with

_MEETING = """
cat > meet.py <<'PYTHON'
import os, socket
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["NODE_RANK"] == "0":
    with socket.create_server(at) as server:
        peer, _ = server.accept()
        with peer:
            print("heard", peer.recv(100).decode())
            peer.sendall(b"hello from 0")
else:
    while True:
        try:
            peer = socket.create_connection(at)
            break
        except ConnectionRefusedError:
            pass
    with peer:
        peer.sendall(b"hello from 1")
        print("heard", peer.recv(100).decode())
PYTHON
python meet.py
"""


def test_two_nodes_meet_at_the_master_address(user: User) -> None:
    run_id = user.submit(_MEETING, count=2)
    run = user.ended(run_id)
    assert run.state.result_state.value == "SUCCESS"
    assert run.status.termination_details.code.value == "SUCCESS"
    assert user.lines(run_id, node=0) == ["heard hello from 1"]
    assert user.lines(run_id, node=1) == ["heard hello from 0"]


def test_a_node_finds_the_documented_environment(user: User) -> None:
    command = user.stage(
        command__sh="python -c 'import json, os; print(json.dumps(dict(os.environ)))'\n",
        hyperparameters__yaml="lr: 0.1\n",
        env_vars__json=json.dumps([{"name": "GREETING", "value": "hello"}]),
    )
    task = user.task(command, kind="GPU_8xH100", count=8)
    run_id = user.post("runs/submit", user.payload(task))["run_id"]
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    found = json.loads(user.lines(run_id)[0])
    expected = {
        "NUM_NODES": "1", "NODE_RANK": "0", "POD_RANK": "0", "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "8", "PYTHONUNBUFFERED": "1", "NCCL_DEBUG": "INFO", "GREETING": "hello",
        "MLFLOW_TRACKING_URI": "databricks",
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    assert not {"RANK", "LOCAL_RANK", "CODE_SOURCE_PATH"} & found.keys()
    assert not {name for name in found if name.startswith("DATABRICKS_")}, "nobody saw any there"
    assert {name for name in found if name.startswith("MLFLOW_")} == {
        "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID",
    }  # fmt: skip
    assert int(found["MASTER_PORT"]) > 0
    assert found["MASTER_ADDR"]
    assert found["HYPERPARAMETERS_PATH"].endswith("hyperparameters.yaml")
    assert found["MLFLOW_RUN_ID"] == user.output(run_id).ai_runtime_task_output.mlflow_run_id


@pytest.mark.expensive
def test_a_generous_workspace_gives_nodes_more_variables(tmp_path: Path) -> None:
    settings = ExecutionSettings(generous=True)
    with WorkspaceServer(tmp_path, execution=settings) as server:
        user = User(client_of(server.url, server.new_token()))
        run_id = user.submit('echo "$DATABRICKS_HOST $MLFLOW_EXPERIMENT_ID $MLFLOW_TRACKING_URI"\n')
        user.ended(run_id)
        experiment = user.output(run_id).ai_runtime_task_output.mlflow_experiment_id
        assert user.lines(run_id) == [f"{server.url} {experiment} databricks"]


def test_a_command_that_fails_is_the_runs_failure(user: User) -> None:
    run_id = user.submit("echo before; exit 3\n")
    run = user.ended(run_id)
    assert (run.state.life_cycle_state.value, run.state.result_state.value) == (
        "INTERNAL_ERROR", "FAILED",
    )  # fmt: skip
    assert run.state.state_message.startswith("Task train failed with message: Workload failed")
    assert "exit code 3" in run.state.state_message
    (task,) = run.tasks
    assert task.status.termination_details.code.value == "RUN_EXECUTION_ERROR"
    assert task.status.termination_details.type.value == "CLIENT_ERROR"
    assert user.output(run_id).error.startswith("Workload failed on node 0")
    assert user.lines(run_id) == ["before"]


def test_the_first_node_to_fail_stops_the_others(user: User) -> None:
    text = 'if [ "$NODE_RANK" = 1 ]; then exit 7; fi; echo waiting; sleep 1000\n'
    run = user.ended(run_id := user.submit(text, count=2))
    assert "node 1 with exit code 7" in run.state.state_message
    until(lambda: not processes_with(str(run_id)))


def test_a_failed_attempt_is_followed_by_another_with_a_run_of_its_own(user: User) -> None:
    text = f"""
    if [ -e {user.home}/tried ]; then echo second; exit 0; fi
    touch {user.home}/tried
    echo first; exit 1
    """
    run_id = user.submit(text, max_retries=3)
    run = user.ended(run_id)
    assert run.state.result_state.value == "SUCCESS"
    assert [task.attempt_number for task in run.tasks] == [0, 1]
    assert [task.state.result_state.value for task in run.tasks] == ["FAILED", "SUCCESS"]
    outputs = [user.output(run_id, attempt).ai_runtime_task_output for attempt in (0, 1)]
    assert outputs[0].mlflow_experiment_id == outputs[1].mlflow_experiment_id
    tracked = [user.client.experiments.get_run(run_id=one.mlflow_run_id).run for one in outputs]
    assert [one.info.status.value for one in tracked] == ["FAILED", "FINISHED"]
    tags = {tag.key: tag.value for tag in tracked[1].data.tags}
    assert tags["mlflow.databricks.jobRunID"] == str(run_id)
    assert user.lines(run_id) == ["second"]  # the latest, where nobody asks for another
    assert user.lines(run_id, ref__attempt_number=0) == ["first"]


def test_attempts_end_when_none_is_left(user: User) -> None:
    run = user.ended(user.submit("exit 1\n", max_retries=2))
    assert run.state.result_state.value == "FAILED"
    assert [task.attempt_number for task in run.tasks] == [0, 1, 2]


@pytest.mark.parametrize(("again", "attempts"), [(False, 1), (True, 2)])
def test_a_timeout_ends_an_attempt(user: User, again: bool, attempts: int) -> None:
    run_id = user.submit(
        "sleep 1000\n", of_run={"timeout_seconds": 1}, max_retries=1, retry_on_timeout=again
    )
    run = user.ended(run_id)
    assert run.state.result_state.value == "TIMEDOUT"
    assert [task.state.result_state.value for task in run.tasks] == ["TIMEDOUT"] * attempts
    until(lambda: not processes_with(user.output(run_id).ai_runtime_task_output.mlflow_run_id))


def test_a_cancelled_run_may_say_good_bye(user: User) -> None:
    run_id = user.submit("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done\n")
    user.says(run_id, "up")
    assert user.state(run_id) == "RUNNING"
    user.client.jobs.cancel_run(run_id)
    run = user.ended(run_id)
    assert (run.state.life_cycle_state.value, run.state.result_state.value) == (
        "TERMINATED", "CANCELED",
    )  # fmt: skip
    assert run.state.user_cancelled_or_timedout
    assert run.status.termination_details.code.value == "USER_CANCELED"
    lines = user.lines(run_id)
    assert (lines[0], lines[-1]) == ("up", "bye")
    tracked = user.output(run_id).ai_runtime_task_output.mlflow_run_id
    assert user.client.experiments.get_run(run_id=tracked).run.info.status.value == "KILLED"


def test_nothing_survives_a_cancelled_run(user: User) -> None:
    text = """
    (trap '' TERM; exec setsid python -c "import time; time.sleep(10000)") &
    (trap '' TERM; exec nohup sleep 10000 >/dev/null 2>&1) &
    echo $MLFLOW_RUN_ID
    sleep 10000
    """
    run_id = user.submit(text, count=2, max_retries=3)
    tracked = until(lambda: user.lines(run_id))[0]
    until(lambda: len(processes_with(tracked)) >= 6)
    user.client.jobs.cancel_run(run_id)
    assert user.ended(run_id).state.result_state.value == "CANCELED"
    assert processes_with(tracked) == []
    assert len(user.run(run_id).tasks) == 1


def test_what_a_command_leaves_running_ends_with_it(user: User) -> None:
    run_id = user.submit("(setsid sleep 10000 >/dev/null 2>&1 &); echo $MLFLOW_RUN_ID\n")
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    assert processes_with(user.lines(run_id)[0]) == []


def _task_output(user: User, run_id: int) -> Any:
    return user.output(run_id).ai_runtime_task_output


def test_runs_wait_for_gpus_and_are_cancelled_while_they_do(user: User) -> None:
    holding = user.submit("echo up; sleep 10000\n", kind="GPU_8xH100", count=8)
    user.says(holding, "up")
    waiting = user.submit("echo second\n", kind="GPU_8xH100", count=8)
    cancelled = user.submit("echo never\n", kind="GPU_8xH100", count=8)
    timed = user.submit("echo never\n", kind="GPU_8xH100", count=8, of_run={"timeout_seconds": 1})
    for run_id in (waiting, cancelled):
        told = until(partial(_task_output, user, run_id))
        assert told.status_message == "STATUS: Waiting for GPU compute capacity."
        assert user.state(run_id) == "PENDING"
    user.client.jobs.cancel_run(cancelled)
    assert user.ended(cancelled).state.result_state.value == "CANCELED"
    assert user.ended(timed).state.result_state.value == "TIMEDOUT"
    assert user.lines(cancelled) == []
    user.client.jobs.cancel_run(holding)
    assert user.ended(waiting).state.result_state.value == "SUCCESS"
    assert user.lines(waiting) == ["second"]


def _first_ended(user: User, run_id: int) -> bool:
    return user.run(run_id).tasks[0].state.result_state is not None


def test_a_lost_node_is_the_platforms_failure_and_tried_again(user: User) -> None:
    fault = {
        "pattern": "POST /api/2.2/jobs/runs/submit", "effect": "hook", "hook": "lose_node",
        "arguments": {"node": 1, "after_lines": 2, "attempt": 0},
    }  # fmt: skip
    for retries in (0, 1):
        user.client.api_client.do("POST", "/__testserver/fault", body=fault)
        text = f"echo one; echo two; until [ -e {user.home}/seen ]; do sleep 0.1; done\n"
        run_id = user.submit(text, count=2, max_retries=retries)
        if retries:
            until(partial(_first_ended, user, run_id))
            user.stage("", seen="x")
        run = user.ended(run_id)
        first = run.tasks[0]
        assert first.state.life_cycle_state.value == "INTERNAL_ERROR"
        assert first.state.state_message == "Node 1 was lost"
        assert first.status.termination_details.code.value == "CLOUD_FAILURE"
        assert first.status.termination_details.type.value == "CLOUD_FAILURE"
        assert user.lines(run_id, node=1, ref__attempt_number=0) == ["one", "two"]
        assert len(run.tasks) == 1 + retries
        assert run.state.result_state.value == ("SUCCESS" if retries else "FAILED")


def test_a_node_can_be_lost_while_it_runs(user: User) -> None:
    run_id = user.submit("echo up; sleep 1000\n")
    user.says(run_id, "up")
    user.client.api_client.do("POST", "/__testserver/lose-node", body={"run_id": run_id, "node": 0})
    run = user.ended(run_id)
    assert run.tasks[0].status.termination_details.type.value == "CLOUD_FAILURE"
    assert run.state.state_message == "Task train failed with message: Node 0 was lost"


def test_one_token_is_one_run_whoever_asks_at_once(user: User) -> None:
    from concurrent.futures import ThreadPoolExecutor

    task = user.task(user.stage(command__sh="echo once\n"))
    payload = user.payload(task, idempotency_token="t" * 64)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: user.post("runs/submit", payload), range(16)))
    ids = {answer["run_id"] for answer in answers}
    assert len(ids) == 1
    (run_id,) = ids
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    assert [run.run_id for run in user.client.jobs.list_runs()] == [run_id]
    assert user.lines(run_id) == ["once"]
    user.client.jobs.delete_run(run_id)
    with pytest.raises(InvalidParameterValue, match="has been deleted"):
        user.post("runs/submit", payload)


def test_tasks_run_in_the_order_of_their_dependencies(user: User) -> None:
    good, bad = user.stage("a", command__sh="echo a\n"), user.stage("b", command__sh="exit 1\n")
    tasks = [
        user.task(good, task_key="last", depends_on=[{"task_key": "fails"}]),
        user.task(bad, task_key="fails", depends_on=[{"task_key": "first"}]),
        user.task(good, task_key="first"),
        user.task(good, task_key="anyway", depends_on=[{"task_key": "fails"}], run_if="ALL_DONE"),
    ]
    tasks = [{**task, "task_key": task["task_key"]} for task in tasks]
    run = user.ended(user.post("runs/submit", user.payload(*tasks))["run_id"])
    results = {task.task_key: task.state.result_state.value for task in run.tasks}
    assert results == {
        "first": "SUCCESS", "fails": "FAILED", "last": "UPSTREAM_FAILED", "anyway": "SUCCESS"
    }  # fmt: skip
    ended = {task.task_key: task.end_time for task in run.tasks}
    assert ended["first"] <= ended["fails"] <= ended["anyway"]
    assert "Task fails failed" in run.state.state_message


def test_the_tasks_at_the_end_decide_and_what_was_passed_over_passes_over(user: User) -> None:
    """As https://docs.databricks.com/aws/en/jobs/run-if says."""
    good, bad = user.stage("a", command__sh="echo a\n"), user.stage("b", command__sh="exit 1\n")
    after = {key: [{"task_key": key}] for key in ("fails", "tidy", "never")}
    tasks = [
        user.task(bad, task_key="fails"),
        user.task(good, task_key="tidy", depends_on=after["fails"], run_if="ALL_DONE"),
        user.task(good, task_key="never", depends_on=after["tidy"], run_if="ALL_FAILED"),
        user.task(good, task_key="behind", depends_on=after["never"], run_if="ALL_DONE"),
    ]
    run = user.ended(user.post("runs/submit", user.payload(*tasks))["run_id"])
    assert {task.task_key: task.state.result_state.value for task in run.tasks} == {
        "fails": "FAILED", "tidy": "SUCCESS", "never": "EXCLUDED", "behind": "EXCLUDED"
    }  # fmt: skip
    assert run.state.result_state.value == "SUCCESS_WITH_FAILURES"


def test_one_task_is_cancelled_by_its_own_run_id(user: User) -> None:
    """As `JobsAPI.cancel_run` of the SDK says: "Cancels a job run or a task run."."""
    slow = user.stage("slow", command__sh="echo up; sleep 1000\n")
    good = user.stage("good", command__sh="echo good\n")
    tasks = [
        user.task(slow, task_key="slow"),
        user.task(good, task_key="waits", depends_on=[{"task_key": "slow"}]),
        user.task(good, task_key="behind", depends_on=[{"task_key": "waits"}]),
        user.task(good, task_key="beside"),
    ]
    run_id = user.post("runs/submit", user.payload(*tasks))["run_id"]
    ids = {task.task_key: task.run_id for task in user.run(run_id).tasks}
    user.says(ids["slow"], "up")

    user.client.jobs.cancel_run(ids["waits"])
    until(lambda: user.run(ids["behind"]).state.result_state)

    assert user.state(ids["slow"]) == "RUNNING"
    user.client.jobs.cancel_run(ids["slow"])
    results = {task.task_key: task.state.result_state.value for task in user.ended(run_id).tasks}
    assert results == {
        "slow": "CANCELED", "waits": "CANCELED", "behind": "UPSTREAM_CANCELED", "beside": "SUCCESS"
    }  # fmt: skip


def test_what_does_not_exist_is_said_so(user: User) -> None:
    with pytest.raises(ResourceDoesNotExist, match="Run 12 does not exist"):
        user.run(12)
    with pytest.raises(InvalidParameterValue, match="Run 12 does not exist"):
        user.client.jobs.cancel_run(12)


def test_a_run_is_nobody_elses(user: User, server: Any) -> None:
    from tests.testing.workspace.conftest import client_of

    run_id = user.submit("echo mine\n")
    other = User(client_of(server.url, server.new_token()))
    with pytest.raises(ResourceDoesNotExist):
        other.run(run_id)
    assert list(other.client.jobs.list_runs()) == []
    user.ended(run_id)


@pytest.mark.expensive
def test_many_runs_at_once_all_end_well(user: User) -> None:
    payload = user.payload(user.task(user.stage(command__sh="echo hi\n")))
    ids = [user.post("runs/submit", payload)["run_id"] for _ in range(40)]
    tasks = [user.ended(run_id).tasks[-1] for run_id in ids]
    failed = [task for task in tasks if task.state.result_state.value != "SUCCESS"]
    assert [(task.status.termination_details, task.state.state_message) for task in failed] == []

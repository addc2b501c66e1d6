"""Runs and attempts as the Jobs API shows them: in the shape of version 1 (`state`) and 2
(`status`)."""

from collections.abc import Sequence
from pathlib import Path

from sgpu_decl.model.jsonable import Json
from sgpu_decl.testing.workspace.executing.endings import GOOD, TABLE, AttemptEnding
from sgpu_decl.testing.workspace.executing.logs import chunk_name
from sgpu_decl.testing.workspace.executing.loops import LOOP, nested_task
from sgpu_decl.testing.workspace.executing.records import Round, Run, TaskAttempt
from sgpu_decl.testing.workspace.executing.run_notebook import RESULT
from sgpu_decl.testing.workspace.routes import JsonObject

__all__ = ["attempt_as_run", "output_of", "run_shape"]

_PAGE = 100
_LOG_LIMIT = 5 * 1024 * 1024
_NEW_STATES = {
    "PENDING": "PENDING",
    "QUEUED": "QUEUED",
    "BLOCKED": "BLOCKED",
    "RUNNING": "RUNNING",
    "TERMINATING": "TERMINATING",
    "WAITING_FOR_RETRY": "WAITING",
}
_QUEUED = "Queued due to reaching maximum concurrent runs."


def run_shape(
    run: Run, page_url: str, *, tasks: bool = True, history: bool = False, start: int = 0
) -> JsonObject:
    """A run; of its tasks at most 100, from `start` on."""
    shape = _common(run, page_url, _life_cycle(run), run.ending, run.message)
    shape |= _times(run.started, _first_running(run), run.ended)
    shape |= {"run_id": run.run_id, "job_run_id": run.run_id, "original_attempt_run_id": run.run_id}
    if environments := run.settings.get("environments"):
        shape["environments"] = environments
    if tasks:
        listed = run.of_tasks[start : start + _PAGE]
        shape["tasks"] = [_task(run, one, page_url) for one in listed]
        if start + _PAGE < len(run.of_tasks):
            shape |= {"has_more": True, "next_page_token": str(start + _PAGE)}
    if history:
        current: JsonObject = {
            "start_time": run.repaired or run.started, "end_time": run.ended or 0,
            "state": shape["state"], "status": shape["status"],
            "task_run_ids": list(run.current_attempts), **_kind(run.repair_id),
        }  # fmt: skip
        shape["repair_history"] = [*(_round(run, one, page_url) for one in run.rounds), current]
    return shape


def attempt_as_run(run: Run, attempt: TaskAttempt, page_url: str) -> JsonObject:
    """An attempt of a task, which has a run id too."""
    shape = _common(run, page_url, attempt.life_cycle, attempt.ending, attempt.message)
    shape |= _times(attempt.started, attempt.running, attempt.ended)
    if iterations := _iterations(run, attempt):
        shape["iterations"] = [_task(run, one, page_url) for one in iterations[:_PAGE]]
    return shape | {
        "run_id": attempt.run_id,
        "job_run_id": run.run_id,
        "attempt_number": attempt.number,
        "original_attempt_run_id": attempt.original_run_id,
        "tasks": [_task(run, attempt, page_url)],
    }


def output_of(run: Run, attempt: TaskAttempt, page_url: str) -> JsonObject:
    """What `runs/get-output` says of an attempt."""
    output: JsonObject = {"metadata": attempt_as_run(run, attempt, page_url)}
    told = {
        "mlflow_experiment_id": attempt.experiment_id,
        "mlflow_run_id": attempt.mlflow_run_id,
        "status_message": attempt.status_message,
    }
    if "ai_runtime_task" in _settings(run, attempt):
        output["ai_runtime_task_output"] = {name: text for name, text in told.items() if text}
    settings = _settings(run, attempt)
    if "spark_python_task" in settings:
        output["logs"] = _printed(attempt)
    if "notebook_task" in settings and RESULT in (text := _printed(attempt)):
        output["notebook_output"] = {"result": text.partition(RESULT)[2].rstrip("\n")}
    if attempt.ending and attempt.ending is not AttemptEnding.SUCCEEDED and attempt.message:
        output["error"] = attempt.message
    return output


def _printed(attempt: TaskAttempt) -> str:
    """What a task wrote, its last 5 MB at most. Source: `logs` and `notebook_output` in
    https://docs.databricks.com/api/workspace/jobs/getrunoutput"""
    content, number = b"", 0
    while attempt.logs and (file := Path(attempt.logs) / chunk_name(0, number)).is_file():
        content, number = (content + file.read_bytes())[-_LOG_LIMIT:], number + 1
    return content.decode(errors="replace")


def _common(
    run: Run, page_url: str, life_cycle: str, ending: AttemptEnding | None, message: str
) -> JsonObject:
    state: JsonObject = {
        "life_cycle_state": life_cycle,
        "state_message": message,
        "user_cancelled_or_timedout": ending in (AttemptEnding.CANCELLED, AttemptEnding.TIMED_OUT),
    }
    status: JsonObject = {"state": _NEW_STATES.get(life_cycle, "TERMINATED")}
    if life_cycle == "QUEUED":
        state["queue_reason"] = _QUEUED
        status["queue_details"] = {"code": "MAX_CONCURRENT_RUNS_REACHED", "message": _QUEUED}
    if ending is not None:
        said = TABLE[ending]
        state["result_state"] = said.result
        status["termination_details"] = {"code": said.code, "type": said.type, "message": message}
    return {
        "job_id": run.job_id,
        "number_in_job": run.number_in_job,
        "run_name": run.name,
        "run_type": run.kind,
        "run_page_url": page_url,
        "creator_user_name": run.creator,
        "trigger": "ONE_TIME",
        "format": "MULTI_TASK",
        "state": state,
        "status": status,
    }


def _round(run: Run, one: Round, page_url: str) -> JsonObject:
    shape = _common(run, page_url, one.life_cycle, one.ending, one.message)
    return {
        "start_time": one.started,
        "end_time": one.ended,
        "state": shape["state"],
        "status": shape["status"],
        "task_run_ids": list(one.attempts),
        **_kind(one.repair_id),
    }


def _kind(repair_id: int | None) -> JsonObject:
    return {"type": "ORIGINAL"} if repair_id is None else {"type": "REPAIR", "id": repair_id}


def _task(run: Run, attempt: TaskAttempt, page_url: str) -> JsonObject:
    shape = _common(run, page_url, attempt.life_cycle, attempt.ending, attempt.message)
    kept = {name: shape[name] for name in ("state", "status", "run_page_url")}
    settings = _settings(run, attempt)
    if (loop := settings.get(LOOP)) is not None:
        stats = {"task_run_stats": _counts(attempt.iterations, _iterations(run, attempt))}
        settings = {**settings, LOOP: {**loop, "stats": stats}}  # type: ignore[dict-item]  # JSON
    return {
        **settings,
        **kept,
        **_times(attempt.started, attempt.running, attempt.ended),
        "run_id": attempt.run_id,
        "attempt_number": attempt.number,
    }


def _settings(run: Run, attempt: TaskAttempt) -> JsonObject:
    nested = (one for one in map(nested_task, run.tasks) if one is not None)
    tasks = nested if attempt.parent else iter(run.tasks)
    return dict(next(task for task in tasks if task["task_key"] == attempt.task_key))


def _iterations(run: Run, loop: TaskAttempt) -> list[TaskAttempt]:
    """The latest attempts of the iterations of a loop, in their order."""
    made = {one.iteration: one for one in run.attempts if one.parent == loop.run_id}
    return [made[number] for number in sorted(made)]


def _counts(total: int, iterations: Sequence[TaskAttempt]) -> dict[str, int]:
    ended = [one for one in iterations if one.ending is not None]
    good = sum(one.ending in GOOD for one in ended)
    return {
        "total_iterations": total,
        "scheduled_iterations": len(iterations),
        "active_iterations": len(iterations) - len(ended),
        "completed_iterations": len(ended),
        "succeeded_iterations": good,
        "failed_iterations": len(ended) - good,
    }


def _times(started: int, running: int | None, ended: int | None) -> JsonObject:
    """Milliseconds; what is not known yet is 0."""
    setup = (running or ended or started) - started
    times: dict[str, Json] = {
        "start_time": started,
        "end_time": ended or 0,
        "setup_duration": setup,
        "execution_duration": ended - started - setup if ended else 0,
        "cleanup_duration": 0,
        "run_duration": ended - started if ended else 0,
    }
    return times


def _first_running(run: Run) -> int | None:
    return min((one.running for one in run.attempts if one.running), default=None)


def _life_cycle(run: Run) -> str:
    if not run.active or run.life_cycle == "QUEUED":
        return run.life_cycle
    if run.cancelled:
        return "TERMINATING"
    begun = any(one.running or one.ended for one in run.attempts)
    return "RUNNING" if begun else "PENDING"

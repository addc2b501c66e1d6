"""A run while it runs: its tasks in the order of their dependencies, each with its attempts."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import Any

from sgpu_decl.testing.workspace.clock import now_ms
from sgpu_decl.testing.workspace.executing.capacity import CapacityRequest
from sgpu_decl.testing.workspace.executing.doom import Doom
from sgpu_decl.testing.workspace.executing.endings import GOOD, TABLE, AttemptEnding
from sgpu_decl.testing.workspace.executing.loops import LOOP, for_item, items_of, nested_task
from sgpu_decl.testing.workspace.executing.records import JOB_RUN, Run, RunRecords, TaskAttempt
from sgpu_decl.testing.workspace.executing.references import condition_holds, filled_in
from sgpu_decl.testing.workspace.executing.stop_signal import StopSignal, Why
from sgpu_decl.testing.workspace.executing.task_attempt import Attempting, AttemptSite
from sgpu_decl.testing.workspace.executing.workload import workload_of
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["Execution"]

_Asked = Future[None]
_HINDERED = frozenset({AttemptEnding.UPSTREAM_FAILED, AttemptEnding.UPSTREAM_CANCELLED})


class Execution:
    """Runs all tasks of a run; `run` blocks until the last has ended. `dooms` is
    what is to befall it."""

    def __init__(
        self,
        site: AttemptSite,
        tenant: Tenant,
        run: Run,
        *,
        credential: str,
        dooms: Sequence[Doom],
    ) -> None:
        self.stopping = StopSignal()
        self._task_stops = {str(task["task_key"]): StopSignal() for task in run.tasks}
        for task in run.tasks:  # the iterations of a loop stop with it
            if nested := nested_task(task):
                self._task_stops[nested["task_key"]] = self._task_stops[str(task["task_key"])]
        self._cancelled: set[str] = set()  # the keys of tasks that were cancelled alone
        self._site = site
        self._tenant = tenant
        self._runs = RunRecords(tenant)
        self._run = run
        self._credential = credential
        self._dooms = dooms
        self._active: dict[int, Attempting] = {}

    def run(self) -> None:
        """Wait until the job has room for a further run, run everything, and write down how it
        ended."""
        settings = self._run.settings
        limit = settings.get("max_concurrent_runs") if self._run.kind == JOB_RUN else None
        room = CapacityRequest(f"job {self._tenant.key}/{self._run.job_id}", 1, limit)  # type: ignore[arg-type]  # kept settings have a number
        with self._site.capacity.held(room, self.stopping, None) as got:
            if got:
                self._walk()
            elif self.stopping.asked is not Why.SERVER_ENDS:
                said = TABLE[AttemptEnding.CANCELLED].life_cycle
                self._runs.update(
                    self._run.run_id,
                    lambda run: run.broken_off(AttemptEnding.CANCELLED, said, "Run cancelled."),
                )

    def cancel_task(self, task_key: str) -> None:
        """Ask one task to stop, whether it was begun or waits for others."""
        self._cancelled.add(task_key)
        self._task_stops[task_key].ask(Why.CANCELLED)

    def _stop_tasks(self) -> None:
        if self.stopping.asked is not None:
            for stop in self._task_stops.values():
                stop.ask(self.stopping.asked)

    def lose_node(self, node: int) -> bool:
        """Let a node of the attempt that is running vanish; whether there is such an attempt."""
        gangs = [one.gang for one in list(self._active.values()) if one.gang is not None]
        for gang in gangs:
            gang.lose(node)
        return bool(gangs)

    def _walk(self) -> None:
        self._runs.update(
            self._run.run_id,
            lambda run: replace(run, life_cycle="RUNNING") if run.active else run,
        )
        tasks = {task["task_key"]: task for task in self._run.tasks}
        order = TopologicalSorter({key: _upstream(task) for key, task in tasks.items()})
        ended: dict[str, Future[TaskAttempt]] = {}
        with (
            self.stopping.heard_by(self._stop_tasks),
            ThreadPoolExecutor(max_workers=len(tasks), thread_name_prefix="workspace-task") as pool,
        ):
            self._stop_tasks()  # it may have been asked before
            for key in order.static_order():
                before = [ended[one] for one in _upstream(tasks[key])]
                ended[key] = pool.submit(self._task, tasks[key], before)
            attempts = [ended[key].result() for key in tasks]
        if self.stopping.asked is not Why.SERVER_ENDS:
            self._conclude(attempts)

    def _task(self, task: Mapping[str, Any], before: Sequence[Future[TaskAttempt]]) -> TaskAttempt:
        key = str(task["task_key"])
        attempt = self._run.latest(key)
        if attempt.ending is not None:
            return attempt  # a repair runs others again
        if not self._waited(key, before):
            return self._skipped(attempt, AttemptEnding.CANCELLED, "Run cancelled.")
        ended = [one.result() for one in before]
        hindrance = _hindrance(str(task["run_if"]), ended)
        if hindrance is None and not _is_chosen(task, ended):
            hindrance = AttemptEnding.EXCLUDED
        if hindrance is not None:
            return self._skipped(attempt, hindrance)
        return self._tried(task, attempt)

    def _tried(self, task: Mapping[str, Any], attempt: TaskAttempt) -> TaskAttempt:
        """The last attempt of a task, or of an iteration; `attempt` is the first."""
        key, first = attempt.task_key, attempt.number
        while True:
            attempt = self._attempted(task, attempt)
            if not self._again(task, attempt, made=attempt.number - first):
                return attempt
            attempt = self._runs.new_attempt(
                self._run.run_id, key, attempt.number + 1,
                parent=attempt.parent, iteration=attempt.iteration,
            )  # fmt: skip
            if pause := float(task.get("min_retry_interval_millis") or 0) / 1000:
                waiting = replace(attempt, life_cycle="WAITING_FOR_RETRY")
                self._runs.update(self._run.run_id, _adding(waiting))
                self._task_stops[key].wait(pause)

    def _waited(self, key: str, before: Sequence[Future[TaskAttempt]]) -> bool:
        """Wait for the tasks before one; False where it is cancelled alone meanwhile."""
        stop, asked = self._task_stops[key], _Asked()

        def hear() -> None:
            if key in self._cancelled and not asked.done():
                asked.set_result(None)

        pending: set[Future[Any]] = set(before)
        with stop.heard_by(hear):
            while pending and key not in self._cancelled:
                _, pending = wait({*pending, asked}, return_when=FIRST_COMPLETED)
                pending.discard(asked)
        return key not in self._cancelled

    def _attempted(self, task: Mapping[str, Any], attempt: TaskAttempt) -> TaskAttempt:
        task = filled_in(task, self._run)
        if "condition_task" in task:
            return self._decided(task["condition_task"], attempt)
        if LOOP in task:
            return self._looped(task[LOOP], attempt)
        attempting = Attempting(
            self._site, self._tenant, self._run.run_id, attempt,
            settings=self._run.settings, task=task, workload=workload_of(task),
            credential=self._credential, stopping=self._task_stops[attempt.task_key],
            dooms=[doom for doom in self._dooms if doom.befalls(attempt.number)],
        )  # fmt: skip
        self._active[attempt.run_id] = attempting
        try:
            return attempting.run()
        finally:
            del self._active[attempt.run_id]

    def _decided(self, condition: Mapping[str, Any], attempt: TaskAttempt) -> TaskAttempt:
        try:
            outcome = str(condition_holds(condition)).lower()
        except ValueError as error:
            return self._skipped(attempt, AttemptEnding.FAILED, str(error))
        return self._skipped(replace(attempt, outcome=outcome), AttemptEnding.SUCCEEDED)

    def _looped(self, loop: Mapping[str, Any], attempt: TaskAttempt) -> TaskAttempt:
        try:
            items = items_of(loop["inputs"])
        except ValueError as error:
            return self._skipped(attempt, AttemptEnding.FAILED, str(error))
        attempt = replace(attempt, life_cycle="RUNNING", running=now_ms(), iterations=len(items))
        self._runs.update(self._run.run_id, _adding(attempt))

        def iteration(number: int) -> TaskAttempt:
            task = for_item(loop["task"], items[number])
            own = self._runs.new_attempt(
                self._run.run_id, task["task_key"], 0, parent=attempt.run_id, iteration=number
            )
            if self._task_stops[attempt.task_key].asked is not None:
                return self._skipped(own, AttemptEnding.CANCELLED, "Run cancelled.")
            return self._tried(task, own)

        at_once = int(loop.get("concurrency") or 1)
        with ThreadPoolExecutor(at_once, thread_name_prefix="workspace-iteration") as pool:
            ended = list(pool.map(iteration, range(len(items))))
        bad = [one for one in ended if one.ending not in GOOD]
        if any(one.ending is AttemptEnding.CANCELLED for one in bad):
            return self._skipped(attempt, AttemptEnding.CANCELLED, "Run cancelled.")
        if bad:
            message = f"{len(bad)} of {len(items)} iterations failed."
            return self._skipped(attempt, AttemptEnding.FAILED, message)
        return self._skipped(attempt, AttemptEnding.SUCCEEDED)

    def _again(self, task: Mapping[str, Any], attempt: TaskAttempt, *, made: int) -> bool:
        """Whether a further attempt is made; `made` are those after the first."""
        if attempt.ending is None or self._task_stops[attempt.task_key].asked is not None:
            return False
        most = int(task.get("max_retries") or 0)
        if most != -1 and made >= most:
            return False
        if attempt.ending is AttemptEnding.TIMED_OUT:
            return bool(task.get("retry_on_timeout"))
        return TABLE[attempt.ending].again

    def _skipped(
        self, attempt: TaskAttempt, ending: AttemptEnding, message: str = ""
    ) -> TaskAttempt:
        ended = attempt.ended_as(ending, message)
        self._runs.update(self._run.run_id, _adding(ended))
        return ended

    def _conclude(self, attempts: Sequence[TaskAttempt]) -> None:
        """The run ends as the first task that did not end well, unless all tasks that no other one
        comes after did. Source: https://docs.databricks.com/aws/en/jobs/run-if"""
        bad = [one for one in attempts if one.ending not in GOOD]
        followed = {key for task in self._run.tasks for key in _upstream(task)}
        if all(one.task_key in followed for one in bad):
            ending = AttemptEnding.WITH_FAILURES if bad else AttemptEnding.SUCCEEDED
            life_cycle, message = TABLE[ending].life_cycle, ""
        else:
            # A task that was skipped for another may end in the same millisecond.
            first = min(bad, key=lambda one: (one.ending in _HINDERED, one.ended or 0))
            ending = first.ending or AttemptEnding.PLATFORM
            # The platform calls every run with a failed task an internal error.
            failed = TABLE[ending].result == "FAILED"
            life_cycle = "INTERNAL_ERROR" if failed else TABLE[ending].life_cycle
            told = f"Task {first.task_key} failed with message: {first.message}"
            message = told if failed else first.message
        self._runs.update(self._run.run_id, lambda run: run.ended_as(ending, life_cycle, message))


def _adding(attempt: TaskAttempt) -> Callable[[Run], Run]:
    return lambda run: run.with_attempt(attempt)


def _upstream(task: Mapping[str, Any]) -> list[str]:
    return [str(one["task_key"]) for one in task.get("depends_on") or ()]


def _is_chosen(task: Mapping[str, Any], before: Sequence[TaskAttempt]) -> bool:
    """Whether the conditions before a task had the outcomes that it asks for. Source:
    `depends_on.outcome` in https://docs.databricks.com/api/workspace/jobs/create"""
    outcomes = {one.task_key: one.outcome for one in before}
    return all(
        one.get("outcome") in (None, outcomes[str(one["task_key"])])
        for one in task.get("depends_on") or ()
    )


def _hindrance(run_if: str, before: Sequence[TaskAttempt]) -> AttemptEnding | None:
    """Why a task is not run after those, if it is not. One whose predecessors are all excluded is
    excluded, too. Source: https://docs.databricks.com/aws/en/jobs/run-if"""
    if before and all(one.ending is AttemptEnding.EXCLUDED for one in before):
        return AttemptEnding.EXCLUDED
    good = [one for one in before if one.ending in GOOD]
    bad = [one for one in before if one.ending not in GOOD]
    runs = {
        "ALL_SUCCESS": not bad,
        "NONE_FAILED": not bad,
        "ALL_DONE": True,
        "AT_LEAST_ONE_SUCCESS": bool(good) or not before,
        "ALL_FAILED": not good,
        "AT_LEAST_ONE_FAILED": bool(bad) or not before,
    }[run_if]
    if runs:
        return None
    if run_if in ("ALL_FAILED", "AT_LEAST_ONE_FAILED"):
        return AttemptEnding.EXCLUDED
    if any(one.ending is AttemptEnding.CANCELLED for one in bad):
        return AttemptEnding.UPSTREAM_CANCELLED
    return AttemptEnding.UPSTREAM_FAILED

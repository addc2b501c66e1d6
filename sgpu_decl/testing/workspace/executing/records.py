"""What is known of runs and their attempts, as it is kept in the tenant's tables."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sgpu_decl.testing.workspace.clock import now_ms
from sgpu_decl.testing.workspace.executing.endings import TABLE, AttemptEnding
from sgpu_decl.testing.workspace.notifications import write_mails
from sgpu_decl.testing.workspace.routes import ApiError, JsonObject, invalid
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["JOB_RUN", "SUBMIT_RUN", "Round", "Run", "RunRecords", "TaskAttempt", "attempt_folder"]

JOB_RUN = "JOB_RUN"
SUBMIT_RUN = "SUBMIT_RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """One attempt of a task, a run of its own in the API. `life_cycle` is the API's word; `running`
    is when its nodes started; `logs` the folder of its chunks; `outcome` that of a condition,
    `true` or `false`; `iterations` how many a loop has. Of an iteration, `parent` is the attempt of
    the loop, by its run id, and `iteration` its number from 0."""

    run_id: int
    task_key: str
    number: int
    life_cycle: str = "PENDING"
    started: int
    running: int | None = None
    ended: int | None = None
    ending: AttemptEnding | None = None
    message: str = ""
    exit_code: int | None = None
    status_message: str = ""
    experiment_id: str = ""
    mlflow_run_id: str = ""
    logs: str = ""
    outcome: str = ""
    iterations: int = 0
    parent: int = 0
    iteration: int = 0
    original_run_id: int

    def ended_as(
        self, ending: AttemptEnding, message: str = "", exit_code: int | None = None
    ) -> "TaskAttempt":
        """The same, ended now."""
        return replace(
            self, life_cycle=TABLE[ending].life_cycle, ending=ending, message=message,
            exit_code=exit_code, ended=now_ms(), status_message="",
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a run was before it was repaired: its original round, or that of an earlier repair.
    `attempts` are the run ids of the attempts that were made in it."""

    repair_id: int | None
    started: int
    ended: int
    life_cycle: str
    ending: AttemptEnding
    message: str
    attempts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run: what was asked for (`settings`), and what became of it."""

    run_id: int
    kind: str
    job_id: int
    name: str
    creator: str
    settings: JsonObject
    token: str = ""
    parameters: JsonObject
    number_in_job: int
    started: int
    ended: int | None = None
    life_cycle: str = "PENDING"
    ending: AttemptEnding | None = None
    message: str = ""
    cancelled: bool = False
    attempts: tuple[TaskAttempt, ...] = ()
    rounds: tuple[Round, ...] = ()
    repair_id: int | None = None
    repaired: int | None = None

    @property
    def active(self) -> bool:
        """Whether it has yet to end."""
        return self.ending is None

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """The tasks that were asked for."""
        return self.settings["tasks"]  # type: ignore[return-value]  # validated when it was submitted

    def latest(self, task_key: str) -> TaskAttempt:
        """The newest attempt of a task."""
        return max(
            (one for one in self.attempts if one.task_key == task_key), key=lambda one: one.run_id
        )

    @property
    def current_attempts(self) -> tuple[int, ...]:
        """The run ids of the attempts that were made since the last repair."""
        earlier = {run_id for one in self.rounds for run_id in one.attempts}
        return tuple(one.run_id for one in self.of_tasks if one.run_id not in earlier)

    @property
    def of_tasks(self) -> tuple[TaskAttempt, ...]:
        """The attempts of its tasks, without the iterations of loops."""
        return tuple(one for one in self.attempts if not one.parent)

    def reopened(self, repair_id: int, ended: int, ending: AttemptEnding) -> "Run":
        """The same, active again by a repair; `ended` and `ending` are what it was."""
        closed = Round(
            repair_id=self.repair_id, started=self.repaired or self.started, ended=ended,
            life_cycle=self.life_cycle, ending=ending, message=self.message,
            attempts=self.current_attempts,
        )  # fmt: skip
        return replace(
            self, rounds=(*self.rounds, closed), repair_id=repair_id, repaired=now_ms(),
            ending=None, ended=None, life_cycle="PENDING", message="", cancelled=False,
        )  # fmt: skip

    def attempt(self, run_id: int) -> TaskAttempt | None:
        """The attempt with that run id."""
        return next((one for one in self.attempts if one.run_id == run_id), None)

    def with_attempt(self, attempt: TaskAttempt) -> "Run":
        """The same, with an attempt added, or put in the place of what it was."""
        others = [one for one in self.attempts if one.run_id != attempt.run_id]
        ordered = sorted([*others, attempt], key=lambda one: one.run_id)
        return replace(self, attempts=tuple(ordered))

    def broken_off(self, ending: AttemptEnding, life_cycle: str, message: str) -> "Run":
        """The same, ended now with all attempts that have not."""
        run = self
        for attempt in self.attempts:
            if attempt.ending is None:
                run = run.with_attempt(attempt.ended_as(ending, message))
        return run.ended_as(ending, life_cycle, message)

    def ended_as(self, ending: AttemptEnding, life_cycle: str, message: str = "") -> "Run":
        """The same, ended now."""
        return replace(self, ending=ending, life_cycle=life_cycle, message=message, ended=now_ms())


def attempt_folder(tenant: Tenant, run_id: int) -> Path:
    """What is kept of an attempt beside its record, and its nodes' folders while it runs."""
    return tenant.folder / "attempts" / str(run_id)


class RunRecords:
    """The runs of a tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._runs = tenant.table("runs")
        self._owners = tenant.table("run_attempts")
        self._tokens = tenant.table("run_tokens")

    def add(self, token: str, make: Callable[[int], Run]) -> tuple[Run, bool]:
        """Make a run with a new id, and the first attempts of its tasks; or find the one that was
        made with that token before. Whether it is new. Raises ApiError, 400, where that run was
        deleted."""
        with self._tenant.transaction():
            known = self._tokens.get(token) if token else None
            if known is not None:
                run = self.get(int(str(known["run_id"])))
                if run is None:
                    message = f"The run with idempotency token '{token}' has been deleted."
                    raise ApiError(400, "INVALID_PARAMETER_VALUE", message)
                return run, False
            run = make(self._tenant.next_id())
            self._runs.put(run.run_id, _written(run))
            if token:
                self._tokens.put(token, {"run_id": run.run_id})
            for task in run.tasks:
                life_cycle = "BLOCKED" if task.get("depends_on") else "PENDING"
                self.new_attempt(run.run_id, str(task["task_key"]), 0, life_cycle)
            return self.need(run.run_id), True

    def new_attempt(
        self,
        run_id: int,
        task_key: str,
        number: int,
        life_cycle: str = "PENDING",
        *,
        parent: int = 0,
        iteration: int = 0,
    ) -> TaskAttempt:
        """Add an attempt to a run."""
        with self._tenant.transaction():
            own = self._tenant.next_id()
            earlier = [
                one
                for one in self.need(run_id).attempts
                if (one.task_key, one.parent, one.iteration) == (task_key, parent, iteration)
            ]
            attempt = TaskAttempt(
                run_id=own, task_key=task_key, number=number, started=now_ms(),
                life_cycle=life_cycle, parent=parent, iteration=iteration,
                original_run_id=earlier[0].run_id if earlier else own,
            )  # fmt: skip
            self._owners.put(own, {"run_id": run_id})
            self.update(run_id, lambda run: run.with_attempt(attempt))
            return attempt

    def update(self, run_id: int, change: Callable[[Run], Run]) -> Run:
        """Change a run; whoever wants to know that it has ended is written to."""
        with self._tenant.transaction():
            before = self.need(run_id)
            run = change(before)
            self._runs.put(run_id, _written(run))
            # `on_success` of the API needs `SUCCESS`, and `on_failure` a failure.
            told = run.ending is not AttemptEnding.WITH_FAILURES
            if before.active and not run.active and told:
                succeeded = run.ending is AttemptEnding.SUCCEEDED
                write_mails(self._tenant, run_id, run.settings, succeeded=succeeded)
            return run

    def get(self, run_id: int) -> Run | None:
        """The run with that id."""
        kept = self._runs.get(run_id)
        return None if kept is None else _read(kept)

    def need(self, run_id: int) -> Run:
        """The run with that id. Raises ApiError, 400, as the platform does."""
        run = self.get(run_id)
        if run is None:
            raise invalid(f"Run {run_id} does not exist.")
        return run

    def owner(self, attempt_run_id: int) -> Run | None:
        """The run that an attempt belongs to, by the attempt's run id."""
        owner = self._owners.get(attempt_run_id)
        return None if owner is None else self.get(int(str(owner["run_id"])))

    def all(self) -> list[Run]:
        """All runs, the newest first."""
        return [_read(kept) for _, kept in reversed(self._runs.items())]

    def delete(self, run_id: int) -> None:
        """Forget a run."""
        self._runs.delete(run_id)


def _written(run: Run) -> JsonObject:
    return asdict(run)


def _read(kept: dict[str, Any]) -> Run:
    attempts = tuple(
        TaskAttempt(**{**one, "ending": one["ending"] and AttemptEnding(one["ending"])})
        for one in kept["attempts"]
    )
    rounds = tuple(
        Round(**{**one, "ending": AttemptEnding(one["ending"]), "attempts": tuple(one["attempts"])})
        for one in kept.get("rounds", ())
    )
    ending = kept["ending"] and AttemptEnding(kept["ending"])
    return Run(**{**kept, "attempts": attempts, "ending": ending, "rounds": rounds})

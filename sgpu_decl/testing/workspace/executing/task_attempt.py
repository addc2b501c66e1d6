"""One attempt of a task, from its place in the line to its end."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.workspace.clock import now_ms
from sgpu_decl.testing.workspace.executing.capacity import CapacityRequest, GpuCapacity, pool_of
from sgpu_decl.testing.workspace.executing.dependencies import (
    NotInstalled,
    declared_dependencies,
    installed,
)
from sgpu_decl.testing.workspace.executing.doom import Doom
from sgpu_decl.testing.workspace.executing.endings import AttemptEnding
from sgpu_decl.testing.workspace.executing.gang import Gang, Result
from sgpu_decl.testing.workspace.executing.logs import Log
from sgpu_decl.testing.workspace.executing.node import NodeSpec
from sgpu_decl.testing.workspace.executing.node_access import NodeAccess
from sgpu_decl.testing.workspace.executing.node_behaviour import NodeBehaviour
from sgpu_decl.testing.workspace.executing.node_environment import Position
from sgpu_decl.testing.workspace.executing.preparation import Preparation
from sgpu_decl.testing.workspace.executing.records import RunRecords, TaskAttempt, attempt_folder
from sgpu_decl.testing.workspace.executing.settings import ExecutionSettings
from sgpu_decl.testing.workspace.executing.sidecars import Unprepared
from sgpu_decl.testing.workspace.executing.stop_signal import StopSignal, Why
from sgpu_decl.testing.workspace.executing.workload import Workload
from sgpu_decl.testing.workspace.mlflow_names import Tracked, Tracking
from sgpu_decl.testing.workspace.routes import ApiError
from sgpu_decl.testing.workspace.tenant import Tenant
from sgpu_decl.testing.workspace.workspace_objects import WorkspaceObjects

__all__ = ["AttemptSite", "Attempting"]

_WAITING = "STATUS: Waiting for GPU compute capacity."
_STARTING = "STATUS: Starting the workload."
_MLFLOW = {AttemptEnding.SUCCEEDED: "FINISHED", AttemptEnding.CANCELLED: "KILLED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSite:
    """What all attempts of a workspace share. `rooted` is asked when the first node starts.
    `pools` are the GPUs of each reservation."""

    settings: ExecutionSettings
    capacity: GpuCapacity
    tracking: Tracking
    profile: Profile
    pools: Mapping[str, int]
    rooted: Callable[[], bool]
    url: str


class Attempting:
    """Runs one attempt; `run` blocks until it has ended."""

    def __init__(
        self,
        site: AttemptSite,
        tenant: Tenant,
        run_id: int,
        attempt: TaskAttempt,
        *,
        settings: Mapping[str, Any],
        task: Mapping[str, Any],
        workload: Workload,
        credential: str,
        stopping: StopSignal,
        dooms: Sequence[Doom],
    ) -> None:
        self._site = site
        self._behaviour = NodeBehaviour(site.profile)
        self._tenant = tenant
        self._runs = RunRecords(tenant)
        self._run_id = run_id
        self._attempt = attempt
        self._settings = settings
        self._task = task
        self._workload = workload
        self._credential = credential
        self._stopping = stopping
        self._deaths = [doom.death for doom in dooms if doom.death is not None]
        self._misnomer = next((doom.misnomer for doom in dooms if doom.misnomer is not None), None)
        self._scratch = attempt_folder(tenant, attempt.run_id)
        self.gang: Gang | None = None

    def run(self) -> TaskAttempt:
        """Wait for GPUs, run the nodes, and say how it ended; timeouts begin here."""
        deadline = self._deadline()
        try:
            result = self._named(deadline)
        except Unprepared as error:
            result = Result(ending=AttemptEnding.UNPREPARED, message=str(error))
        except NotInstalled as error:
            result = Result(ending=AttemptEnding.NOT_INSTALLED, message=str(error))
        except ApiError as error:
            blame = AttemptEnding.PLATFORM if error.status >= 500 else AttemptEnding.UNPREPARED
            result = Result(ending=blame, message=error.message)
        except OSError as error:
            result = Result(ending=AttemptEnding.PLATFORM, message=str(error))
        if self._stopping.asked is Why.SERVER_ENDS:
            return self._attempt  # it stays as it was, and the next server says what became of it
        ended = self._attempt.ended_as(result.ending, result.message, result.exit_code)
        self._note(lambda _: ended)
        return ended

    def _named(self, deadline: float | None) -> Result:
        """How it ended, by the name that it is to have."""
        other = self._misnomer
        if other is not None and other.at_once:
            return Result(ending=other.ending, message=other.message)
        result = self._queued(deadline)
        named = self._behaviour.ending(result.ending)
        if named is not result.ending:
            return replace(result, ending=named)
        if other is not None and result.ending is AttemptEnding.FAILED:
            return replace(result, ending=other.ending, message=other.message)
        return result

    def _deadline(self) -> float | None:
        seconds = [
            float(given)
            for given in (self._task.get("timeout_seconds"), self._settings.get("timeout_seconds"))
            if given
        ]
        spent = 0.0
        if not self._site.profile.flag("timeout-per-attempt"):
            spent = (now_ms() - self._runs.need(self._run_id).started) / 1000
        return time.monotonic() + min(seconds) - spent if seconds else None

    def _queued(self, deadline: float | None) -> Result:
        accelerator, pool = self._workload.accelerator, self._workload.pool
        if pool is not None:
            return self._admitted(pool, deadline)
        limit = self._site.settings.capacity.get(accelerator)
        asked = CapacityRequest(accelerator, self._workload.gpus, limit)
        patience = self._site.settings.queue_timeout
        give_up = None if patience is None else time.monotonic() + patience
        until = min((at for at in (deadline, give_up) if at is not None), default=None)
        self._note(lambda one: replace(one, life_cycle="PENDING", status_message=_WAITING))
        with self._site.capacity.held(asked, self._stopping, until) as got:
            if self._stopping.asked is not None:
                return Result(ending=AttemptEnding.CANCELLED, message="Run cancelled.")
            if got:
                return self._tracked(deadline)
        if until is not None and until == deadline:
            return Result(ending=AttemptEnding.TIMED_OUT, message="Timed out")
        message = f"No GPU compute capacity of {accelerator} became available in {patience:g} s"
        return Result(ending=AttemptEnding.NO_CAPACITY, message=message)

    def _admitted(self, pool: str, deadline: float | None) -> Result:
        """In a reservation, which has no queue: what does not fit is refused at once. Source:
        https://github.com/FMurray/databricks-air-lab/blob/main/apps/training-hub/BROKER-DESIGN.md
        (of 20 that were submitted, 4 were admitted and 16 failed)."""
        asked = CapacityRequest(pool_of(pool), self._workload.gpus, self._site.pools.get(pool, 0))
        with self._site.capacity.held(asked, self._stopping, time.monotonic()) as got:
            if got:
                return self._tracked(deadline)
        message = (
            f"System error occurred during execution of task {self._task['task_key']}: Workspace "
            f"has exceeded its GPU quota for {self._workload.accelerator}."
        )
        return Result(ending=AttemptEnding.PLATFORM, message=message)

    def _tracked(self, deadline: float | None) -> Result:
        """With an MLflow run of its own."""
        self._note(lambda one: replace(one, status_message=_STARTING))
        tracked = self._site.tracking.begin(
            self._tenant,
            self._experiment(),
            name=self._workload.mlflow_run or self._workload.experiment,
            tags={
                "mlflow.databricks.jobRunID": str(self._run_id),
                "mlflow.databricks.taskRunID": str(self._attempt.run_id),
                "mlflow.user": self._tenant.user_name,
            },
            artifact_location=self._workload.artifact_location,
            started_ms=self._attempt.started,
        )
        self._note(
            lambda one: replace(
                one, experiment_id=tracked.experiment_id, mlflow_run_id=tracked.run_id
            )
        )
        result = Result(ending=AttemptEnding.PLATFORM)
        try:
            result = self._executed(tracked, deadline)
        finally:
            status = _MLFLOW.get(result.ending, "FAILED")
            with suppress(ApiError):  # the server ends, and MLflow with it
                self._site.tracking.end(tracked.run_id, status=status, ended_ms=now_ms())
        return result

    def _executed(self, tracked: Tracked, deadline: float | None) -> Result:
        preparation = Preparation(
            tenant=self._tenant, scratch=self._scratch, settings=self._settings, task=self._task,
            workload=self._workload, python=self._python(), rooted=self._site.rooted(),
            access=NodeAccess(
                url=self._site.url, token=self._credential, tracked=tracked,
                generous=self._site.settings.generous,
            ),
            profile=self._site.profile,
        )  # fmt: skip
        nodes = self._workload.nodes
        port, lock = claim_port(host_lock_folder("ports"), self._attempt.run_id)
        try:
            specs = [
                preparation.node(
                    Position(
                        node=node, nodes=nodes, master_port=port,
                        gpus_per_node=self._workload.gpus_per_node,
                    )
                )
                for node in range(nodes)
            ]  # fmt: skip
            chunks = tracked.artifacts / "logs" / f"attempt_{self._attempt.number}"
            with self._behaviour.ports(port, nodes):
                return self._together(specs, chunks, deadline)
        finally:
            os.close(lock)
            preparation.clear()

    def _together(self, specs: Sequence[NodeSpec], chunks: Path, deadline: float | None) -> Result:
        settings = self._site.settings
        longest = int(self._site.profile.number("log-line-bytes"))
        log = Log(self._scratch, chunks, len(specs), longest=longest)
        gang = Gang(
            specs, log, grace=self._behaviour.grace(settings.grace), deaths=self._deaths,
            asks=self._behaviour.asks_to_stop,
        )  # fmt: skip
        self._note(
            lambda one: replace(
                one, logs=str(chunks), life_cycle="RUNNING", running=now_ms(), status_message=""
            )
        )

        def stop() -> None:
            if self._stopping.asked is Why.SERVER_ENDS:
                gang.kill()
            else:
                self._note(_terminating)
                gang.cancel()

        self.gang = gang
        try:
            with self._stopping.heard_by(stop):
                if self._stopping.asked is not None:
                    stop()
                return gang.run(deadline)
        finally:
            self.gang = None
            log.close()

    def _python(self) -> str:
        """The interpreter of its nodes. Raises NotInstalled."""
        python, wheels = self._site.settings.python, self._site.settings.wheels
        wanted = declared_dependencies(self._settings, self._task)
        if wheels is None or not wanted:
            return python
        return installed(python, wanted, wheels, self._scratch / "environment")

    def _experiment(self) -> str:
        """The workspace path of the experiment."""
        directory = self._workload.experiment_directory or self._tenant.home
        name = self._workload.experiment or str(self._task["task_key"])
        objects = WorkspaceObjects(self._tenant)
        if not objects.file(objects.path_of(directory)).is_dir():
            raise Unprepared(f"Parent directory does not exist: {directory}")
        return f"{directory.rstrip('/')}/{name}"

    def _note(self, change: Callable[[TaskAttempt], TaskAttempt]) -> None:
        """Write down what is new, unless the attempt has ended."""
        with self._tenant.transaction():
            self._attempt = change(self._attempt)
            attempt = self._attempt
            self._runs.update(self._run_id, lambda run: run.with_attempt(attempt))


def _terminating(attempt: TaskAttempt) -> TaskAttempt:
    return attempt if attempt.ending else replace(attempt, life_cycle="TERMINATING")

"""Launches on Slurm: staged in a launch folder, and submitted as one job."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import ForcedStop
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.node_tracker import tracking_credentials
from sgpu_decl.backends.remote.launching.delayed_stop import DelayedStop
from sgpu_decl.backends.remote.launching.remote_launcher import RemoteLauncher
from sgpu_decl.backends.remote.staging.remote_layout import LOGS
from sgpu_decl.backends.secret_resolution import resolve_secrets
from sgpu_decl.backends.slurm.cluster_state import SlurmJob
from sgpu_decl.backends.slurm.job_script import (
    CANCEL,
    CLAIM,
    JOB,
    VALUES,
    SlurmNodeProgram,
    job_name,
    planned_placement,
    submission,
)
from sgpu_decl.backends.slurm.slurm_attempts import SlurmAttempts
from sgpu_decl.backends.slurm.slurm_commands import SlurmCommands
from sgpu_decl.backends.slurm.slurm_verdict import ACTIVE, RUNNING, WAITING
from sgpu_decl.backends.tracker_request import require_uri
from sgpu_decl.errors import BackendError, OutcomeUnknown
from sgpu_decl.model.jsonable import Json
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.file_place import PlaceMissing, get_object
from sgpu_decl.places.folder import FolderPlace

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches

_SILENT = 30.0  # seconds beyond the grace before Slurm is asked to end a job


class SlurmLauncher(RemoteLauncher):
    """The marker of a launch has the `job` and its `name`.

    sbatch has no tokens: what it is asked twice it does twice. So Slurm is asked for the job by its
    name before and after, and the job that takes the claim in the launch folder is the launch.
    """

    def __init__(
        self,
        context: "BackendContext",
        commands: SlurmCommands,
        launches: "RemoteLaunches",
        attempts: SlurmAttempts,
    ) -> None:
        super().__init__(context, launches, attempts, SlurmNodeProgram())
        self._commands = commands
        self._slurm_attempts = attempts
        self._project = context.project

    def check(self, request: LaunchRequest) -> None:
        super().check(request)
        planned_placement(request)
        self._values(request)
        require_uri(request.config, os.environ)

    def start(self, request: LaunchRequest, folder: str) -> Mapping[str, Json]:
        record, files = request.record, self._launches.area(request.record).files
        before = self._earlier(record, folder)
        if before is not None:
            return before
        files.make_folder(f"{folder}/{LOGS}")
        values = self._values(request)
        if values:
            private = FolderPlace(Path(folder), mode=0o600)
            private.put(f"{folder}/{VALUES}", json.dumps(values).encode())
        try:
            said = self._commands.ask(*submission(request, folder, files.get(f"{folder}/{JOB}")))
        except BackendError as error:
            return self._after_failure(record, folder, error)
        job = said.strip().partition(";")[0]  # the name of a cluster may follow
        return {"job": job, "name": job_name(record)}

    def cancel(self, record: LaunchRecord) -> None:
        """Ask its jobs to stop: the file is for one that begins just now. `--batch` is for the
        first node alone, which asks the others: https://slurm.schedmd.com/scancel.html"""
        if not self.staged(record):
            return
        files, folder = self._launches.area(record).files, self._launches.folder(record)
        files.make_folder(f"{folder}/{LOGS}")
        files.put(f"{folder}/{CANCEL}", b"")
        for how, states in (("--state=PENDING", WAITING), ("--batch --signal=TERM", RUNNING)):
            for job in self._active(record, states):
                try:
                    self._commands.ask("scancel", *how.split(), job.id)
                except BackendError as error:
                    if error.retryable or self._active(record, states):
                        raise  # else it has just ended

    def forced_stop(self, record: LaunchRecord, patience: float | None) -> ForcedStop | None:
        grace = self._launches.config(record).grace.seconds

        def stop() -> str | None:
            jobs = self._active(record, WAITING | ACTIVE)
            for job in jobs:
                self._commands.ask("scancel", job.id)
            return "it did not stop by itself: Slurm was asked to end its job" if jobs else None

        return DelayedStop(grace + (_SILENT if patience is None else patience), stop)

    def _active(self, record: LaunchRecord, states: frozenset[str]) -> list[SlurmJob]:
        """Its jobs in one of these states."""
        marker = self._launches.marker(record) or {}
        jobs = self._slurm_attempts.jobs(record, marker, fresh=True)
        return [job for job in jobs if job.state in states]

    def _earlier(self, record: LaunchRecord, folder: str) -> dict[str, Json] | None:
        """What an earlier `start` of the launch became, if there was one. Raises BackendError."""
        name = job_name(record)
        try:
            claim = get_object(self._launches.area(record).files, f"{folder}/{CLAIM}")
            return {"job": claim["job"], "name": name}
        except PlaceMissing:
            jobs = self._commands.jobs(name, fresh=True)
        return {"job": jobs[0].id, "name": name} if jobs else None

    def _after_failure(
        self, record: LaunchRecord, folder: str, error: BackendError
    ) -> dict[str, Json]:
        """The job that sbatch may have submitted all the same: its answer may have been lost.
        Raises the error if there is none."""
        silent = error.retryable
        try:
            found = self._earlier(record, folder)
        except BackendError:
            found, silent = None, True
        if found is not None:
            return found
        if not silent:
            raise error
        raise OutcomeUnknown(
            f"whether `{record.ref}` was submitted is not known: {error.message}",
            hint="apply again: it starts once, whatever became of this",
        ) from error

    def _values(self, request: LaunchRequest) -> dict[str, str]:
        folder = request.folder(self._project)
        secrets = resolve_secrets(request.config.secrets, os.environ, folder)
        return {**tracking_credentials(request.config, os.environ), **secrets}

"""Launches on Slurm: staged in a launch folder, and submitted as one job."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.base import ForcedStop, errors_of
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.node_tracker import tracking_credentials
from sgpu_decl.backends.remote.launching.delayed_stop import DelayedStop
from sgpu_decl.backends.remote.launching.remote_launcher import RemoteLauncher
from sgpu_decl.backends.secret_resolution import resolve_secrets
from sgpu_decl.backends.slurm.cluster_state import SlurmJob
from sgpu_decl.backends.slurm.job.launch_files import ARRAY, CANCEL, CLAIM, LAUNCH, LOGS, VALUES
from sgpu_decl.backends.slurm.slurm_answers import SlurmClusterAnswers
from sgpu_decl.backends.slurm.slurm_attempts import SlurmAttempts
from sgpu_decl.backends.slurm.slurm_node_program import SlurmNodeProgram
from sgpu_decl.backends.slurm.slurm_placement import options_of, planned_placement
from sgpu_decl.backends.slurm.slurm_verdict import ACTIVE, RUNNING, WAITING
from sgpu_decl.backends.slurm.submission import (
    array_key,
    array_name,
    array_submission,
    job_name,
    submission,
    task_of,
)
from sgpu_decl.backends.tracker_request import require_uri
from sgpu_decl.errors import BackendError, OutcomeUnknown, SgpuError
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Json, canonical
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.file_place import PlaceMissing, get_object

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.slurm.login_nodes import SlurmLaunches
    from sgpu_decl.backends.slurm.slurm_commands import SlurmCommands

_STAGED = 8  # launches of an array that are staged at once
# What is asked of jobs that wait, and of those that run. `--batch` is for the first node alone,
# which asks the others: https://slurm.schedmd.com/scancel.html
_STOPS = ((("--state=PENDING",), WAITING), (("--batch", "--signal=TERM"), RUNNING))
_SILENT = 30.0  # seconds beyond the grace before Slurm is asked to end a job


class SlurmLauncher(RemoteLauncher):
    """The marker of a launch has the `job` and its `name`.

    sbatch has no tokens: what it is asked twice it does twice. So Slurm is asked for the job by its
    name before and after, and the job that takes the claim in the launch folder is the launch.
    Launches that ask for the same are tasks of one array. Where that is not found after a crash,
    each is submitted alone, and the claim ends whichever of both comes later.
    """

    _launches: "SlurmLaunches"

    def __init__(
        self,
        context: "BackendContext",
        launches: "SlurmLaunches",
        attempts: SlurmAttempts,
        answers: SlurmClusterAnswers,
    ) -> None:
        super().__init__(context, launches, attempts, SlurmNodeProgram(launches))
        self._slurm_attempts = attempts
        self._answers = answers.of
        self._cells = Counter[str]()  # by what cells have in common
        self._project = context.project
        self._tasks: dict[str, dict[str, Json]] = {}  # what arrays became, by the token of a launch

    def check(self, request: LaunchRequest) -> None:
        super().check(request)
        planned_placement(request)
        for older in request.waits_for:
            self._require_same_cluster(request, older)
        self.require_upstreams(request, "with another `storage` or `login`")
        self._values(request)
        require_uri(request.config, os.environ)
        self._launches.launch_from(request.record)

    def array_of(self, request: LaunchRequest) -> str | None:
        """Cells of one matrix that ask for the same, as many as an array may have tasks:
        https://slurm.schedmd.com/slurm.conf.html#OPT_MaxArraySize. What replaces another attempt is
        alone."""
        is_cell = bool(request.ref.address.key) and request.call is None
        if not is_cell or request.record.wait_for:
            return None
        key, size = array_key(request), self._answers(options_of(request.config)).array_size
        self._cells[key] += 1
        return f"{key} {(self._cells[key] - 1) // size}"

    def stage_joined(self, requests: Sequence[LaunchRequest]) -> None:
        if len(requests) == 1:
            self.stage(requests[0])
            return
        name = array_name(requests)

        def stage(at: int) -> None:
            record = requests[at].record
            self.stage(requests[at])
            files, folder = self._launches.area(record).files, self._launches.folder(record)
            files.make_folder(f"{folder}/{LOGS}")
            files.put(f"{folder}/{ARRAY}", canonical({"name": name, "task": at}).encode())

        try:
            with ThreadPoolExecutor(_STAGED) as pool:
                list(pool.map(stage, range(len(requests))))
        except SgpuError:
            for request in requests:
                self.unstage(request)
            raise

    def launch_joined(self, requests: Sequence[LaunchRequest]) -> Sequence[str | None]:
        if len(requests) > 1:
            try:
                job = self._submitted_array(requests)
            except OutcomeUnknown:
                raise
            except BackendError:
                for request in requests:
                    self.unstage(request)
                raise
            name = array_name(requests)
            for at, request in enumerate(requests):
                self._tasks[request.record.token] = {"job": f"{job}_{at}", "name": name}
        return [self.launch(request) for request in requests]

    def _submitted_array(self, requests: Sequence[LaunchRequest]) -> str:
        """The job id of the array of launches that this process has staged. See `start`."""
        name, folders = (
            array_name(requests),
            [self._launches.folder(one.record) for one in requests],
        )
        for request, folder in zip(requests, folders, strict=True):
            self._leave_values(request, folder)
        first = requests[0].record
        files, commands = self._launches.area(first).files, self._commands(first)
        upstreams = get_object(files, f"{folders[0]}/{LAUNCH}")["upstreams"]
        longest = self._longest(requests[0])
        try:
            behind = self._awaited_jobs(first, upstreams)
            said = commands.ask(*array_submission(requests, folders, behind, longest))
        except BackendError as error:
            silent = error.retryable
            try:
                found = commands.jobs_named([name])
            except BackendError:
                found, silent = (), True
            if found:
                return found[0].id.partition("_")[0]
            if not silent:
                raise
            raise _unknown(f"the array of `{requests[0].ref.address.name}`", error) from error
        return said.strip().partition(";")[0]

    def start(self, request: LaunchRequest, folder: str) -> Mapping[str, Json]:
        record, files = request.record, self._launches.area(request.record).files
        task = self._tasks.pop(record.token, None)
        if task is not None:
            return task
        before = self._earlier(record, folder)
        if before is not None:
            return before
        files.make_folder(f"{folder}/{LOGS}")
        self._leave_values(request, folder)
        try:
            told = get_object(files, f"{folder}/{LAUNCH}")
            behind = self._awaited_jobs(record, told["upstreams"])
            longest = self._longest(request)
            words = submission(request, folder, told, behind, longest)
            said = self._commands(record).ask(*words)
        except BackendError as error:
            return self._after_failure(record, folder, error)
        job = said.strip().partition(";")[0]  # the name of a cluster may follow
        return {"job": job, "name": job_name(record)}

    def cancel(self, record: LaunchRecord) -> None:
        for error in self.cancel_all([record]).values():
            raise error

    def cancel_all(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, SgpuError]:
        """Ask their jobs to stop: the file is for one that begins just now."""
        staged: dict[SlurmCommands, dict[AttemptRef, Mapping[str, str]]] = {}

        def leave_word(record: LaunchRecord) -> None:
            if self.staged(record):
                files, folder = self._launches.area(record).files, self._launches.folder(record)
                files.make_folder(f"{folder}/{LOGS}")
                files.put(f"{folder}/{CANCEL}", b"")
                staged.setdefault(self._commands(record), {})[record.ref] = self._job_names(record)

        errors = errors_of(leave_word, records)
        for commands, asked in staged.items():
            for options, states in _STOPS:
                errors |= _stop(commands, asked, options, states)
        return errors

    def forced_stop(self, record: LaunchRecord, patience: float | None) -> ForcedStop | None:
        grace = self._launches.config(record).grace.seconds

        def stop() -> str | None:
            commands, names = self._commands(record), {record.ref: self._job_names(record)}
            jobs = _active(commands, names, WAITING | ACTIVE)
            commands.stop([job for _, job in jobs])
            return "it did not stop by itself: Slurm was asked to end its job" if jobs else None

        return DelayedStop(grace + (_SILENT if patience is None else patience), stop)

    def _commands(self, record: LaunchRecord) -> "SlurmCommands":
        return self._launches.node(record).commands

    def _job_names(self, record: LaunchRecord) -> Mapping[str, str]:
        return self._slurm_attempts.job_names(record, self._launches.marker(record) or {})

    def _longest(self, request: LaunchRequest) -> int | None:
        """The seconds of a link of a chain at most."""
        options = options_of(request.config)
        most = self._answers(options).longest(options) if options.chain > 1 else None
        return most[0] if most is not None else None

    def _awaited_jobs(
        self, record: LaunchRecord, upstreams: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        """The jobs that go on of attempts that a launch waits for. (The job of the launch looks
        once more how they ended.) Raises BackendError."""
        awaited = [one for one in upstreams if one["waits"]]
        if not awaited:
            return []
        jobs = self._commands(record).jobs_named(sorted({one["job"] for one in awaited}))
        wanted = {(one["job"], one["task"]) for one in awaited}
        return [
            job.id
            for job in jobs
            if job.state in WAITING | ACTIVE and (job.name, task_of(job.id)) in wanted
        ]

    def _earlier(self, record: LaunchRecord, folder: str) -> dict[str, Json] | None:
        """What an earlier `start` of the launch became, if there was one. Raises BackendError."""
        name = job_name(record)
        try:
            claim = get_object(self._launches.area(record).files, f"{folder}/{CLAIM}")
            return {"job": claim["job"], "name": claim.get("name") or name}
        except PlaceMissing:
            jobs = self._commands(record).jobs_named([name])
        return {"job": jobs[0].id, "name": jobs[0].name} if jobs else None

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
        raise _unknown(f"`{record.ref}`", error) from error

    def _leave_values(self, request: LaunchRequest, folder: str) -> None:
        values = self._values(request)
        if values:
            private = self._launches.node(request.record).private(folder)
            private.put(f"{folder}/{VALUES}", json.dumps(values).encode())

    def _require_same_cluster(self, request: LaunchRequest, older: LaunchRecord) -> None:
        """Raises BackendError: a job of the cluster cannot wait for that attempt."""
        where = f"the backend `{older.backend}`"
        if older.backend == request.record.backend:
            login = options_of(self._launches.config(older)).login
            if login == options_of(request.config).login:
                return
            where = f"the cluster of `{login or 'this machine'}`"
        raise BackendError(
            f"`{older.ref}` goes on on {where}, which a job of Slurm cannot wait for: so "
            f"`{request.ref}` was not launched",
            hint=f"`sgpu cancel '{older.ref}'` or `sgpu wait '{older.ref}'`, and apply then",
            code="launch_failed",
        )

    def _values(self, request: LaunchRequest) -> dict[str, str]:
        folder = request.folder(self._project)
        secrets = resolve_secrets(request.config.secrets, os.environ, folder)
        return {**tracking_credentials(request.config, os.environ), **secrets}


_JobNames = Mapping[AttemptRef, Mapping[str, str]]
"""What `SlurmAttempts.job_names` says of some attempts."""


def _stop(
    commands: "SlurmCommands", asked: _JobNames, options: Sequence[str], states: frozenset[str]
) -> dict[AttemptRef, SgpuError]:
    """Have Slurm stop the jobs that are in one of these states; returns why it does not."""
    try:
        jobs = [job for _, job in _active(commands, asked, states)]
        if states is WAITING:
            # With `--state`, scancel 22.05 cancels all tasks of an array that wait.
            commands.stop([job for job in jobs if job.task])
            jobs = [job for job in jobs if not job.task]
        commands.stop(jobs, *options)
    except BackendError as error:
        if error.retryable:
            return dict.fromkeys(asked, error)
        left = {ref for ref, _ in _active(commands, asked, states)}
        if len(asked) == 1:
            return dict.fromkeys(left, error)  # else it has just ended
        each = [_stop(commands, {ref: asked[ref]}, options, states) for ref in sorted(left)]
        return {ref: error for found in each for ref, error in found.items()}
    return {}


def _active(
    commands: "SlurmCommands", asked: _JobNames, states: frozenset[str]
) -> list[tuple[AttemptRef, SlurmJob]]:
    """The jobs of attempts that are in one of these states now."""
    known: dict[tuple[str, str], list[SlurmJob]] = {}
    for job in commands.jobs_named(sorted({name for names in asked.values() for name in names})):
        if job.state in states:
            known.setdefault((job.name, job.task), []).append(job)
    return [
        (ref, job)
        for ref, names in asked.items()
        for named in names.items()
        for job in known.get(named, ())
    ]


def _unknown(what: str, error: BackendError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"whether {what} was submitted is not known: {error.message}",
        hint="apply again: it starts once, whatever became of this",
    )

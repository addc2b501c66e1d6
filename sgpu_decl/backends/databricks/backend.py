"""The Databricks backend: launch folders in a workspace, and its Jobs API."""

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Launching, LogLine, Output, Survey
from sgpu_decl.backends.configured import config_of
from sgpu_decl.backends.databricks.bringing import Bringing
from sgpu_decl.backends.databricks.checking import DatabricksSurvey
from sgpu_decl.backends.databricks.following import OFTEN
from sgpu_decl.backends.databricks.handle import Handle
from sgpu_decl.backends.databricks.launches import Launches
from sgpu_decl.backends.databricks.offers import policy_of
from sgpu_decl.backends.databricks.reading import Described, describe, status_of
from sgpu_decl.backends.databricks.returned import Returned
from sgpu_decl.backends.databricks.unfreed import Unfreed
from sgpu_decl.backends.databricks.workspace import Workspaces
from sgpu_decl.backends.layout import Layout
from sgpu_decl.backends.pinned import require_code
from sgpu_decl.environments.progress import Progress
from sgpu_decl.errors import BackendError, OutcomeUnknown, SgpuError
from sgpu_decl.model.address import Address, Kind
from sgpu_decl.model.attempt import AttemptRef, AttemptState, AttemptStatus
from sgpu_decl.model.jsonable import Json

if TYPE_CHECKING:
    from sgpu_decl.backends.databricks.jobs.folders import JobFolders
    from sgpu_decl.backends.keeping import JobKeeper
    from sgpu_decl.backends.registry import Surroundings
    from sgpu_decl.config.backend import Backend as BackendBlock

__all__ = ["DatabricksBackend"]

_LOOKS = 8  # attempts that are asked about at once
ENDING = 600.0  # seconds that a replaced attempt may take to stop


class DatabricksBackend:
    """See `backends.base.Backend`. The SDK is imported when the first workspace is needed."""

    def __init__(self, surroundings: "Surroundings") -> None:
        self._layout = Layout(surroundings.state_dir)
        self._store = surroundings.store
        self._workspaces = Workspaces()
        self._bringing = Bringing(surroundings, self._workspaces)
        self._unfreed = Unfreed(surroundings.state_dir, self._workspaces)
        self._launches = Launches(self._layout, self._workspaces, surroundings.recorded)

    @property
    def survey(self) -> Survey:
        return DatabricksSurvey(self._workspaces)

    def keeper(self, block: "BackendBlock") -> "JobKeeper":
        """The jobs of the workspace that a `backend` block means."""
        from sgpu_decl.backends.databricks.jobs.keeper import WorkspaceJobs

        return WorkspaceJobs(self._workspaces.of(block), self._folders(block))

    def check(self, launching: Launching) -> None:
        config = config_of(launching.ref, launching.spec)
        workspace = self._workspaces.of(config.backend)
        workspace.connection.start()
        require_code(self._store, launching)
        workspace.connection.user  # noqa: B018  that there is a connection, before any effect

    def equip(self, launchings: Sequence[Launching], progress: Progress) -> None:
        self._bringing.share([it for it in launchings if not self._whole(it)], progress)

    def examine(self, environment: str) -> tuple[str, ...]:  # noqa: ARG002  the protocol's
        return ()  # each node had a tree of its own

    def stage(self, launching: Launching) -> None:
        from sgpu_decl.backends.databricks.freeing import unstage_launch
        from sgpu_decl.backends.databricks.submitting import Staged, payload

        if self._whole(launching):
            return
        config = config_of(launching.ref, launching.spec)
        workspace = self._workspaces.of(config.backend)
        known = self._launches.here(launching.ref)
        handle = self._launches.begin(launching, config)
        try:
            policy = policy_of(workspace.connection, config.budget) if config.budget else None
            uses = self._bringing.fill(launching)
        except SgpuError:
            # Nothing was ever submitted from there, and what is half staged would keep gc away.
            if known is None or known.token != launching.token:
                with suppress(BackendError):
                    unstage_launch(workspace, handle.folder)
            raise
        body = payload(
            launching,
            config,
            Staged(
                folder=handle.folder,
                code=workspace.places.code(uses.code) if uses.code is not None else None,
                policy=policy,
                dependencies=tuple(config.env.dependencies or ()),
            ),
        )
        whole = replace(handle, staged=True, body=body, uses=asdict(uses))
        self._launches.keep(launching.ref, whole)

    def in_line(self, launching: Launching) -> bool:  # noqa: ARG002  the protocol's
        return False  # the platform has the line, and its own order

    def launch(self, launching: Launching) -> None:
        try:
            self._submit(launching)
        finally:
            self._bringing.over(launching.ref)

    def _submit(self, launching: Launching) -> None:
        from sgpu_decl.backends.databricks.complaints import UNSURE

        handle = self._launches.here(launching.ref)
        if handle is None or handle.token != launching.token:
            raise BackendError(f"`{launching.ref}` is not staged", code="launch_failed")
        if handle.run_id is not None:
            return
        self._end([AttemptRef(launching.ref.address, number) for number in launching.wait_for])
        try:
            answer = self._launches.workspace(handle).connection.tell(
                f"submitting `{launching.ref}`", "/api/2.2/jobs/runs/submit", handle.body
            )
        except BackendError as error:
            if error.code in UNSURE:
                raise OutcomeUnknown(
                    f"{error.message}; whether it was started is not known",
                    hint="apply again: it is found, or else started, and never twice",
                ) from error
            # What is wrong with it may be corrected by what the token does not cover.
            self._launches.keep(launching.ref, replace(handle, staged=False))
            raise
        self._launches.submitted(launching.ref, handle, int(str(answer["run_id"])))

    def staged(self, ref: AttemptRef, token: str) -> bool:
        handle = self._launches.of(ref)
        return handle is not None and handle.token == token and handle.staged

    def read(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, AttemptStatus]:
        return {ref: status_of(ref, it) for ref, it in self._all_described(refs).items()}

    def describe(self, refs: Sequence[AttemptRef]) -> Mapping[AttemptRef, dict[str, Json]]:
        own = ("class", "restart", "brought")
        return {
            ref: {name: value for name, value in it.items() if name not in own}
            for ref, it in self._all_described(refs).items()
        }

    def cancel(self, ref: AttemptRef) -> None:
        handle = self._launches.of(ref)
        if handle is None or handle.run_id is None or handle.ended:
            return
        from sgpu_decl.backends.databricks.complaints import Rejected, Unknown

        doing, run = f"cancelling `{ref}`", handle.run_id
        connection = self._launches.workspace(handle).connection
        try:
            connection.tell(doing, "/api/2.2/jobs/runs/cancel", {"run_id": run})
        except Unknown:
            return  # somebody deleted it
        except Rejected:
            # What is refused for a run that is gone is no refusal.
            try:
                connection.ask(doing, "/api/2.2/jobs/runs/get", run_id=run)
            except Unknown:
                return
            raise

    def results(self, ref: AttemptRef) -> list[dict[str, Json]]:
        found = self._brought(ref)
        if found is None:
            return []
        handle, described = found
        return self._returned(ref, handle).values(int(str(described["brought"])), _ranks(described))

    def output(self, ref: AttemptRef, progress: Progress) -> Output:
        if self._active(ref):
            raise BackendError(
                f"`{ref}` has not ended, and its nodes bring back what ranks left when it has",
                hint=f"`sgpu wait '{ref}'` waits for that",
                code="nothing_yet",
            )
        found = self._brought(ref)
        if found is None:
            raise BackendError(
                f"nothing of `{ref}` was brought back from its nodes",
                hint=f"`sgpu show '{ref}'` says how it ended",
                code="nothing_yet",
            )
        handle, described = found
        nodes = sorted({node for _, node in _ranks(described)})
        return self._returned(ref, handle).output(int(str(described["brought"])), nodes, progress)

    def failure(self, ref: AttemptRef, rank: int) -> bytes | None:
        found = self._brought(ref)
        if found is None:
            return None
        handle, described = found
        node = dict(_ranks(described)).get(rank)
        if node is None:
            return None
        attempt, restart = int(str(described["brought"])), int(str(described["restart"]))
        return self._returned(ref, handle).error(attempt, rank, node, restart)

    def logs(
        self,
        ref: AttemptRef,
        *,
        ranks: Sequence[int] | None,
        follow: bool,
        restart: int | None = None,
    ) -> Iterator[LogLine | None]:
        from sgpu_decl.backends.databricks.logs import read_lines

        if restart is not None:
            raise BackendError(
                "what ranks write on Databricks does not say which restart it is of",
                hint="leave `--restart` out",
                code="no_restarts",
            )
        handle = self._launches.of(ref)
        if handle is None or handle.run_id is None:
            return iter(())
        run_id, watched = handle.run_id, self._launches.workspace(handle).watched
        return read_lines(
            ref,
            self._launches.workspace(handle).connection,
            lambda: watched.run(run_id),
            ranks=ranks,
            follow=follow,
            output=watched.output,
        )

    def unhidden(self, ref: AttemptRef) -> tuple[str, ...]:  # noqa: ARG002  the protocol's
        return ()  # the agent hides them before they leave the node

    def unstage(self, ref: AttemptRef) -> None:
        from sgpu_decl.backends.databricks.freeing import unstage_launch

        handle = self._launches.of(ref)
        if handle is None or self._active(ref):
            return
        workspace = self._launches.workspace(handle)
        self._unfreed.add(workspace)
        unstage_launch(workspace, handle.folder)

    def sweep(self, ref: AttemptRef) -> None:
        """The platform takes its nodes back by itself."""

    def move(self, source: Address, destination: Address) -> None:
        old, new = self._layout.run(source), self._layout.run(destination)
        if old.is_dir():
            old.rename(new)

    def size(self, ref: AttemptRef) -> int:
        total = 0
        for root, _, files in os.walk(self._launches.folder(ref)):
            total += sum(os.lstat(os.path.join(root, name)).st_size for name in files)
        return total

    def free(self, ref: AttemptRef) -> int:
        from sgpu_decl.backends.databricks.freeing import free_launch

        if self._active(ref):
            return 0
        size = self.size(ref)
        handle = self._launches.of(ref)
        if handle is not None:
            workspace = self._launches.workspace(handle)
            self._unfreed.add(workspace)
            free_launch(workspace, handle.folder)
        shutil.rmtree(self._launches.folder(ref), ignore_errors=True)
        self._launches.forget(ref)
        return size

    def tidy(self) -> int:
        from sgpu_decl.backends.databricks.freeing import collect

        total = 0
        for workspace in self._unfreed.all():
            freed = collect(workspace)
            if freed is not None:
                self._unfreed.settle(workspace)
                total += freed
        return total

    def _folders(self, block: "BackendBlock") -> "JobFolders":
        from sgpu_decl.backends.databricks.jobs.folders import JobFolders

        return JobFolders(self._workspaces.of(block), self._bringing, self._unfreed.add)

    def _whole(self, launching: Launching) -> bool:
        """Whether a launch of a job is staged, or this machine has staged one of a run. Whether
        another has is asked of the workspace where a crash left an intent: `staged`."""
        if launching.ref.address.kind is Kind.JOB:
            block = config_of(launching.ref, launching.spec).backend
            return self._folders(block).staged(launching)
        handle = self._launches.here(launching.ref)
        return handle is not None and handle.token == launching.token and handle.staged

    def _end(self, refs: Sequence[AttemptRef]) -> None:
        """Stop earlier attempts of a run and wait until they are over: the platform would start the
        new ranks beside them."""
        for ref in refs:
            self.cancel(ref)
        deadline = time.monotonic() + ENDING
        pending = list(refs)
        while pending := [ref for ref in pending if self._active(ref)]:
            if time.monotonic() > deadline:
                raise BackendError(
                    f"`{pending[0]}` was asked to stop, and goes on",
                    hint="look at it in the workspace, and apply again when it has ended",
                    code="launch_failed",
                )
            time.sleep(OFTEN / 2)

    def _all_described(self, refs: Sequence[AttemptRef]) -> dict[AttemptRef, Described]:
        """Those that are known. Each may take requests, so several are asked about at once."""
        with ThreadPoolExecutor(_LOOKS, thread_name_prefix="look") as pool:
            found = zip(refs, pool.map(self._described, refs), strict=True)
            return {ref: described for ref, described in found if described is not None}

    def _described(self, ref: AttemptRef) -> Described | None:
        handle = self._launches.of(ref)
        if handle is None:
            return None
        if handle.ended:
            return handle.ended
        if handle.run_id is None:
            return _staging(ref)
        described, final = describe(
            ref, handle, self._launches.workspace(handle), self._launches.folder(ref)
        )
        if final:
            self._launches.keep(ref, replace(handle, ended=described))
        return described

    def _active(self, ref: AttemptRef) -> bool:
        described = self._described(ref)
        return described is not None and AttemptState(str(described["state"])).active

    def _brought(self, ref: AttemptRef) -> tuple[Handle, Described] | None:
        """An attempt of which something was brought back."""
        handle, described = self._launches.of(ref), self._described(ref)
        if handle is None or described is None or described.get("brought") is None:
            return None
        return handle, described

    def _returned(self, ref: AttemptRef, handle: Handle) -> Returned:
        workspace = self._launches.workspace(handle)
        return Returned(workspace.files, handle.folder, self._launches.folder(ref))


def _ranks(described: Described) -> list[tuple[int, int]]:
    ranks = described.get("ranks")
    found = ranks if isinstance(ranks, list) else []
    return [(int(it["rank"]), int(it["node_rank"] or 0)) for it in found]


def _staging(ref: AttemptRef) -> Described:
    return {
        "attempt": ref.number,
        "state": str(AttemptState.STAGING),
        "backend": "databricks",
        "started_at": None,
        "ended_at": None,
        "exit_code": None,
        "ranks": [],
        "first_cause": None,
        "links": {},
        "class": None,
    }

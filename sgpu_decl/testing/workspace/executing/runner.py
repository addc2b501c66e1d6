"""All runs of a workspace that have not ended: started, cancelled, and taken up after a crash."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from sgpu_decl.testing.workspace.executing.capacity import GpuCapacity
from sgpu_decl.testing.workspace.executing.doom import Doom
from sgpu_decl.testing.workspace.executing.endings import AttemptEnding
from sgpu_decl.testing.workspace.executing.execution import Execution
from sgpu_decl.testing.workspace.executing.node import can_have_root
from sgpu_decl.testing.workspace.executing.records import Run, RunRecords
from sgpu_decl.testing.workspace.executing.settings import ExecutionSettings
from sgpu_decl.testing.workspace.executing.stop_signal import Why
from sgpu_decl.testing.workspace.executing.task_attempt import AttemptSite
from sgpu_decl.testing.workspace.mlflow_names import Tracking
from sgpu_decl.testing.workspace.task_rules import Terms
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["Runner"]

_RESTARTED = "The workspace was restarted while this run was active."


class Runner:
    """Executes runs, each in a thread of its own. `scratch` is a folder for trials."""

    def __init__(
        self,
        settings: ExecutionSettings,
        tracking: Tracking,
        *,
        scratch: Path,
        url: Callable[[], str],
        terms: Callable[[], Terms],
        capacity: GpuCapacity,
    ) -> None:
        self._settings = settings
        self._tracking = tracking
        self._scratch = scratch
        self._url = url
        self._terms = terms
        self._capacity = capacity
        self._live: dict[tuple[str, int], tuple[Execution, threading.Thread]] = {}
        self._dooms: dict[str, deque[Doom]] = {}
        self._changed = threading.Condition()
        self._closed = False

    @cached_property
    def rooted(self) -> bool:
        """Whether nodes get a root folder of their own."""
        asked = self._settings.rooted
        return can_have_root(self._scratch / "probe") if asked is None else asked

    def launch(self, tenant: Tenant, run: Run, credential: str) -> None:
        """Start a run that was written down; `credential` is the token that its nodes use."""
        with self._changed:
            dooms = tuple(self._dooms.pop(tenant.key, ()))
            terms = self._terms()
            site = AttemptSite(
                settings=self._settings, capacity=self._capacity, tracking=self._tracking,
                profile=terms.profile, pools=terms.offers.idle, rooted=lambda: self.rooted,
                url=self._url(),
            )  # fmt: skip
            execution = Execution(site, tenant, run, credential=credential, dooms=dooms)
            if self._closed:
                return
            thread = threading.Thread(
                target=self._drive, args=(tenant, run.run_id, execution),
                name=f"workspace-run-{run.run_id}",
            )  # fmt: skip
            self._live[tenant.key, run.run_id] = (execution, thread)
            thread.start()
        if RunRecords(tenant).need(run.run_id).cancelled:  # between being written down and now
            execution.stopping.ask(Why.CANCELLED)

    def doom(self, tenant: Tenant, doom: Doom) -> None:
        """Let something befall the tenant's next run."""
        with self._changed:
            self._dooms.setdefault(tenant.key, deque()).append(doom)

    def lose_node(self, tenant: Tenant, run_id: int, node: int) -> bool:
        """Let a node of a running attempt vanish; whether there is one."""
        with self._changed:
            live = self._live.get((tenant.key, run_id))
        return live is not None and live[0].lose_node(node)

    def cancel(self, tenant: Tenant, run_id: int) -> None:
        """Ask a run to stop; one that has ended stays as it is."""
        RunRecords(tenant).update(
            run_id, lambda run: replace(run, cancelled=True) if run.active else run
        )
        with self._changed:
            live = self._live.get((tenant.key, run_id))
        if live is not None:
            live[0].stopping.ask(Why.CANCELLED)

    def cancel_task(self, tenant: Tenant, run_id: int, task_key: str) -> None:
        """Ask one task of a run to stop; one that has ended stays as it is."""
        with self._changed:
            live = self._live.get((tenant.key, run_id))
        if live is not None and RunRecords(tenant).need(run_id).latest(task_key).ending is None:
            live[0].cancel_task(task_key)

    def wait(self, tenant: Tenant, run_ids: Sequence[int]) -> None:
        """Return once none of these runs is active."""
        keys = {(tenant.key, run_id) for run_id in run_ids}
        with self._changed:
            self._changed.wait_for(lambda: not keys & self._live.keys())

    def recover(self, tenant: Tenant) -> None:
        """End what a former server of the same folder left active."""
        runs = RunRecords(tenant)
        for run in runs.all():
            if run.active:
                runs.update(run.run_id, _lost)

    def close(self) -> None:
        """Kill everything that runs; the records keep saying that it does, for `recover`."""
        with self._changed:
            self._closed = True
            live = list(self._live.values())
        for execution, _ in live:
            execution.stopping.ask(Why.SERVER_ENDS)
        for _, thread in live:
            thread.join()

    def _drive(self, tenant: Tenant, run_id: int, execution: Execution) -> None:
        try:
            execution.run()
        except BaseException:
            RunRecords(tenant).update(run_id, _crashed)
            raise
        finally:
            with self._changed:
                del self._live[tenant.key, run_id]
                self._changed.notify_all()


def _lost(run: Run) -> Run:
    return _broken(run, _RESTARTED)


def _crashed(run: Run) -> Run:
    return _broken(run, "The emulator failed to execute this run; see its own output.")


def _broken(run: Run, message: str) -> Run:
    return run.broken_off(AttemptEnding.PLATFORM, "INTERNAL_ERROR", message)

"""The dashboards of clusters: one connection to each, for all that a command asks, and what each
said last. A command asks once about all attempts."""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sgpu_decl.backends.ray.api.cluster_tables import find_job, head_among, list_jobs, list_nodes
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import (
    VARIABLES,
    DashboardAddress,
    address_of,
)
from sgpu_decl.backends.ray.api.dashboard_connection import TimeBudget, budgeted
from sgpu_decl.backends.ray.api.dashboard_credentials import Credentials, credentials_of
from sgpu_decl.backends.ray.planning.group_shape import options_of
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts, not_named
from sgpu_decl.errors import BackendError

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_SELDOM = 5.0  # seconds between two looks at the nodes, or for which a list of jobs is used


class ClusterAnswers:
    """The answers of one dashboard. Calls may come from several threads; each raises BackendError
    if the dashboard does not answer."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._jobs_at = self._nodes_at = float("-inf")
        self._jobs: tuple[Mapping[str, Any], ...] = ()
        self._unused: dict[str, Mapping[str, Any]] = {}  # jobs that nobody looked at, by token
        self._nodes: frozenset[str] = frozenset()
        self._head: str | None = None
        self._lock = threading.Lock()

    def jobs(self) -> Sequence[Mapping[str, Any]]:
        """All jobs, as they were a moment ago."""
        with self._lock:
            if time.monotonic() - self._jobs_at > _SELDOM:
                self._list_jobs()
            return self._jobs

    def job(self, token: str, *, several: bool) -> Mapping[str, Any] | None:
        """The job of a launch; None if the cluster has none. Who asks again gets a new answer.

        Args:
            several: others are asked about, too: one request for all jobs is enough.
        """
        with self._lock:
            known = token in self._unused and time.monotonic() - self._jobs_at < _SELDOM
            if several and not known:
                self._list_jobs()
            job = self._unused.pop(token, None) if several or known else None
        # It may have been submitted since the list was made.
        return job if job is not None else find_job(self._dashboard, token)

    def lives(self, job: Mapping[str, Any]) -> bool:
        """Whether the node of a job's driver lives, as far as Ray knows where that is."""
        node = job.get("driver_node_id")
        if not node:
            return True
        with self._lock:
            if time.monotonic() - self._nodes_at > _SELDOM:
                self._read_nodes()
            return node in self._nodes

    def head(self) -> str | None:
        """The id of the head, as it was a moment ago; None if none was alive."""
        with self._lock:
            if time.monotonic() - self._nodes_at > _SELDOM:
                self._read_nodes()
            return self._head

    def note_nodes(self, nodes: Collection[str], head: str | None) -> None:
        """The nodes that are alive, and the head among them, as somebody else was told."""
        with self._lock:
            self._note(nodes, head)

    def _read_nodes(self) -> None:
        rows = list_nodes(self._dashboard)
        self._note([row["node_id"] for row in rows], head_among(self._dashboard, rows))

    def _note(self, nodes: Collection[str], head: str | None) -> None:
        self._nodes, self._nodes_at = frozenset(nodes), time.monotonic()
        self._head = head

    def _list_jobs(self) -> None:
        jobs = list_jobs(self._dashboard)
        self._jobs, self._jobs_at = tuple(jobs.values()), time.monotonic()
        self._unused = jobs


class Clusters:
    """The dashboards that plans and attempts of one project and target use."""

    budget = 10.0
    """The seconds that the answers of one dashboard to a command may take together."""

    def __init__(self) -> None:
        self._dashboards: dict[str, Dashboard] = {}
        self._answers: dict[str, ClusterAnswers] = {}
        self._budgets: list[TimeBudget] = []
        self._questions: set[str] = set()
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._named: set[str] = set()
        self._names_in_files: Callable[[str], Iterable[str | None] | None] = lambda _: None
        self._launch_hosts: LaunchHosts | None = None

    def guard(
        self,
        addresses: "Callable[[str], Iterable[str | None] | None]",
        launch_hosts: LaunchHosts,
    ) -> None:
        """Send credentials to an address that a record names only if this user names it too, or
        named it for a launch of this machine.

        Args:
            addresses: what the files of the project have as `backend.address`, by the file that
                declares a run. None where no other machine has the state that records are from.
            launch_hosts: remembers where launches of this machine were sent.
        """
        self._names_in_files = addresses
        self._launch_hosts = launch_hosts

    def launch_at(self, config: "RunConfig") -> Dashboard:
        """The dashboard that a launch is about to be submitted to. Later commands know it."""
        dashboard = self.of(config)
        if self._launch_hosts is not None:
            self._launch_hosts.add(_host_of(dashboard.address.url))
        return dashboard

    def of(self, config: "RunConfig") -> Dashboard:
        """The dashboard that a `backend` block means."""
        return self.dashboard(address_of(options_of(config).address, os.environ))

    def at(self, url: str, owner: str = "") -> Dashboard:
        """The dashboard that a launch was submitted to, by its record. `owner` is the file that
        declares its run.

        Raises:
            BackendError: there are no usable credentials, or they may not be sent there.
        """
        if _has_secrets(self._known_credentials()) and not self._is_named(url, owner):
            raise not_named(
                url,
                record="run",
                hint=f"if that is your cluster, `export RAY_API_SERVER_ADDRESS={url}` lets this "
                "command ask it",
            )
        return self._opened(DashboardAddress(url=url))

    def _is_named(self, url: str, owner: str) -> bool:
        host = _host_of(url)
        if host in self._named:
            return True
        named = {one for name in VARIABLES if (one := os.environ.get(name, "").strip())}
        if any(_host_of(one) == host for one in named):
            return True
        if self._launch_hosts is not None:
            self._named |= self._launch_hosts.all()
            if host in self._named:
                return True
        written_in_files = self._names_in_files(owner)
        if written_in_files is None:
            return True
        for written in written_in_files:
            with suppress(BackendError):
                self._named.add(_host_of(address_of(written, os.environ).url))
        return host in self._named

    def dashboard(self, address: DashboardAddress) -> Dashboard:
        """The dashboard at an address that a file or a variable of the user names. Raises
        BackendError: there are no usable credentials."""
        self._named.add(_host_of(address.url))
        return self._opened(address)

    def _opened(self, address: DashboardAddress) -> Dashboard:
        with self._lock:
            if address.url not in self._dashboards:
                credentials = self._known_credentials()
                self._budgets.append(TimeBudget(self.budget))
                dashboard = Dashboard(address, credentials, self._budgets[-1])
                self._dashboards[address.url] = dashboard
                self._answers[address.url] = ClusterAnswers(dashboard)
            return self._dashboards[address.url]

    def _known_credentials(self) -> Credentials:
        """Those of the user, read once: what was found to be no secret is what is sent."""
        if self._credentials is None:
            self._credentials = credentials_of(os.environ)
        return self._credentials

    def answers(self, dashboard: Dashboard) -> ClusterAnswers:
        """What a cluster said last."""
        return self._answers[dashboard.address.url]

    def asking(self, questions: Iterable[str]) -> AbstractContextManager[None]:
        """Have the requests of a block count in the budget of their dashboard. Whoever asks
        something for the second time, as who follows an attempt does, gets a new budget."""
        asked = frozenset(questions)
        with self._lock:
            if not self._questions.isdisjoint(asked):
                self._questions.clear()
                for budget in self._budgets:
                    budget.renew()
            self._questions |= asked
        return budgeted()

    def close(self) -> None:
        for dashboard in self._dashboards.values():
            dashboard.close()


def _host_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _has_secrets(credentials: Credentials) -> bool:
    return credentials.token is not None or bool(credentials.headers)

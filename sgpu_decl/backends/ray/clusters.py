"""The dashboards of clusters: one connection to each, for all that a command asks."""

import os
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from sgpu_decl.backends.ray.api.allowance import Allowance, counted
from sgpu_decl.backends.ray.api.credentials import credentials_of
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress, address_of
from sgpu_decl.backends.ray.cluster_answers import ClusterAnswers
from sgpu_decl.backends.ray.planning.group_shape import options_of

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["Clusters"]


class Clusters:
    """The dashboards that plans and attempts of one project and target use."""

    allowance = 10.0
    """The seconds that the answers of one dashboard to a command may take together."""

    def __init__(self) -> None:
        self._dashboards: dict[str, Dashboard] = {}
        self._answers: dict[str, ClusterAnswers] = {}
        self._allowances: list[Allowance] = []
        self._questions: set[str] = set()
        self._lock = threading.Lock()

    def of(self, config: "RunConfig") -> Dashboard:
        """The dashboard that a `backend` block means."""
        return self.dashboard(address_of(options_of(config).address, os.environ))

    def at(self, url: str) -> Dashboard:
        """The dashboard that a launch was submitted to."""
        return self.dashboard(DashboardAddress(url=url))

    def dashboard(self, address: DashboardAddress) -> Dashboard:
        """The dashboard at an address. Raises BackendError: there are no usable credentials."""
        with self._lock:
            if address.url not in self._dashboards:
                credentials = credentials_of(os.environ)
                self._allowances.append(Allowance(self.allowance))
                dashboard = Dashboard(address, credentials, self._allowances[-1])
                self._dashboards[address.url] = dashboard
                self._answers[address.url] = ClusterAnswers(dashboard)
            return self._dashboards[address.url]

    def answers(self, dashboard: Dashboard) -> ClusterAnswers:
        """What a cluster said last."""
        return self._answers[dashboard.address.url]

    def asking(self, questions: Iterable[str]) -> AbstractContextManager[None]:
        """Have the requests of a block count in the allowance of their dashboard. Whoever asks
        something for the second time, as who follows an attempt does, gets a new allowance."""
        asked = frozenset(questions)
        with self._lock:
            if not self._questions.isdisjoint(asked):
                self._questions.clear()
                for allowance in self._allowances:
                    allowance.renew()
            self._questions |= asked
        return counted()

    def close(self) -> None:
        for dashboard in self._dashboards.values():
            dashboard.close()

"""The dashboards of clusters: one connection to each, for all that a command asks."""

import os
import threading
from typing import TYPE_CHECKING

from sgpu_decl.backends.ray.api.credentials import credentials_of
from sgpu_decl.backends.ray.api.dashboard import Dashboard
from sgpu_decl.backends.ray.api.dashboard_address import DashboardAddress, address_of
from sgpu_decl.backends.ray.planning.group_shape import options_of

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig


class Clusters:
    """The dashboards that this process uses, one connection each."""

    def __init__(self) -> None:
        self._dashboards: dict[str, Dashboard] = {}
        self._lock = threading.Lock()

    def of(self, config: "RunConfig") -> Dashboard:
        """The dashboard that a `backend` block means."""
        return self._opened(address_of(options_of(config).address, os.environ))

    def at(self, url: str) -> Dashboard:
        """The dashboard that a launch was submitted to."""
        return self._opened(DashboardAddress(url=url))

    def close(self) -> None:
        for dashboard in self._dashboards.values():
            dashboard.close()

    def _opened(self, address: DashboardAddress) -> Dashboard:
        with self._lock:
            if address.url not in self._dashboards:
                credentials = credentials_of(os.environ)
                self._dashboards[address.url] = Dashboard(address, credentials)
            return self._dashboards[address.url]

"""Eventual consistency: for some reads a tenant looks as it did before a write."""

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from sgpu_decl.testing.workspace.faults import Fault, matches
from sgpu_decl.testing.workspace.tenant import Tenant

__all__ = ["Staleness"]


class Staleness:
    """Snapshots of tenants that some reads are answered from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._views: list[_View] = []
        self._lock = threading.Lock()

    def remember(self, tenant: Tenant, fault: Fault) -> None:
        """Keep what the tenant holds now for the reads that the fault names."""
        view = _View(tenant.snapshot(self._folder / uuid4().hex), fault.seen_by, fault.reads)
        with self._lock:
            self._views.append(view)

    def seen(self, tenant: Tenant, line: str) -> Tenant:
        """What a request sees of its tenant: the tenant, or what it was."""
        with self._lock:
            for view in self._views:
                if view.reads and view.tenant.key == tenant.key and matches(view.pattern, line):
                    view.reads -= 1
                    return view.tenant.seen_by(tenant.user_name)
        return tenant

    def clear(self) -> None:
        """Drop all snapshots. Not sooner: an answer may still be read from one."""
        with self._lock:
            for view in self._views:
                view.tenant.close()
                shutil.rmtree(view.tenant.folder)
            self._views.clear()


@dataclass(slots=True)
class _View:
    tenant: Tenant
    pattern: str
    reads: int

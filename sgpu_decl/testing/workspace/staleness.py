"""Eventual consistency: for some reads a tenant looks as it did before a write."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
        folder = self._folder / uuid4().hex
        view = _View(tenant.key, tenant.snapshot(folder), fault.seen_by, fault.reads)
        with self._lock:
            self._views.append(view)

    @contextmanager
    def seen(self, tenant: Tenant, line: str) -> Iterator[Tenant]:
        """What a request sees of its tenant: the tenant, or what it was."""
        with self._lock:
            view = next((one for one in self._views if one.covers(tenant.key, line)), None)
            if view is None:
                last = False
            else:
                view.reads -= 1
                last = view.reads == 0
                if last:
                    self._views.remove(view)
        with ExitStack() as stack:
            if view is not None and last:
                stack.callback(_drop, view)
            yield tenant if view is None else view.tenant

    def clear(self) -> None:
        """Drop all snapshots."""
        with self._lock:
            views, self._views = self._views, []
        for view in views:
            _drop(view)


@dataclass(slots=True)
class _View:
    key: str
    tenant: Tenant
    pattern: str
    reads: int

    def covers(self, key: str, line: str) -> bool:
        return key == self.key and matches(self.pattern, line)


def _drop(view: _View) -> None:
    view.tenant.close()
    shutil.rmtree(view.tenant.folder)

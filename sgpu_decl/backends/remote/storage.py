"""What attempts left of remote backends: their launch folders, and what is here of them."""

import shutil
from collections.abc import Callable, Mapping
from typing import Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Storage
from sgpu_decl.backends.remote.attempts import RemoteAttempts
from sgpu_decl.backends.remote.pending_gc import PendingGc
from sgpu_decl.backends.remote.staging_area import StagingArea
from sgpu_decl.model.address import Address
from sgpu_decl.model.launch import LaunchRecord

__all__ = ["RemoteStorage"]


class RemoteStorage(Storage):
    """Launch folders and shared objects; what could not be deleted waits for the next `collect`.

    Args:
        layout: has the folders of attempts on this machine.
        area_with: gives the staging area with a key (`StagingArea.key`).
    """

    def __init__(
        self,
        layout: AttemptLayout,
        attempts: RemoteAttempts,
        pending_gc: PendingGc,
        area_with: Callable[[Mapping[str, Any]], StagingArea],
    ) -> None:
        self._layout = layout
        self._attempts = attempts
        self._pending_gc = pending_gc
        self._area_with = area_with

    def size(self, record: LaunchRecord) -> int:
        return self._layout.size(self._layout.attempt(record.ref))

    def free(self, record: LaunchRecord) -> int:
        from sgpu_decl.backends.remote.remote_gc import free_launch

        if self._attempts.active(record):
            return 0
        size = self.size(record)
        place = self._attempts.place(record)
        if place is not None:
            self._pending_gc.add(place.area.key)
            free_launch(place.area, place.folder)
        shutil.rmtree(self._layout.attempt(record.ref), ignore_errors=True)
        self._attempts.forget(record)
        return size

    def release_code(self, record: LaunchRecord) -> None:
        from sgpu_decl.backends.remote.remote_gc import unstage_launch

        place = self._attempts.place(record)
        if place is None or self._attempts.active(record):
            return
        self._pending_gc.add(place.area.key)
        unstage_launch(place.area, place.folder)

    def move(self, source: Address, destination: Address) -> None:
        self._layout.move(source, destination)

    def collect(self) -> int:
        from sgpu_decl.backends.remote.remote_gc import collect

        total = 0
        for key in self._pending_gc.all():
            freed = collect(self._area_with(key))
            if freed is not None:
                self._pending_gc.settle(key)
                total += freed
        return total

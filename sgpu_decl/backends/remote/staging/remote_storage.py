"""What attempts left of remote backends: their launch folders, and what is here of them."""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Storage
from sgpu_decl.backends.remote.staging.remote_gc import (
    PendingGc,
    collect,
    free_launch,
    unstage_launch,
)
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.backends.remote.watching.remote_attempts import LaunchPlace, RemoteAttempts
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.file_place import folder_size

_LOOKS = 8  # at once


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
        self._sizes: dict[AttemptRef, int] = {}  # of ended attempts, so that `free` asks no more

    def size(self, record: LaunchRecord) -> int:
        return self._size(record, self._attempts.place(record))

    def sizes(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, int | None]:
        with ThreadPoolExecutor(_LOOKS, thread_name_prefix="look") as pool:
            places = list(pool.map(self._planned_place, records))
            # The launch folders of a run lie beside each other, so one request tells which are left
            runs = {place.run_key: place for place in places if place is not None}
            listed = dict(zip(runs, pool.map(_entries, runs.values()), strict=True))

            def left(record: LaunchRecord, place: LaunchPlace | None) -> tuple[bool, int | None]:
                """Whether there is something, and how much."""
                names = listed[place.run_key] if place is not None else None
                if place is None or names is None:
                    return True, None
                there = place.name in names  # a platform may not say how large its files are
                try:
                    size = self._size(record, place if there else None)
                except BackendError:
                    return True, None
                return there or size > 0, size

            found = list(zip(records, pool.map(left, records, places), strict=True))
        sizes = {record.ref: size for record, (there, size) in found if there}
        self._sizes |= {ref: size for ref, size in sizes.items() if size}
        return sizes

    def _planned_place(self, record: LaunchRecord) -> LaunchPlace | None:
        """Where a launch lies, if something was begun; None where the platform does not tell."""
        try:
            return self._attempts.planned_place(record)
        except BackendError:
            return None

    def _size(self, record: LaunchRecord, place: LaunchPlace | None) -> int:
        here = self._layout.size(self._layout.attempt(record.ref))
        if place is None:
            return here
        there = folder_size(place.area.files, place.folder)
        commands = place.area.layout.commands(place.folder)
        if commands != place.folder:
            there += folder_size(place.area.command_files, commands)
        return here + there

    def free(self, record: LaunchRecord) -> int:
        if self._attempts.active(record):
            return 0
        size = self._sizes.pop(record.ref, None) or self.size(record)
        place = self._attempts.place(record)
        if place is not None:
            self._pending_gc.add(place.area.key)
            free_launch(place.area, place.folder)
        shutil.rmtree(self._layout.attempt(record.ref), ignore_errors=True)
        self._attempts.forget(record)
        return size

    def unstage(self, record: LaunchRecord) -> None:
        place = self._attempts.place(record)
        if place is None or self._attempts.active(record):
            return
        self._pending_gc.add(place.area.key)
        unstage_launch(place.area, place.folder)

    def move(self, source: Address, destination: Address) -> None:
        self._layout.move(source, destination)

    def collect(self) -> int:
        total, failed = 0, None
        for key in self._pending_gc.all():
            try:
                area = self._area_with(key)
            except (KeyError, TypeError):  # no area has it: something else wrote it
                self._pending_gc.remove(key)
                continue
            try:
                freed = collect(area)
            except BackendError as error:  # it stays due, and keeps gc from no other
                failed = failed or error
                continue
            if freed is not None:
                self._pending_gc.remove(key)
                total += freed
        if failed is not None:
            raise failed
        return total


def _entries(place: LaunchPlace) -> Collection[str] | None:
    """The names of the launch folders of a run; None where the storage does not answer."""
    try:
        return {item.name for item in place.area.files.list(place.run)}
    except BackendError:
        return None

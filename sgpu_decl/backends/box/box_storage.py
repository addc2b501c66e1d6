"""What attempts left on boxes, and the copies of it here."""

from collections.abc import Mapping, Sequence

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Storage
from sgpu_decl.backends.box.box_launches import BoxLaunches
from sgpu_decl.backends.box.box_mirror import BoxMirror
from sgpu_decl.backends.box.box_place import BoxPlace
from sgpu_decl.backends.box.boxes import Boxes
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.launch import LaunchRecord


class BoxStorage(Storage):
    """An attempt is freed there first, and its copy then. Code on a box is a cache: what
    nobody uses goes with the attempts. `pending` remembers where that is due."""

    def __init__(
        self,
        layout: AttemptLayout,
        launches: BoxLaunches,
        mirror: BoxMirror,
        boxes: Boxes,
        pending: PendingGc,
    ) -> None:
        self._layout = layout
        self._launches = launches
        self._mirror = mirror
        self._boxes = boxes
        self._pending = pending

    def size(self, record: LaunchRecord) -> int:
        there = sum(int(one["size"]) for one in self._launches.ask_each(record, "facts_of"))
        return there + self._layout.size(self._layout.found(record))

    def sizes(self, records: Sequence[LaunchRecord]) -> Mapping[AttemptRef, int | None]:
        found: dict[AttemptRef, int | None] = {}
        for record in records:
            try:
                found[record.ref] = self.size(record)
            except BackendError:
                found[record.ref] = None
        return {ref: size for ref, size in found.items() if size != 0}

    def free(self, record: LaunchRecord) -> int:
        if any(there["active"] for there in self._launches.ask_each(record, "facts_of")):
            return 0
        for box in self._launches.boxes(record):
            self._pending.add({"host": box.host, "storage": box.storage})
        size = sum(int(freed["size"]) for freed in self._launches.ask_each(record, "free"))
        size += self._layout.size(self._layout.found(record))
        self._mirror.forget(record)
        return size

    def unstage(self, record: LaunchRecord) -> None:
        self._launches.ask_each(record, "free", code=True)

    def move(self, source: Address, destination: Address) -> None:
        self._layout.move(source, destination)

    def collect(self) -> int:
        size, failed = 0, None
        for key in self._pending.all():
            try:
                box = self._boxes.at(BoxPlace(str(key["host"]), str(key["storage"])))
                size += int(box.ask("collect")["size"])
            except BackendError as error:
                failed = failed or error  # it stays due, and keeps gc from no other
            else:
                self._pending.remove(key)
        if failed is not None:
            raise failed
        return size

    def kill_orphans(self, record: LaunchRecord) -> int:
        return sum(int(swept["count"]) for swept in self._launches.ask_each(record, "sweep"))

"""What attempts left on boxes, and the copies of it here."""

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import Storage
from sgpu_decl.backends.box.box_mirror import BoxMirror
from sgpu_decl.backends.box.boxes import Boxes
from sgpu_decl.backends.ssh.box_launches import BoxLaunches
from sgpu_decl.model.address import Address
from sgpu_decl.model.launch import LaunchRecord


class SshStorage(Storage):
    """An attempt is freed there first, and its copy then. Code and environments of a box are a
    cache, and its own matter."""

    def __init__(
        self, layout: AttemptLayout, launches: BoxLaunches, mirror: BoxMirror, boxes: Boxes
    ) -> None:
        self._layout = layout
        self._launches = launches
        self._mirror = mirror
        self._boxes = boxes

    def size(self, record: LaunchRecord) -> int:
        there = int(self._launches.ask(record, "facts_of")["size"])
        return there + self._layout.size(self._layout.found(record))

    def free(self, record: LaunchRecord) -> int:
        facts = self._launches.ask(record, "facts_of")
        if facts["active"]:
            return 0
        size = int(self._launches.ask(record, "free")["size"])
        size += self._layout.size(self._layout.found(record))
        self._mirror.forget(record)
        return size

    def unstage(self, record: LaunchRecord) -> None:
        self._launches.ask(record, "free", code=True)

    def move(self, source: Address, destination: Address) -> None:
        self._layout.move(source, destination)

    def collect(self) -> int:
        return sum(int(box.ask("collect")["size"]) for box in self._boxes.used())

    def kill_orphans(self, record: LaunchRecord) -> int:
        return int(self._launches.ask(record, "sweep")["count"])

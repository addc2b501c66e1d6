"""Where launches lie: on which boxes, and in which folder of each."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.base import ForcedStop
from sgpu_decl.backends.box.box_place import BoxPlace, names_host
from sgpu_decl.backends.box.boxes import PATIENCE, Box, Boxes, ask_all
from sgpu_decl.backends.box.named_hosts import NamedHosts
from sgpu_decl.backends.launch_request import config_of, foreign_config
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts
from sgpu_decl.backends.remote.launching.remote_reference import RemoteReference, reference_in
from sgpu_decl.errors import BackendError
from sgpu_decl.model.launch import LaunchRecord

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.config.backend import BackendOptions


class BoxLaunches:
    """Launches of one project and target. Folders are named relative to the `storage` of a box.

    A launch on several boxes has a folder on each, of another name: they may share their storage.
    The first box decides, so its folder is the truth.

    Args:
        places_of: what a `backend` block says of its boxes; none for that of another backend.
        hosts: those that launches of this machine were sent to.
    """

    def __init__(
        self,
        context: "BackendContext",
        boxes: Boxes,
        hosts: LaunchHosts,
        places_of: "Callable[[BackendOptions], Sequence[BoxPlace]]",
    ) -> None:
        self._boxes = boxes
        self._places_of = places_of
        self._named = NamedHosts(context, hosts, self._hosts_of)

    def box(self, record: LaunchRecord) -> Box:
        """The first box of a launch. Raises BackendError: as `boxes`."""
        return self.boxes(record)[0]

    def boxes(self, record: LaunchRecord) -> Sequence[Box]:
        """The boxes of a launch. Raises BackendError: its record names some that may not be
        asked."""
        places = self._configured(record)
        if record.reference is not None:
            facts = reference_in(record.reference).facts
            hosts, storage = str(facts.get("host", "")).split(","), str(facts.get("storage", ""))
            if not all(map(names_host, hosts)):
                raise foreign_config("a host")
            for host in hosts:
                self._named.require(host, record.owner)
            known = {place.host: place for place in places}
            places = [
                known.get(host, places[0]._replace(address=None))._replace(
                    host=host, storage=storage
                )
                for host in hosts
            ]
        return [self._boxes.at(place) for place in places]

    def launch_on(self, record: LaunchRecord) -> Sequence[Box]:
        """The boxes that a launch is about to be sent to. Later commands may ask them."""
        for place in self._configured(record):
            self._named.add(place.host)
        return self.boxes(record)

    def folder(self, record: LaunchRecord, node: int = 0) -> str:
        """The folder of its attempt on one of its boxes."""
        if record.reference is not None:
            folder = reference_in(record.reference).folder
        else:
            ref = record.ref
            state = f"states/{record.lineage[:8]}"
            folder = str(PurePosixPath(state, "runs", ref.address.folder, str(ref.number)))
        states, state, *below = folder.split("/")
        return "/".join([states, f"{state}{_state(node)}", *below])

    def path(self, record: LaunchRecord, on: Box | None = None) -> Path | None:
        """The whole path of that folder on a box, by default the first; None if it has none
        there."""
        boxes = self.boxes(record)
        box = boxes[0] if on is None else on
        if box not in boxes:
            return None
        return Path(box.hello["root"]) / self.folder(record, boxes.index(box))

    def places(self, record: LaunchRecord) -> Sequence[tuple[Box, str]]:
        """The boxes of a launch, and the folder of its attempt on each."""
        return [(box, self.folder(record, node)) for node, box in enumerate(self.boxes(record))]

    def node_of(self, record: LaunchRecord, rank: int) -> int:
        """Which of the boxes of a launch has a rank."""
        config, count = config_of(record.ref, record.inputs), len(self.boxes(record))
        return rank if config.launch.per == "node" else rank // max(1, config.ranks // count)

    def layout(self, record: LaunchRecord, node: int = 0) -> AttemptLayout:
        """Where the attempts of its state lie on one of its boxes."""
        root = self.boxes(record)[node].hello["root"]
        return AttemptLayout(Path(root, "states", f"{record.lineage[:8]}{_state(node)}"))

    def reference(self, record: LaunchRecord) -> str:
        """The `LaunchRecord.reference`."""
        if record.reference is not None:
            return record.reference
        places = self._configured(record)
        hosts = ",".join(place.host for place in places)
        facts = {"host": hosts, "storage": places[0].storage}
        return RemoteReference(folder=self.folder(record), facts=facts).text

    def ask(
        self, record: LaunchRecord, do: str, *, patience: float = PATIENCE, **message: Any
    ) -> dict[str, Any]:
        """Ask the first box of a launch about its attempt. Raises BackendError."""
        whole = {"folder": self.folder(record), "token": record.token, **message}
        return self.box(record).send(do, whole, patience=patience)[0]

    def ask_each(self, record: LaunchRecord, do: str, **message: Any) -> list[dict[str, Any]]:
        """Ask all boxes of a launch about its attempt, at once. Raises BackendError."""
        folders = dict(self.places(record))

        def ask(box: Box) -> dict[str, Any]:
            return box.ask(do, **{"folder": folders[box], "token": record.token, **message})

        return ask_all(list(folders), ask)

    def are_beside(self, one: LaunchRecord, other: LaunchRecord) -> bool:
        """Whether two launches share their boxes and their folders there."""
        try:
            return self.boxes(one) == self.boxes(other)
        except BackendError:
            return False

    def _configured(self, record: LaunchRecord) -> Sequence[BoxPlace]:
        """Raises BackendError: the config of a launch is that of another backend."""
        places = self._places_of(config_of(record.ref, record.inputs).backend)
        if not places:
            raise foreign_config("a host")
        return places

    def _hosts_of(self, block: "BackendOptions") -> tuple[str, ...]:
        return tuple(place.host for place in self._places_of(block))


class BoxForcedStop(ForcedStop):
    """Ends the supervisors of a launch, on all of its boxes, that are silent for `patience`
    seconds."""

    def __init__(self, launches: BoxLaunches, record: LaunchRecord, patience: float) -> None:
        self._launches = launches
        self._record = record
        self._patience = patience

    def look(self) -> str | None:
        each = self._launches.ask_each(self._record, "force", silence=self._patience)
        return "; ".join(str(one["did"]) for one in each if one["did"]) or None


def _state(node: int) -> str:
    """What the name of the folder of a state has more on others than the first box of its runs."""
    return f"-{node}" if node else ""

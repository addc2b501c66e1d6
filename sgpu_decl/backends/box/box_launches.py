"""Where launches lie: on which box, and in which folder of it."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.box.box_place import BoxPlace, names_host
from sgpu_decl.backends.box.boxes import PATIENCE, Box, Boxes
from sgpu_decl.backends.launch_request import config_of, foreign_config
from sgpu_decl.backends.remote.launching.launch_hosts import NOT_NAMED, LaunchHosts
from sgpu_decl.backends.remote.launching.remote_reference import RemoteReference, reference_in
from sgpu_decl.errors import BackendError
from sgpu_decl.model.launch import LaunchRecord

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.config.backend import BackendOptions


class BoxLaunches:
    """Launches of one project and target. Folders are named relative to the `storage` of a box.

    A box that only the record of a state names, which others write, too, is not asked: what it
    answers is trusted, such as the pickles of exceptions.

    Args:
        place_of: what a `backend` block says of its box; None for that of another backend.
        hosts: those that launches of this machine were sent to.
    """

    def __init__(
        self,
        context: "BackendContext",
        boxes: Boxes,
        hosts: LaunchHosts,
        place_of: "Callable[[BackendOptions], BoxPlace | None]",
    ) -> None:
        self._context = context
        self._boxes = boxes
        self._hosts = hosts
        self._place_of = place_of
        self._named: set[str] = set()

    def box(self, record: LaunchRecord) -> Box:
        """The box of a launch. Raises BackendError: its record names none that may be asked."""
        place = self._configured(record)
        if record.reference is None:
            return self._boxes.at(place)
        facts = reference_in(record.reference).facts
        host, storage = str(facts.get("host", "")), str(facts.get("storage", ""))
        if not names_host(host):
            raise foreign_config("a host")
        self._require_named(host, record.owner)
        return self._boxes.at(place._replace(host=host, storage=storage))

    def launch_on(self, record: LaunchRecord) -> Box:
        """The box that a launch is about to be sent to. Later commands may ask it."""
        host = self._configured(record).host
        self._hosts.add(host)
        self._named.add(host)
        return self.box(record)

    def folder(self, record: LaunchRecord) -> str:
        """The folder of its attempt."""
        if record.reference is not None:
            return reference_in(record.reference).folder
        ref = record.ref
        state = f"states/{record.lineage[:8]}"
        return str(PurePosixPath(state, "runs", ref.address.folder, str(ref.number)))

    def path(self, record: LaunchRecord) -> Path:
        """The whole path of that folder, on the box."""
        return Path(self.box(record).hello["root"]) / self.folder(record)

    def place(self, record: LaunchRecord) -> tuple[Box, str]:
        """The box of a launch, and the folder of its attempt there."""
        return self.box(record), self.folder(record)

    def layout(self, record: LaunchRecord) -> AttemptLayout:
        """Where the attempts of its state lie on its box."""
        return AttemptLayout(Path(self.box(record).hello["root"], "states", record.lineage[:8]))

    def reference(self, record: LaunchRecord) -> str:
        """The `LaunchRecord.reference`."""
        if record.reference is not None:
            return record.reference
        place = self._configured(record)
        facts = {"host": place.host, "storage": place.storage}
        return RemoteReference(folder=self.folder(record), facts=facts).text

    def ask(
        self, record: LaunchRecord, do: str, *, patience: float = PATIENCE, **message: Any
    ) -> dict[str, Any]:
        """Ask the box of a launch about its attempt. Raises BackendError."""
        whole = {"folder": self.folder(record), "token": record.token, **message}
        return self.box(record).send(do, whole, patience=patience)[0]

    def are_beside(self, one: LaunchRecord, other: LaunchRecord) -> bool:
        """Whether two launches share their box and their folder there."""
        try:
            return self.box(one) is self.box(other)
        except BackendError:
            return False

    def _configured(self, record: LaunchRecord) -> BoxPlace:
        """Raises BackendError: the config of a launch is that of another backend."""
        place = self._place_of(config_of(record.ref, record.inputs).backend)
        if place is None:
            raise foreign_config("a host")
        return place

    def _require_named(self, host: str, owner: str) -> None:
        if host in self._named or not self._context.shared_state():
            return
        self._named |= self._hosts.all()
        if host not in self._named:
            places = map(self._place_of, self._context.backend_blocks(owner))
            self._named |= {place.host for place in places if place is not None}
        if host not in self._named:
            raise BackendError(
                f"only the record of the run names the host `{host}`: no file of this project "
                "does, so sgpu does not log in there",
                hint="if it is a machine of yours, name it in a `backend` block of the run's file",
                code=NOT_NAMED,
            )

"""Where launches lie: on which box, and in which folder of it."""

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from sgpu_decl.backends.attempt_layout import AttemptLayout
from sgpu_decl.backends.box.boxes import Box, Boxes
from sgpu_decl.backends.launch_request import config_of, foreign_config
from sgpu_decl.backends.remote.launching.remote_reference import RemoteReference, reference_in
from sgpu_decl.backends.ssh.options import SshOptions, check_host
from sgpu_decl.errors import BackendError
from sgpu_decl.model.launch import LaunchRecord

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_PATIENCE = 120.0


class BoxLaunches:
    """Launches of one project and target. Folders are named relative to the `storage` of a box."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    def box(self, record: LaunchRecord) -> Box:
        """The box of a launch. Raises BackendError: its record names none."""
        options = self._options(record)
        if record.reference is None:
            return box_of(options, self._boxes)
        facts = reference_in(record.reference).facts
        host, storage = str(facts.get("host", "")), str(facts.get("storage", ""))
        if not check_host(host):
            raise foreign_config("a host")
        return self._boxes.named(host, storage, options.python)

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
        """Both."""
        return self.box(record), self.folder(record)

    def layout(self, record: LaunchRecord) -> AttemptLayout:
        """Where the attempts of its state lie on its box."""
        return AttemptLayout(Path(self.box(record).hello["root"], "states", record.lineage[:8]))

    def reference(self, record: LaunchRecord) -> str:
        """The `LaunchRecord.reference`."""
        if record.reference is not None:
            return record.reference
        options = self._options(record)
        facts = {"host": options.host, "storage": options.storage}
        return RemoteReference(folder=self.folder(record), facts=facts).text

    def ask(
        self, record: LaunchRecord, do: str, *, patience: float = _PATIENCE, **message: Any
    ) -> dict[str, Any]:
        """Ask the box of a launch about its attempt. Raises BackendError."""
        whole = {"folder": self.folder(record), "token": record.token, **message}
        return self.box(record).send(do, whole, patience=patience)[0]

    def config(self, record: LaunchRecord) -> "RunConfig":
        """The config of a launch. Raises BackendError: it is that of another backend."""
        config = config_of(record.ref, record.inputs)
        if not isinstance(config.backend, SshOptions):
            raise foreign_config("a host")
        return config

    def _options(self, record: LaunchRecord) -> SshOptions:
        return cast("SshOptions", self.config(record).backend)


def box_of(options: SshOptions, boxes: Boxes) -> Box:
    """The box that a block means."""
    return boxes.named(options.host, options.storage, options.python)


def same_box(one: LaunchRecord, other: LaunchRecord, launches: BoxLaunches) -> bool:
    """Whether two launches share their box and their folder there."""
    try:
        return launches.box(one) is launches.box(other)
    except BackendError:
        return False

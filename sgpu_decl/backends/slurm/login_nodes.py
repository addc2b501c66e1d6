"""Where the commands of Slurm are given, and the folder that its nodes share is seen: on this
machine, or on a login node that ssh reaches."""

import os
from collections.abc import Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.box.box_folder import BoxFolder
from sgpu_decl.backends.box.box_place import BoxPlace
from sgpu_decl.backends.box.boxes import Box, Boxes
from sgpu_decl.backends.box.code_changes import send_code_changes
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.launching.remote_reference import reference_in
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.backends.slurm.slurm_commands import SlurmCommands, run_on
from sgpu_decl.backends.slurm.slurm_placement import options_of
from sgpu_decl.model.launch import LaunchRecord
from sgpu_decl.places.file_place import FilePlace
from sgpu_decl.places.folder import FolderPlace

if TYPE_CHECKING:
    from sgpu_decl.backends.attempt_layout import AttemptLayout
    from sgpu_decl.backends.box.named_hosts import NamedHosts
    from sgpu_decl.backends.slurm.options import SlurmOptions
    from sgpu_decl.config.run import RunConfig


class LoginNode:
    """Nothing is asked before it is needed. `box` is None where this machine is one."""

    def __init__(self, box: Box | None, storage: str, commands: SlurmCommands) -> None:
        self.box = box
        self.commands = commands
        self._storage = storage
        self.area = cache(self._area)

    @cached_property
    def root(self) -> str:
        """The folder that nodes share. Raises BackendError: the login node cannot be reached."""
        if self.box is not None:
            return str(self.box.hello["root"])
        return os.path.expanduser(self._storage)

    def private(self, folder: str) -> FilePlace:
        """A folder whose new files this user alone may read."""
        if self.box is not None:
            return BoxFolder(self.box)  # its files are so
        return FolderPlace(Path(folder), mode=0o600)

    def _area(self, root: str) -> StagingArea:
        if self.box is None:
            return StagingArea(RemoteLayout(root), FolderPlace(Path(root)), key={"root": root})
        box, layout = self.box, RemoteLayout(root)
        return StagingArea(
            layout,
            BoxFolder(box),
            key={"root": root, "login": box.host, "storage": self._storage},
            delete_copies=lambda: int(box.ask("collect")["size"]),  # agents that nobody uses
            send_changes=partial(send_code_changes, box, layout.codes),
        )


class LoginNodes:
    """One for each machine and folder there."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._here = SlurmCommands()
        self._at = cache(self._open)

    def of(self, options: "SlurmOptions") -> LoginNode:
        """That of a `backend` block."""
        own = options.python if options.container is None else None  # else it is that of the image
        return self._at(options.login, options.storage, own)

    def area_with(self, key: Mapping[str, Any]) -> StagingArea:
        """See `RemoteStorage`."""
        node = self._at(key.get("login"), key.get("storage", key["root"]), None)
        return node.area(key["root"])

    def _open(self, login: str | None, storage: str, python: str | None) -> LoginNode:
        if login is None:
            return LoginNode(None, storage, self._here)
        box = self._boxes.at(BoxPlace(login, storage, python))
        return LoginNode(box, storage, SlurmCommands(run_on(box), f"on `{login}`"))


class SlurmLaunches(RemoteLaunches):
    """Launches, each by its login node."""

    def __init__(self, layout: "AttemptLayout", nodes: LoginNodes, named: "NamedHosts") -> None:
        super().__init__(layout, self._area_of_config)
        self._nodes = nodes
        self._named = named

    def node(self, record: LaunchRecord) -> LoginNode:
        """The login node of a launch. Raises BackendError: only its record names that."""
        options = options_of(self.config(record))
        if options.login is not None and record.reference is not None:
            self._named.require(options.login, record.owner)
        return self._nodes.of(options)

    def launch_from(self, record: LaunchRecord) -> None:
        """A launch is about to be sent there. Later commands may ask it."""
        login = options_of(self.config(record)).login
        if login is not None:
            self._named.add(login)

    def area(self, record: LaunchRecord) -> StagingArea:
        node = self.node(record)
        if record.reference is None:
            return node.area(node.root)
        return node.area(RemoteLayout.root_around(reference_in(record.reference).folder))

    def _area_of_config(self, config: "RunConfig") -> StagingArea:
        node = self._nodes.of(options_of(config))
        return node.area(node.root)

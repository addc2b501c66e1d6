"""The backend of boxes, opened for one project and target."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Backend
from sgpu_decl.backends.box.box_attempts import BoxAttempts
from sgpu_decl.backends.box.box_launches import BoxLaunches
from sgpu_decl.backends.box.box_mirror import BoxMirror
from sgpu_decl.backends.box.box_place import BoxPlace
from sgpu_decl.backends.box.box_storage import BoxStorage
from sgpu_decl.backends.box.boxes import Boxes
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.ssh.options import SshOptions
from sgpu_decl.backends.ssh.ssh_launcher import SshLauncher
from sgpu_decl.backends.ssh.ssh_survey import SshSurvey

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.config.backend import BackendOptions


def open_ssh(context: "BackendContext") -> Backend:
    """Nothing is connected before it is asked."""
    boxes = Boxes()
    hosts = LaunchHosts(context.state_dir / "ssh-hosts.json")
    launches = BoxLaunches(context, boxes, hosts, places_in)
    mirror = BoxMirror(context.layout, launches.places)
    return Backend(
        survey=SshSurvey(context.pythons, boxes),
        launcher=SshLauncher(context, launches, mirror, os.environ),
        attempts=BoxAttempts(launches, mirror, context.layout, os.environ, context.project),
        storage=BoxStorage(
            context.layout, launches, mirror, boxes, PendingGc(context.state_dir / "ssh-gc.json")
        ),
        close=boxes.close,
    )


def places_in(block: "BackendOptions") -> Sequence[BoxPlace]:
    """The boxes that a block means; none for that of another backend."""
    return block.places if isinstance(block, SshOptions) else ()

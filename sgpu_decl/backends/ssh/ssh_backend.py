"""The backend of boxes, opened for one project and target."""

import os
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Backend
from sgpu_decl.backends.box.box_mirror import BoxMirror
from sgpu_decl.backends.box.boxes import Boxes
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.ssh.box_launches import BoxLaunches
from sgpu_decl.backends.ssh.ssh_attempts import SshAttempts
from sgpu_decl.backends.ssh.ssh_launcher import SshLauncher
from sgpu_decl.backends.ssh.ssh_storage import SshStorage
from sgpu_decl.backends.ssh.ssh_survey import SshSurvey

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext


def open_ssh(context: "BackendContext") -> Backend:
    """Nothing is connected before it is asked."""
    boxes = Boxes()
    launches = BoxLaunches(boxes)
    mirror = BoxMirror(context.layout, launches.place)
    return Backend(
        survey=SshSurvey(context.pythons, boxes),
        launcher=SshLauncher(context, launches, mirror, os.environ),
        attempts=SshAttempts(launches, mirror, context.layout, os.environ, context.project),
        storage=SshStorage(
            context.layout, launches, mirror, boxes, PendingGc(context.state_dir / "ssh-gc.json")
        ),
        close=boxes.close,
    )

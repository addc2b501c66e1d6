"""The Slurm backend, opened for one project and target."""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgpu_decl.backends.base import Backend
from sgpu_decl.backends.remote.launching.remote_launches import RemoteLaunches
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.backends.remote.staging.remote_storage import RemoteStorage
from sgpu_decl.backends.remote.staging.staging_area import StagingArea
from sgpu_decl.backends.slurm.job_script import options_of
from sgpu_decl.backends.slurm.slurm_answers import SlurmAnswers, own_cluster
from sgpu_decl.backends.slurm.slurm_attempts import SlurmAttempts
from sgpu_decl.backends.slurm.slurm_commands import SlurmCommands
from sgpu_decl.backends.slurm.slurm_launcher import SlurmLauncher
from sgpu_decl.backends.slurm.slurm_survey import SlurmSurvey
from sgpu_decl.places.folder import FolderPlace

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext


def open_slurm(context: "BackendContext") -> Backend:
    """Nothing is asked before it is needed."""
    commands = SlurmCommands()

    @cache
    def area(root: str) -> StagingArea:
        return StagingArea(RemoteLayout(root), FolderPlace(Path(root)), key={"root": root})

    def area_with(key: Mapping[str, Any]) -> StagingArea:
        return area(key["root"])

    launches = RemoteLaunches(
        context.layout, lambda config: area(os.path.expanduser(options_of(config).storage))
    )
    attempts = SlurmAttempts(launches, commands)
    pending = PendingGc(context.state_dir / "slurm-gc.json")
    return Backend(
        survey=SlurmSurvey(
            context.pythons, SlurmAnswers(commands, own_cluster(), context.for_apply)
        ),
        launcher=SlurmLauncher(context, commands, launches, attempts),
        attempts=attempts,
        storage=RemoteStorage(context.layout, attempts, pending, area_with),
        close=attempts.close,
    )

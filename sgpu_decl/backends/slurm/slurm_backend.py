"""The Slurm backend, opened for one project and target."""

from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Backend
from sgpu_decl.backends.box.boxes import Boxes
from sgpu_decl.backends.box.named_hosts import NamedHosts
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts
from sgpu_decl.backends.remote.staging.remote_gc import PendingGc
from sgpu_decl.backends.remote.staging.remote_storage import RemoteStorage
from sgpu_decl.backends.slurm.login_nodes import LoginNodes, SlurmLaunches
from sgpu_decl.backends.slurm.options import SlurmOptions
from sgpu_decl.backends.slurm.slurm_answers import SlurmClusterAnswers
from sgpu_decl.backends.slurm.slurm_attempts import SlurmAttempts
from sgpu_decl.backends.slurm.slurm_launcher import SlurmLauncher
from sgpu_decl.backends.slurm.slurm_survey import SlurmSurvey

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.config.backend import BackendOptions


def open_slurm(context: "BackendContext") -> Backend:
    """Nothing is asked before it is needed."""
    boxes = Boxes()
    nodes = LoginNodes(boxes)
    answers = SlurmClusterAnswers(nodes, context.for_apply)
    hosts = LaunchHosts(context.state_dir / "slurm-hosts.json")
    launches = SlurmLaunches(context.layout, nodes, NamedHosts(context, hosts, logins_of))
    attempts = SlurmAttempts(launches, context.layout)
    pending = PendingGc(context.state_dir / "slurm-gc.json")

    def close() -> None:
        attempts.close()
        boxes.close()

    return Backend(
        survey=SlurmSurvey(context.pythons, answers),
        launcher=SlurmLauncher(context, launches, attempts, answers),
        attempts=attempts,
        storage=RemoteStorage(context.layout, attempts, pending, nodes.area_with),
        close=close,
    )


def logins_of(block: "BackendOptions") -> tuple[str, ...]:
    """The login nodes that a block names."""
    return (block.login,) if isinstance(block, SlurmOptions) and block.login is not None else ()

"""Variables that ranks need, and that the platform does not set on its nodes."""

from __future__ import annotations

from sgpu_decl.agent.host.interfaces import name_interface

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from sgpu_decl.agent.node.platform import PlatformTable
    from sgpu_decl.agent.several_nodes.node_group import Node


def fill_missing_variables(
    environ: MutableMapping[str, str], node: Node, platform: PlatformTable
) -> None:
    """Add missing variables; those of the platform or the image stay.

    `MLFLOW_TRACKING_URI`: without it, MLflow would write the run to a folder of the node.
    `GLOO_SOCKET_IFNAME`: see `name_interface`.
    """
    if platform.mlflow_uri and platform.run_id(environ):
        environ["MLFLOW_TRACKING_URI"] = environ.get("MLFLOW_TRACKING_URI") or platform.mlflow_uri
    if node.count > 1:
        name_interface(environ, node.address)

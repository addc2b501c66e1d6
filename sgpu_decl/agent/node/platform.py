"""The names that a platform has for the facts of its nodes.

The backend of a platform writes this table into the command of each launch (`--platform`), since
the agent needs it before it can read a file of the launch. So the agent itself knows no platform.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sgpu_decl.agent.several_nodes.node_group import Node

__all__ = ["ELSEWHERE", "PlatformTable"]

ELSEWHERE = "a storage that outlives the nodes"
"""Where large files can be written on a platform that does not say it."""


class PlatformTable:
    """The names of a platform's variables, and what it does by itself.

    Attributes:
        node_rank, node_count, master_address, master_port: variables of each node, as torchrun has
            them. A node without them is alone.
        code: the variable of the folder to which the platform extracted the code; None if the agent
            extracts it.
        mlflow_run: the variable of the MLflow run that the platform made; None if it makes none.
        mlflow_uri: the server of that run, for images that do not set it.
        stdout_mark, stderr_mark: the beginning of each line of a rank on the stdout of its node.
            `{}` stands for the rank.
        starts: how often at most the platform starts a launch, if many launches share their folder,
            as those of a job do; None for a folder of one launch.
        most_files: how many files of SGPU_OUTPUT_DIR a node brings back.
        large_files: where a user can write what is too large for that, in words of the platform.
        own_objects: whether a node keeps what launches share on its own disk.
        stops_others: whether the platform stops all nodes once one of them fails.
        has_driver: whether a process apart from the nodes decides how the run ended.
        cancellation: the request by which node 0 cancels the run if its own code fails, so that the
            platform does not start it again: see `run_cancellation`. None if it does not cancel.
    """

    def __init__(
        self,
        *,
        node_rank: str = "NODE_RANK",
        node_count: str = "NUM_NODES",
        master_address: str = "MASTER_ADDR",
        master_port: str = "MASTER_PORT",
        code: str | None = None,
        mlflow_run: str | None = None,
        mlflow_uri: str | None = None,
        stdout_mark: str = "[rank {}] ",
        stderr_mark: str = "[rank {} err] ",
        starts: int | None = None,
        most_files: int = 10_000,
        large_files: str = ELSEWHERE,
        own_objects: bool = False,
        stops_others: bool = True,
        has_driver: bool = False,
        cancellation: Mapping[str, str] | None = None,
    ) -> None:
        self.node_rank = node_rank
        self.node_count = node_count
        self.master_address = master_address
        self.master_port = master_port
        self.code = code
        self.mlflow_run = mlflow_run
        self.mlflow_uri = mlflow_uri
        self.stdout_mark = stdout_mark
        self.stderr_mark = stderr_mark
        self.starts = starts
        self.most_files = most_files
        self.large_files = large_files
        self.own_objects = own_objects
        self.stops_others = stops_others
        self.has_driver = has_driver
        self.cancellation = cancellation

    @classmethod
    def from_json(cls, text: str) -> PlatformTable:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return what differs from the defaults."""
        usual = vars(PlatformTable())
        return json.dumps(
            {name: value for name, value in sorted(vars(self).items()) if value != usual[name]}
        )

    def position(self, environ: Mapping[str, str]) -> Node:
        """Return which node this is."""
        from sgpu_decl.agent.several_nodes.node_group import Node

        return Node(
            int(environ.get(self.node_rank, "0")),
            int(environ.get(self.node_count, "1")),
            environ.get(self.master_address, "127.0.0.1"),
            int(environ.get(self.master_port, "0")),
        )

    def run_id(self, environ: Mapping[str, str]) -> str | None:
        """Return the MLflow run that the platform made for this attempt."""
        return environ.get(self.mlflow_run) if self.mlflow_run else None

"""A platform that starts the agent on nodes, in its own words.

The backend of a platform writes this table into the command of each launch (`--platform`), so that
the agent itself knows no platform: it needs the table before any file of the launch can be read.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sgpu_decl.agent.node_group import Node

__all__ = ["PlatformTable"]


class PlatformTable:
    """Which names a platform has for what nodes need to know, and what it does by itself.

    `node_rank`, `node_count`, `master_address` and `master_port` are variables of each node, as
    torchrun's users know them. A node without them is alone.

    `code` is the variable of the folder to which the platform extracted the code; None where the
    agent extracts it.

    `mlflow_run` is the variable of the MLflow run that the platform made, and `mlflow_uri` the
    server of that run, for images that do not say it; None where the platform makes none.

    `stdout_mark` and `stderr_mark` begin each line of a rank on the stdout of its node. `{}` stands
    for the rank.

    `starts` says how often the platform starts a launch at most, where many launches share their
    folder, as those of a job do; None for a folder of one launch.

    `cancellation` is the request by which node 0 cancels the run if its own code fails, so that the
    platform does not start it again: see `run_cancellation`. None where it is not to be cancelled.
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
        self.cancellation = cancellation

    @classmethod
    def from_json(cls, text: str) -> PlatformTable:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """All that is not as by default."""
        usual = vars(PlatformTable())
        return json.dumps(
            {name: value for name, value in sorted(vars(self).items()) if value != usual[name]}
        )

    def position(self, environ: Mapping[str, str]) -> Node:
        """Which node this is; one alone where the platform says nothing."""
        from sgpu_decl.agent.node_group import Node

        return Node(
            int(environ.get(self.node_rank, "0")),
            int(environ.get(self.node_count, "1")),
            environ.get(self.master_address, "127.0.0.1"),
            int(environ.get(self.master_port, "0")),
        )

    def run_id(self, environ: Mapping[str, str]) -> str | None:
        """The MLflow run that the platform made for this attempt."""
        return environ.get(self.mlflow_run) if self.mlflow_run else None

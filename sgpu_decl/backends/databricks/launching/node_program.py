"""How the platform starts the agent on its nodes: `command.sh`, and what lies beside it."""

import json
from collections.abc import Mapping

from sgpu_decl.agent.node.input_folder import folder_of_launch
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.backends.databricks.launching.command import render_command
from sgpu_decl.backends.databricks.launching.submit import (
    ended_early,
    has_managed_base,
    retries_of,
)
from sgpu_decl.backends.databricks.launching.training_config import (
    TRAINING_CONFIG,
    render_training_config,
)
from sgpu_decl.backends.databricks.planning.machines import machines_of
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launch_folder import NodeProgram, NodeStart
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Kind

_CANCELLATION = {
    "path": "/api/2.2/jobs/runs/cancel",
    "id": "run_id",
    "host": "DATABRICKS_HOST",
    "token": "DATABRICKS_TOKEN",
    "profiles": "DATABRICKS_CONFIG_FILE",
    "profile": "DATABRICKS_CONFIG_PROFILE",
    "file": "~/.databrickscfg",
    "default": "DEFAULT",
}


def platform_table(*, starts: int | None = None, ends: bool = False) -> PlatformTable:
    """The platform's words for the agent.

    Args:
        starts: how often it starts a launch of a job at most; None for what is launched once.
        ends: whether node 0 cancels the run if its own code fails.
    """
    return PlatformTable(
        code="CODE_SOURCE_PATH",
        mlflow_run="MLFLOW_RUN_ID",
        mlflow_uri="databricks",
        starts=starts,
        most_files=1_000,
        large_files="/Volumes",
        cancellation=_CANCELLATION if ends else None,
    )


class WorkspaceNodes(NodeProgram):
    """See `NodeProgram`. The platform extracts the code, resolves the secrets that
    `secret_env_vars.json` names, and runs `command.sh` on each node."""

    makes_mlflow_runs = True

    def nodes(self, launching: LaunchRequest) -> int:
        machines = machines_of(launching.config)
        return machines.nodes if machines is not None else 1

    def inputs(self, launching: LaunchRequest) -> str:
        # No machine of ours is there when nodes start, so they copy outputs themselves.
        return folder_of_launch(launching.record.token)

    def files(self, launching: LaunchRequest, start: NodeStart) -> Mapping[str, bytes]:
        config = launching.config
        job = launching.ref.address.kind is Kind.JOB
        platform = platform_table(
            starts=1 + retries_of(config) if job else None,
            # Nodes of a job do not know which launch it is, and joined ones which task is theirs.
            ends=ended_early(config) and not job and not launching.joined,
        )
        command = render_command(start, platform, managed=has_managed_base(config))
        files = {
            "command.sh": command.encode(),
            TRAINING_CONFIG: render_training_config(launching).encode(),
        }
        secrets = secret_sidecar(config.env.secrets)
        if secrets:
            files["secret_env_vars.json"] = json.dumps(secrets, indent=1).encode()
        return files

    def lease_file(self, launching: LaunchRequest) -> tuple[str, bytes] | None:
        if launching.ref.address.kind is Kind.JOB:
            return None
        return TRAINING_CONFIG, render_training_config(launching).encode()


def secret_sidecar(references: Mapping[str, str]) -> list[dict[str, str]]:
    """What the platform's launcher reads of secrets: where their values are, never the values.

    Raises:
        BackendError: a secret is none of the platform's.
    """
    sidecar = []
    for name, text in references.items():
        scheme, _, reference = text.partition(":")
        if scheme != "databricks":
            raise BackendError(
                f"secret `{name}` refers to `{text}`, which nodes on Databricks cannot resolve",
                hint="put it into a secret scope, and write `databricks:scope/key`",
                code="secret_missing",
            )
        scope, _, key = reference.partition("/")
        sidecar.append({"name": name, "secret_scope": scope, "secret_key": key})
    return sidecar

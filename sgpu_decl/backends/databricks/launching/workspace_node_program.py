"""How the platform starts the agent on its nodes: `command.sh`, and what lies beside it."""

import json
import math
import re
import shlex
from collections.abc import Mapping

from sgpu_decl.agent.node.input_folder import folder_of_launch
from sgpu_decl.agent.node.platform import PlatformTable
from sgpu_decl.agent.probe.node_facts import MANAGED_PYTHON
from sgpu_decl.backends.databricks.launching.submit import (
    ended_early,
    environment_of,
    has_managed_base,
    retries_of,
)
from sgpu_decl.backends.databricks.planning.machines import machines_of
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.launch_folder import FILES, NodeProgram, NodeStart
from sgpu_decl.backends.remote.staging.remote_layout import BACK
from sgpu_decl.backends.secret_resolution import secret_name
from sgpu_decl.config.run import RunConfig
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Kind
from sgpu_decl.model.jsonable import Json
from sgpu_decl.rendering.templates import render

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
_OBJECTS = "../../../../objects"
"""Where shared objects lie, as seen from a launch folder: `runs/LINEAGE/RUN/ATTEMPT/`."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

TRAINING_CONFIG = "training_config.yaml"


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


class WorkspaceNodeProgram(NodeProgram):
    """See `NodeProgram`. The platform extracts the code, resolves the secrets that
    `secret_env_vars.json` names, and runs `command.sh` on each node."""

    makes_mlflow_runs = True

    def __init__(self, *, moves: bool = False) -> None:
        """`moves`: nobody knows yet where the launch folder will lie."""
        self._moves = moves

    def nodes(self, request: LaunchRequest) -> int:
        machines = machines_of(request.config)
        return machines.nodes if machines is not None else 1

    def inputs(self, request: LaunchRequest) -> str:
        # No machine of ours is there when nodes start, so they copy outputs themselves.
        return folder_of_launch(request.record.token)

    def files(self, request: LaunchRequest, start: NodeStart) -> Mapping[str, bytes]:
        config = request.config
        job = request.ref.address.kind is Kind.JOB
        platform = platform_table(
            starts=1 + retries_of(config) if job else None,
            # Nodes of a job do not know which launch it is, and joined ones which task is theirs.
            ends=ended_early(config) and not job and not request.group,
        )
        command = render_command(
            start, platform, managed=has_managed_base(config), moves=self._moves
        )
        files = {
            "command.sh": command.encode(),
            TRAINING_CONFIG: render_training_config(request).encode(),
        }
        secrets = secret_sidecar(config.secrets)
        if secrets:
            files["secret_env_vars.json"] = json.dumps(secrets, indent=1).encode()
        return files

    def lease_file(self, request: LaunchRequest) -> tuple[str, bytes] | None:
        if request.ref.address.kind is Kind.JOB:
            return None
        return TRAINING_CONFIG, render_training_config(request).encode()


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
                f"secret `{secret_name(name)}` refers to `{text}`, which nodes on Databricks "
                "cannot resolve",
                hint="put it into a secret scope, and write `databricks:scope/key`",
                code="secret_missing",
            )
        scope, _, key = reference.partition("/")
        sidecar.append({"name": name, "secret_scope": scope, "secret_key": key})
    return sidecar


def render_command(
    start: NodeStart, platform: PlatformTable, *, managed: bool = False, moves: bool = False
) -> str:
    """Return the bash script that runs one node.

    The same arguments give the same bytes. No text of the user's goes into it: names are of
    `launch_folder.FILES`, folders and attempts are quoted, and all else is a SHA-256 in hex or the
    platform's.

    Args:
        managed: whether the base environment promises torch, which may lie apart from `python3`.
        moves: whether the script finds its folder by itself, and does not name it.

    Raises:
        ValueError: something else came as one of these.
    """
    for digest in (start.agent, *start.files.values(), start.code, start.environment):
        if digest is not None and not _SHA256.fullmatch(digest):
            raise ValueError(f"not a SHA-256 in hex: {digest!r}")
    for name in start.files:
        if name not in FILES:
            raise ValueError(f"no file of a launch folder: {name!r}")
    around = start.back == f"{start.launch}/{BACK}"  # a node may have it mounted elsewhere
    places = () if around else (("--back", start.back),)
    return render(
        "databricks",
        "command.sh.j2",
        agent=start.agent,
        launch="" if moves else shlex.quote(start.launch),
        objects=f"$launch/{_OBJECTS}" if around else shlex.quote(start.objects),
        options=[shlex.join(option) for option in (*places, *start.options(platform))],
        managed=MANAGED_PYTHON if managed else "",
    )


def render_training_config(request: "LaunchRequest") -> str:
    """Return the text of the file that says what ran, for people. `air get` looks for it beside the
    command, and shows it; nothing reads it to run it.

    The fields are those of a workload of `air`, as far as a run has them; sgpu's own fields are
    below `sgpu`. Secrets are references there too.

    Raises:
        BackendError: tasks cannot choose the base environment.
    """
    config, inputs = request.config, request.inputs
    spec = inputs.spec.fields
    machines = machines_of(config)
    fields: dict[str, Json] = {
        "experiment_name": config.mlflow.experiment or config.name,
        "mlflow_run_name": config.mlflow.run_name or str(request.ref),
        "compute": {
            "num_accelerators": config.gpus,
            "accelerator_type": machines.accelerator if machines is not None else None,
        },
        "environment": _environment(config),
        "command": spec.get("command"),
        "env_variables": dict(config.env.variables),
        "secrets": {
            name: reference.partition(":")[2] for name, reference in config.env.secrets.items()
        },
        "parameters": spec.get("parameters"),
        "max_retries": retries_of(config),
        "timeout_minutes": math.ceil(config.timeout.seconds / 60) if config.timeout else None,
        "sgpu": _filled(
            {
                "run": str(request.ref),
                "entrypoint": config.entrypoint,
                "args": spec.get("args"),
                "code": inputs.code_digest,
                "environment": inputs.environment_digest,
                "git": dict(request.git),
            }
        ),
    }
    return _yaml(_filled(fields))


def _environment(config: RunConfig) -> Json:
    if config.image is not None:
        return {"image": config.image}
    spec = environment_of(config)
    return {"version" if key == "environment_version" else key: item for key, item in spec.items()}


def _filled(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Without what says nothing."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


def _yaml(fields: Mapping[str, Json]) -> str:
    import yaml

    class ConfigDumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    ConfigDumper.add_representer(str, text)
    return yaml.dump(dict(fields), Dumper=ConfigDumper, allow_unicode=True, sort_keys=False)

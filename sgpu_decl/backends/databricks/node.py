"""What nodes of a run on Databricks are given: the files of a launch folder, and the agent.

The contract with whoever stages them, all paths below the staging folder:

    objects/agent/SHA256.zip            `agent_zip`; the name is the SHA-256 of the bytes
    objects/packs/                      packs and indexes, as `environments.stored.packing` sends
                                        them, and beside them each manifest: `manifest_name`
    runs/LINEAGE/RUN/ATTEMPT/           a launch folder, three levels below `runs`: `node_files`

The platform extracts the code and says where in CODE_SOURCE_PATH, resolves the secrets that
`secret_env_vars.json` names, and runs `command.sh` on each node. What nodes bring back lies in the
launch folder, for each attempt of the platform's own (`max_retries`) anew:

    back/N/node_K/outcome.json          with events.log and status.json: those of node 0 are the
                                        run's, those of others say what they knew of it
    back/N/node_K/ranks/R/output.json   and output.pkl, which it names relative to its own folder
    back/N/node_K/ranks/R/RESTART/      error.json, error.pkl
    back/N/node_K/output/               what ranks left in SGPU_OUTPUT_DIR
    back/N/node_K/agent.log             the end of it, where the agent had something to say
    back/N/node_K/done                  last: JSON with `exit_code`, `mlflow_run_id` (which attempt
                                        of the platform's this was) and `left`, what was not brought

N counts from 0 the attempts of the platform that got as far as a node. One that comes after a
failure which `retry` does not cover brings nothing back and ends with the exit code of that.

The folder of a job is launched from again and again: N goes on counting, `back/N/first` says at
which N its launch began, and the newest `agent.hosted.attempts.KEPT` stay.

On a node's stdout a line of a rank begins with `[rank 3] `, or `[rank 3 err] ` if it was written to
stderr; all other lines are the agent's own. Variables of the run travel in `spec.json` alone.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import sgpu_decl.agent
from sgpu_decl.backends.base import Launching
from sgpu_decl.backends.calling import write_call
from sgpu_decl.backends.databricks.specifying import specify
from sgpu_decl.backends.databricks.submitting import retries_of
from sgpu_decl.config.run import RunConfig
from sgpu_decl.errors import BackendError
from sgpu_decl.model.address import Kind
from sgpu_decl.rendering.command import render_command
from sgpu_decl.rendering.entrypoint import AirStyle, render_air, render_call, render_warm
from sgpu_decl.rendering.spec import render_spec

__all__ = ["agent_zip", "manifest_name", "node_files"]

_PICKLES = ("func.pkl", "func.bin", "inputs.pkl", "inputs.bin")
_OLDEST = (1980, 1, 1, 0, 0, 0)  # what a zip can say


def node_files(
    launching: Launching,
    config: RunConfig,
    *,
    root: Path,
    nodes: int,
    scratch: Path,
    code: Path | None = None,
    environment: str | None = None,
) -> dict[str, bytes | Path]:
    """Return the files of a launch folder by name: bytes, or where a large one lies.

    Args:
        root: the folder that the entrypoint is relative to.
        nodes: how many there will be; ranks are shared evenly.
        scratch: an empty folder for what a call takes along, to be kept until that is uploaded.
        code: a folder with the code as it is pinned, to read what ranks can import once; None for
            no warm start.
        environment: the digest of the environment's manifest, `sha256:…`, where one is declared.

    Raises:
        BackendError: a secret is none of the platform's.
        OSError: the scratch folder takes nothing.
    """
    secrets = _secrets(config.env.secrets)
    spec = specify(
        launching, config, root=root, nodes=nodes, code=code, tree=environment is not None
    )
    raw = render_spec(spec)
    files: dict[str, bytes | Path] = {
        "spec.json": raw,
        "_air.py": render_air(_sha256(raw), AirStyle.NODES).encode(),
    }
    if spec.warm is not None and spec.warm.refused is None:
        files["_warm.py"] = render_warm().encode()
    if launching.call is not None:
        files["_call.py"] = render_call().encode()
        write_call(scratch, launching.call)
        files |= {name: scratch / name for name in _PICKLES if (scratch / name).exists()}
    command = render_command(
        agent_zip()[0],
        {name: _sha256(content) for name, content in files.items()},
        code=launching.code_digest is not None,
        environment=environment.removeprefix("sha256:") if environment is not None else None,
        starts=1 + retries_of(config) if launching.ref.address.kind is Kind.JOB else None,
    )
    files["command.sh"] = command.encode()
    if secrets:
        files["secret_env_vars.json"] = json.dumps(secrets, indent=1).encode()
    return files


@cache
def agent_zip() -> tuple[str, bytes]:
    """Return the archive that is the node agent, `python agent.zip …`, and its SHA-256 in hex.

    The same sources give the same bytes.
    """
    root = Path(sgpu_decl.agent.__file__).parent
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for module in sorted(root.rglob("*.py"), key=lambda it: it.relative_to(root).parts):
            entry = zipfile.ZipInfo(module.relative_to(root).as_posix(), _OLDEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, wherever it is made
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, module.read_bytes())
    data = packed.getvalue()
    return _sha256(data), data


def manifest_name(digest: str) -> str:
    """The name of a manifest's file among the packs, by its digest, `sha256:…`."""
    return f"{digest.removeprefix('sha256:')}.manifest"


def _secrets(references: Mapping[str, str]) -> list[dict[str, str]]:
    """What the platform's launcher reads of secrets: where their values are, never the values."""
    found = []
    for name, text in references.items():
        scheme, _, reference = text.partition(":")
        if scheme != "databricks":
            raise BackendError(
                f"secret `{name}` refers to `{text}`, which nodes on Databricks cannot resolve",
                hint="put it into a secret scope, and write `databricks:scope/key`",
                code="secret_missing",
            )
        scope, _, key = reference.partition("/")
        found.append({"name": name, "secret_scope": scope, "secret_key": key})
    return found


def _sha256(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

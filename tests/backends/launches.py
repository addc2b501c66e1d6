"""Launches for tests of backends: what a test does not say is the least that a launch has."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sgpu_decl.backends.databricks.launching.workspace_node_program import WorkspaceNodeProgram
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.remote.launching.launch_folder import launch_files
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.content.code_tree import code_digest
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.call import Call
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord

__all__ = ["code_of", "launching_of", "workspace_files_of"]


def code_of(source: str) -> str:
    """The digest of code that is a `main.py` with that source."""
    content = source.encode()
    entry = ("main.py", hashlib.sha256(content).hexdigest(), len(content), False, None)
    return f"sha256:{code_digest([entry])}"


def launching_of(
    *,
    ref: AttemptRef | None = None,
    token: str = "t",
    lineage: str = "lineage",
    call: Call | None = None,
    spec: str = "{}",
    after: Sequence[AttemptRef] = (),
    **inputs: Any,
) -> LaunchRequest:
    record = LaunchRecord(
        ref=ref or AttemptRef(Address.run("test"), 1),
        backend="databricks",
        token=token,
        lineage=lineage,
        owner="run.yaml",
        inputs=LaunchInputs(spec=Spec(spec), fingerprint="", **inputs),
        after=tuple(after),
    )
    return LaunchRequest(record=record, call=call)


def workspace_files_of(
    request: LaunchRequest, *, nodes: int, folder: str, **given: Any
) -> dict[str, bytes | Path]:
    """The files of a launch folder on Databricks, for that many nodes."""

    class Nodes(WorkspaceNodeProgram):
        def nodes(self, request: LaunchRequest) -> int:
            return nodes

    layout = RemoteLayout(folder.rsplit("/runs/", 1)[0])
    return launch_files(request, Nodes(), layout, folder, project=Path(), **given)

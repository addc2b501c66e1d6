"""From a task to the programs of its nodes: folders, code, variables."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgpu_decl.testing.workspace.executing import code_source
from sgpu_decl.testing.workspace.executing.inline_variables import inline_variables
from sgpu_decl.testing.workspace.executing.node import NodeSpec
from sgpu_decl.testing.workspace.executing.node_environment import (
    Position,
    inherited,
    node_environment,
)
from sgpu_decl.testing.workspace.executing.places import Places
from sgpu_decl.testing.workspace.executing.sidecars import (
    HYPERPARAMETERS,
    Unprepared,
    variables,
)
from sgpu_decl.testing.workspace.executing.workload import Workload
from sgpu_decl.testing.workspace.tenant import Tenant
from sgpu_decl.testing.workspace.volumes import volume_tree
from sgpu_decl.testing.workspace.workspace_objects import WorkspaceObjects

__all__ = ["Preparation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What nodes are made ready from. `scratch` is the folder of the attempt; `given` are variables
    from the workspace itself: where MLflow and the API are, and with which token."""

    tenant: Tenant
    scratch: Path
    settings: Mapping[str, Any]
    task: Mapping[str, Any]
    workload: Workload
    python: str
    rooted: bool
    given: Mapping[str, str]

    def node(self, position: Position) -> NodeSpec:
        """The program of one node, its folders in place.

        Raises:
            Unprepared: something that the task names is missing or makes no sense.
        """
        own = self.scratch / f"node_{position.node}"
        local, root = own / "local", own / "root"
        for folder in (local / "home", local / "tmp", root):
            folder.mkdir(parents=True)
        workspace = WorkspaceObjects(self.tenant).file("/")
        trees = {"Workspace": workspace, "Volumes": volume_tree(self.tenant)}
        places = Places(trees=trees, local=local, rooted=self.rooted)
        environment = {
            **inherited(self.python, places.local_on_node("home")),
            **self._scratch(places),
            **node_environment(position),
            **self.given,
            **self._code(places),
            **self._beside(places),
            **inline_variables(self.tenant, self.settings, self.task),
        }
        return NodeSpec(
            argv=self._argv(places),
            environment=environment,
            cwd=places.local_on_node("home"),
            root=root if self.rooted else None,
            folders=places.folders if self.rooted else {},
        )

    def clear(self) -> None:
        """Delete what only running nodes need."""
        for own in self.scratch.glob("node_*"):
            shutil.rmtree(own, ignore_errors=True)

    def _argv(self, places: Places) -> tuple[str, ...]:
        program = self.workload.program
        self._existing(places, program)
        on_node = places.on_node(program)
        if self.workload.python:
            return ("python", on_node, *self.workload.arguments)
        return ("bash", "-euo", "pipefail", on_node)

    def _scratch(self, places: Places) -> dict[str, str]:
        """What is left there goes with the node. Only in a root of its own is that path a short
        one: sockets, which many programs have there, take no more than 107 bytes."""
        return {"TMPDIR": places.local_on_node("tmp")} if self.rooted else {}

    def _code(self, places: Places) -> dict[str, str]:
        archive = self.workload.code_source
        if not archive:
            return {}
        extracted = places.local / "code_source"
        top = code_source.extract(self._existing(places, archive), extracted)
        return {"CODE_SOURCE_PATH": places.local_on_node(f"code_source/{top}")}

    def _beside(self, places: Places) -> dict[str, str]:
        """What lies beside the command."""
        if self.workload.python:
            return {}
        folder = os.path.dirname(self.workload.program)
        found = variables(self.tenant, places.on_disk(folder))
        path = f"{folder}/{HYPERPARAMETERS}"
        if places.on_disk(path).is_file():
            found["HYPERPARAMETERS_PATH"] = places.on_node(path)
        return found

    def _existing(self, places: Places, path: str) -> Path:
        try:
            file = places.on_disk(path)
        except ValueError as error:
            raise Unprepared(str(error)) from None
        if not file.is_file():
            raise Unprepared(f"{path} does not exist")
        return file

"""From a task to the programs of its nodes: folders, code, variables."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgpu_decl.agent.probe.node_facts import MANAGED_ENVIRONMENT
from sgpu_decl.model.assumptions import Profile
from sgpu_decl.testing.refused_calls import REFUSABLE
from sgpu_decl.testing.workspace.executing import code_source
from sgpu_decl.testing.workspace.executing.inline_variables import inline_variables
from sgpu_decl.testing.workspace.executing.node import NodeSpec
from sgpu_decl.testing.workspace.executing.node_access import NodeAccess
from sgpu_decl.testing.workspace.executing.node_behaviour import NodeBehaviour
from sgpu_decl.testing.workspace.executing.node_environment import (
    Position,
    inherited,
    node_environment,
)
from sgpu_decl.testing.workspace.executing.places import NodePlaces
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
    """What nodes are made ready from. `scratch` is the folder of the attempt; `access` is how
    they find the workspace."""

    tenant: Tenant
    scratch: Path
    settings: Mapping[str, Any]
    task: Mapping[str, Any]
    workload: Workload
    python: str
    rooted: bool
    access: NodeAccess
    profile: Profile = field(default_factory=Profile)

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
        places = NodePlaces(trees=trees, local=local, rooted=self.rooted)
        bare = self._bare_python(places)
        if self.profile.flag("node-credentials"):  # evidence: A18, C16
            if self.profile.flag("node-mlflow-tree"):  # evidence: C15
                self.access.write_profile(local / "home")
            else:
                bare = self._knowing_python(places)
        environment = {
            **inherited(bare or self.python, places.local_on_node("home")),
            **self._scratch(places),
            **node_environment(position),
            **self.access.variables,
            **self._code(places),
            **self._beside(places),
            **inline_variables(self.tenant, self.settings, self.task),
        }
        behaviour = NodeBehaviour(self.profile)
        return NodeSpec(
            argv=behaviour.argv(self._argv(places), places.on_disk(self.workload.program)),
            environment=behaviour.environment(environment),
            cwd=places.local_on_node("home"),
            root=root if self.rooted else None,
            folders={**places.folders, **self._managed(bare)} if self.rooted else {},
            refused=tuple(sorted({*REFUSABLE} - {*self.profile.texts("node-system-calls")})),
            read_only=behaviour.read_only,
        )

    def clear(self) -> None:
        """Delete what only running nodes need."""
        for own in (*self.scratch.glob("node_*"), self.scratch / "environment"):
            shutil.rmtree(own, ignore_errors=True)

    def _argv(self, places: NodePlaces) -> tuple[str, ...]:
        program = self.workload.program
        self._existing(places, program)
        on_node = places.on_node(program)
        if self.workload.notebook is not None:
            runner = Path(__file__).with_name("run_notebook.py")
            shutil.copyfile(runner, places.local / runner.name)
            parameters = json.dumps(self.workload.notebook)
            return ("python", places.local_on_node(runner.name), on_node, parameters)
        if self.workload.python:
            return ("python", on_node, *self.workload.arguments)
        return ("bash", "-euo", "pipefail", on_node)

    def _bare_python(self, places: NodePlaces) -> str | None:
        """An interpreter without packages, if a base of the family `ai` has no other on its PATH
        (evidence: C5)."""
        keys = {one["environment_key"]: one for one in self.settings.get("environments") or ()}
        spec = keys.get(self.task.get("environment_key"), {}).get("spec") or {}
        if "base_environment" not in spec or self.profile.flag("ai-base-python"):
            return None
        return self._own_python(places)

    def _own_python(self, places: NodePlaces) -> str:
        folder = places.local / "base"
        (folder / "bin").mkdir(parents=True)
        version = ".".join(map(str, sys.version_info[:2]))
        (folder / "lib" / f"python{version}" / "site-packages").mkdir(parents=True)
        real = Path(self.python).resolve()
        (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\n")
        for name in ("python", "python3"):
            (folder / "bin" / name).symlink_to(real)
        return places.local_on_node("base/bin/python3")

    def _knowing_python(self, places: NodePlaces) -> str:
        """An interpreter that has the packages of the usual one, and credentials that no other
        interpreter of the node finds: they are in a module of its own."""
        python = self._own_python(places)
        usual = Path(self.python).parent.parent / "lib"
        (own,) = (places.local / "base" / "lib").glob("python3*/site-packages")
        lines = [
            f"import site; site.addsitedir({str(path)!r})" for path in usual.glob("python3*/*")
        ]
        values = {"DATABRICKS_HOST": self.access.url, "DATABRICKS_TOKEN": self.access.token}
        lines.append(f"import os; os.environ.update({values!r})")
        (own / "platform.pth").write_text("\n".join(lines) + "\n")
        return python

    def _managed(self, bare: str | None) -> dict[str, str]:
        """The platform's own environment lies elsewhere then."""
        home = os.path.dirname(os.path.dirname(self.python))
        return {} if bare is None else {MANAGED_ENVIRONMENT: home}

    def _scratch(self, places: NodePlaces) -> dict[str, str]:
        """What is left there goes with the node. Only in a root of its own is that path a short
        one: sockets, which many programs have there, take no more than 107 bytes."""
        return {"TMPDIR": places.local_on_node("tmp")} if self.rooted else {}

    def _code(self, places: NodePlaces) -> dict[str, str]:
        archive = self.workload.code_source
        if not archive:
            return {}
        extracted = places.local / "code_source"
        top = code_source.extract(self._existing(places, archive), extracted)
        return {"CODE_SOURCE_PATH": places.local_on_node(f"code_source/{top}")}

    def _beside(self, places: NodePlaces) -> dict[str, str]:
        """What lies beside the command."""
        if self.workload.python:
            return {}
        folder = os.path.dirname(self.workload.program)
        resolves = self.profile.flag("node-secrets")
        found = variables(self.tenant, places.on_disk(folder), secrets=resolves)
        path = f"{folder}/{HYPERPARAMETERS}"
        if places.on_disk(path).is_file():
            found["HYPERPARAMETERS_PATH"] = places.on_node(path)
        return found

    def _existing(self, places: NodePlaces, path: str) -> Path:
        try:
            file = places.on_disk(path)
        except ValueError as error:
            raise Unprepared(str(error)) from None
        if not file.is_file():
            raise Unprepared(f"{path} does not exist")
        return file

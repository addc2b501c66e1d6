"""A call as a run: the settings of its decorator over the `functions` of the project."""

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgpu_decl.config.call_config import declare_call
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.call_errors import refuse
from sgpu_decl.functions.call_settings import DEFAULT_TIMEOUT, Settings
from sgpu_decl.functions.caller import Parent
from sgpu_decl.functions.origin import Origin
from sgpu_decl.gpus.devices import read_devices
from sgpu_decl.model.backend_kinds import DEFAULT, remote_kind
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.jsonable import Json
from sgpu_decl.planning.project import Project
from sgpu_decl.planning.project_file import Validated, overrides_of
from sgpu_decl.planning.project_text import ProjectText

if TYPE_CHECKING:
    from sgpu_decl.planning.checkout import Checkout

PROJECT_FILE = "sgpu.yml"
KEEP_WARM = "2m"  # in notebooks, where the next call is likely to come


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The call's fields of a run; `arguments` are described as JSON."""

    origin: Origin
    settings: Settings
    arguments: Mapping[str, Json]
    parent: Parent

    def read(self, project: Project, checkout: "Checkout") -> "Validated":
        """Validate the call as a run file.

        Raises:
            InvalidInput: the decorator, or the project file, holds errors.
        """
        file = project.root / PROJECT_FILE
        parsed = ProjectText(file, os.path.relpath(file)).parsed if file.is_file() else None
        if parsed is None and project.target is not None:
            raise InvalidInput(
                f"`{self.origin.name}` cannot be called: there is no target `{project.target}`",
                hint=f"declare it under `targets` in `{file}`, or leave the target out",
                code="unknown_target",
            )
        loaded, findings = declare_call(
            self._run_fields(),
            name=self.origin.name,
            place=self.origin.place,
            spelled=self.settings.parameters,
            fallback=self._fallback(),
            project=parsed,
            overrides=overrides_of(project, checkout),
            captured=self.settings.remote and _as_on_nodes(),
        )
        if loaded is None:
            raise refuse(self.origin.name, findings)
        return Validated(loaded=loaded, findings=findings)

    def _run_fields(self) -> dict[str, Json]:
        fields: dict[str, Json] = {
            **self.settings.run_fields(),
            "entrypoint": self.origin.entrypoint,
            "until": "always",
            "on_active": "parallel",
        }
        if self.arguments:
            fields["args"] = dict(self.arguments)
        if not self.settings.remote:
            fields["backend"] = DEFAULT
        if self.parent.nested:
            fields["mlflow"] = {"experiment": self.parent.experiment}
        return fields

    def _fallback(self) -> dict[str, Json]:
        fallback: dict[str, Json] = {"mlflow": self._mlflow()}
        if self.settings.remote:
            return {**fallback, "backend": remote_kind().name}
        if "ipykernel" in sys.modules:
            fallback["keep_warm"] = KEEP_WARM
        return {**fallback, **_of_this_machine(), "timeout": f"{DEFAULT_TIMEOUT:g}s"}

    def _mlflow(self) -> dict[str, Json]:
        block: dict[str, Json] = {"run_name": self.origin.name}
        if self.parent.experiment is not None and (
            self.parent.explicit or not self.settings.remote
        ):
            block["experiment"] = self.parent.experiment
        if self.parent.store is not None and not self.settings.remote:
            block["tracking_uri"] = self.parent.store
        return block


def _as_on_nodes() -> bool:
    """Whether what is installed here can work on nodes, which are x86-64 under Linux."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def _of_this_machine() -> dict[str, Json]:
    """All GPUs of this machine; one rank without a GPU where it has none."""
    count = len(read_devices().visible)
    return {"type": (GPUType.GPU if count else GPUType.CPU).name, "gpus": count or 1}

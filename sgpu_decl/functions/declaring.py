"""A call as a run: the settings of its decorator, the project's `functions`, what else it needs."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from sgpu_decl.api import Validated
from sgpu_decl.applying.opening import Opened
from sgpu_decl.errors import InvalidInput
from sgpu_decl.functions.origin import Origin
from sgpu_decl.functions.refusing import refuse
from sgpu_decl.functions.settings import DEFAULT_TIMEOUT, Settings
from sgpu_decl.functions.tracking import Parent
from sgpu_decl.model.jsonable import Json

__all__ = ["Declaration"]

PROJECT_FILE = "sgpu.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a call says of its run; `arguments` are those that readers see."""

    origin: Origin
    settings: Settings
    arguments: Mapping[str, Json]
    parent: Parent
    target: str | None

    def read(self, opened: Opened) -> Validated:
        """What a run file of this call would say.

        Raises:
            InvalidInput: the decorator, or the project file, holds errors.
        """
        from sgpu_decl.applying.reading import git_facts, read_bytes
        from sgpu_decl.config.calling import declare_call

        file = opened.root / PROJECT_FILE
        project = (read_bytes(file), os.path.relpath(file)) if file.is_file() else None
        if project is None and self.target is not None:
            raise InvalidInput(
                f"`{self.origin.name}` cannot be called: there is no target `{self.target}`",
                hint=f"declare it under `targets` in `{file}`, or leave the target out",
                code="unknown_target",
            )
        loaded, findings = declare_call(
            self._given(),
            name=self.origin.name,
            place=self.origin.place,
            spelled=self.settings.spelled,
            fallback=self._fallback(),
            project=project,
            target=self.target,
            variables=(),
            sets=(),
            environ=os.environ,
            git=lambda: git_facts(opened.root),
        )
        if loaded is None:
            raise refuse(self.origin.name, findings)
        return Validated(loaded=loaded, findings=findings, source="")

    def _given(self) -> dict[str, Json]:
        given: dict[str, Json] = {
            **self.settings.given(),
            "entrypoint": self.origin.entrypoint,
            "until": "always",
            "on_active": "parallel",
        }
        if self.arguments:
            given["args"] = dict(self.arguments)
        if not self.settings.remote:
            given["backend"] = "local"
        if self.parent.nested:
            given["mlflow"] = {"experiment": self.parent.experiment}
        return given

    def _fallback(self) -> dict[str, Json]:
        fallback: dict[str, Json] = {"mlflow": self._mlflow()}
        if self.settings.remote:
            return {**fallback, "backend": "databricks"}
        return {**fallback, **_of_this_machine(), "timeout": f"{DEFAULT_TIMEOUT:g}s"}

    def _mlflow(self) -> dict[str, Json]:
        named: dict[str, Json] = {"run_name": self.origin.name}
        if self.parent.experiment is not None:
            named["experiment"] = self.parent.experiment
        return named


def _of_this_machine() -> dict[str, Json]:
    """All GPUs of this machine; one rank without a GPU where it has none."""
    from sgpu_decl.backends.local.devices import visible_devices
    from sgpu_decl.model.gpu import GPUType

    devices = visible_devices()
    if not devices:
        return {"type": GPUType.CPU.name, "gpus": 1}
    models = " ".join(device.model.upper() for device in devices)
    known = (kind.name for kind in GPUType if kind is not GPUType.CPU and kind.name in models)
    return {"type": next(known, GPUType.A10.name), "gpus": len(devices)}

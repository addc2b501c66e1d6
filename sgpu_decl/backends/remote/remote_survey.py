"""What planning asks of every remote backend: rules that need no platform, the Python that
environments are made from, and the warning for a platform that does not answer."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from sgpu_decl.backends.base import Survey
from sgpu_decl.config.cross_field import ORIGINS
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.interpreters import NoPython, Pythons, interpreter_of
from sgpu_decl.errors import SgpuError
from sgpu_decl.model.desired import Interpreter

if TYPE_CHECKING:
    from sgpu_decl.config.env import Env
    from sgpu_decl.config.run import RunConfig

Places = Mapping[str, Place]

_USED: Mapping[str, Callable[["RunConfig"], bool]] = MappingProxyType(
    {
        "max_parallel": lambda config: config.max_parallel is not None,
        "code.link": lambda config: bool(config.code.link),
        "mlflow.tracking_uri": lambda config: config.mlflow.tracking_uri is not None,
        "mlflow.enabled": lambda config: not config.mlflow.enabled,
        "mlflow.system_metrics": lambda config: not config.mlflow.system_metrics,
    }
)
"""Whether a run uses a field that a platform may not have."""


def unsupported_findings(
    config: "RunConfig", places: Places, unsupported: Mapping[str, tuple[str, str]], *, called: bool
) -> Iterator[Diagnostic]:
    """Fields that mean nothing on a platform.

    Args:
        unsupported: those fields, each with the reason and the way out.
        called: the run is a function of this process: the caller counts its calls itself.
    """
    for field, (summary, hint) in unsupported.items():
        if _USED[field](config) and not (called and field == "max_parallel"):
            yield Diagnostic(
                code="unsupported_field", summary=summary, place=places.get(field), hint=hint
            )


def entrypoint_findings(config: "RunConfig", places: Places, folder: Path) -> Iterator[Diagnostic]:
    """Whether the file that ranks run is uploaded. Paths in the config start from `folder`."""
    root = (folder / (config.code.root or ".")).resolve()
    target = (config.entrypoint or "").partition(":")[0]
    if target.endswith(".py") and not (root / target).resolve().is_relative_to(root):
        yield Diagnostic(
            code="entrypoint_outside",
            summary=f"`{target}` lies outside of the code root, and only files in it are uploaded",
            place=places.get("entrypoint"),
            hint="move it, or set `code.root` to a folder above it",
        )


def storage_findings(folder: str, places: Places) -> Iterator[Diagnostic]:
    """Whether this machine can use a folder that it shares with the nodes."""
    fault = None
    if not os.path.exists(folder):
        fault = "is not there"
    elif not os.path.isdir(folder):
        fault = "is not a folder"
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        fault = "is not writable"
    if fault is not None:
        yield Diagnostic(
            code="bad_storage",
            summary=f"`storage: {folder}` {fault} on this machine",
            place=places.get("backend.storage"),
            hint="mount it, or name another folder that this machine and all nodes have",
        )


class RemoteSurvey(Survey):
    """Nodes have the Python that ranks use. An environment is made by one of this machine, and
    sent."""

    sent: tuple[str, ...] = ORIGINS
    """The fields of `env` that lead to an environment which is made here."""

    def __init__(self, pythons: Callable[[], Pythons]) -> None:
        self._pythons = pythons
        self._reported: set[str] = set()

    def interpreter(self, env: "Env", folder: Path) -> Interpreter | None:
        python = self.python(env, folder)
        return python if isinstance(python, Interpreter) else None

    def python(self, env: "Env", folder: Path) -> Interpreter | NoPython | None:
        """The Python of this machine that an environment is made by, or why there is none; None
        where none is made."""
        if any(getattr(env, name) for name in self.sent):
            return interpreter_of(env.python, folder, self._pythons)
        return None

    def unanswered(
        self, platform: str, error: SgpuError, then: str, place: Place | None
    ) -> list[Diagnostic]:
        """The warning that a platform could not be asked, once: a plan can be made without it, and
        is not complete.

        Args:
            then: what an apply would do.
        """
        if error.message in self._reported:
            return []
        self._reported.add(error.message)
        summary = f"the {platform} could not be asked whether it takes the run ({error.message}); "
        warning = Diagnostic(
            code=error.code,
            severity=Severity.WARNING,
            summary=f"{summary}{then}",
            place=place,
            hint=error.hint,
            incomplete=True,
        )
        return [warning]

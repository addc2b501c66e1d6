"""Whether this machine can run what a run asks for, said at plan time."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sgpu_decl.agent.attempt.relocation import LEADING
from sgpu_decl.agent.host.gpu_users import gpu_users, in_words
from sgpu_decl.agent.ray.ray_object_store import default_store, shared_memory
from sgpu_decl.agent.system import host_locks, kernel_features
from sgpu_decl.agent.system.processes import ancestors
from sgpu_decl.backends.base import Survey
from sgpu_decl.backends.device_checks import (
    HERE,
    device_findings,
    gpu_offers,
    rank_findings,
    user_findings,
)
from sgpu_decl.backends.local.program_check import ProgramCheck
from sgpu_decl.backends.local.tracking_checks import check_tracking
from sgpu_decl.backends.secret_resolution import missing_secrets
from sgpu_decl.control_groups import usable_processors
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.environments.interpreters import Pythons, interpreter_of
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.gpu import GPUType
from sgpu_decl.model.gpu_offer import GpuOffer
from sgpu_decl.model.ray_size import NodeShape

if TYPE_CHECKING:
    from sgpu_decl.backends.local.options import LocalOptions
    from sgpu_decl.config.backend import BackendOptions
    from sgpu_decl.config.env import Env
    from sgpu_decl.config.run import RunConfig
    from sgpu_decl.gpus.devices import Devices

_SHARES = (
    "choose devices with `CUDA_VISIBLE_DEVICES`, or share them: "
    "`backend: {kind: local, share_gpus: true}`"
)


class LocalSurvey(Survey):
    """What this machine has."""

    def __init__(self, environ: Mapping[str, str], pythons: Callable[[], Pythons]) -> None:
        self._environ = environ
        self._pythons = pythons
        self._programs = ProgramCheck(environ)
        self._said_missing = False
        self._packages: dict[str, bool] = {}

    @cached_property
    def devices(self) -> "Devices":
        """Read once: drivers take their time."""
        from sgpu_decl.gpus.devices import read_devices

        return read_devices(self._environ)

    def interpreter(self, env: "Env", folder: Path) -> Interpreter | None:
        python = interpreter_of(env.python, folder, self._pythons)
        return python if isinstance(python, Interpreter) else None

    def nodes(self, config: "RunConfig") -> NodeShape:
        gpus = 0 if config.type.kind is GPUType.CPU else config.gpus
        if sys.platform != "linux":
            return NodeShape(nodes=1, gpus=gpus)
        return NodeShape(
            nodes=1,
            gpus=gpus,
            cpus=usable_processors(),
            store=self._room[0],
            shm=self._room[1],
        )

    def offers(self, block: "BackendOptions") -> Sequence[GpuOffer]:
        shares = cast("LocalOptions", block).share_gpus
        return gpu_offers(self.devices, lambda: self._users, HERE, shares=shares)

    @cached_property
    def _room(self) -> tuple[int, int]:
        """The bytes of an object store of Ray, and those that are free in shared memory: read once,
        since runs of one plan that ask for the same get the same."""
        return default_store(), shared_memory()

    def rules(
        self,
        config: "RunConfig",
        places: Mapping[str, Place],
        folder: Path,  # noqa: ARG002  the protocol's
    ) -> Sequence[Diagnostic]:
        return rank_findings(config, places)

    def check(
        self,
        config: "RunConfig",
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,
    ) -> Sequence[Diagnostic]:
        return [
            *self._check_python(config, places, folder),
            *self._check_variables(config, places),
            *self._programs.check(config, places, folder),
            *device_findings(config, places, lambda: self.devices),
            *user_findings(
                config,
                places,
                lambda: self.devices,
                lambda: self._users,
                shares=None if cast("LocalOptions", config.backend).share_gpus else _SHARES,
            ),
            *missing_secrets(config.secrets, places, self._environ, folder),
            *self._tracking(config, places, called=called),
            *self._of_machine,
        ]

    @cached_property
    def _users(self) -> Mapping[str, str]:
        """Who else uses each device: read once."""
        users = gpu_users([item.index for item in self.devices.visible], ancestors(os.getpid()))
        return {device: in_words(device, found) for device, found in users.items()}

    def _check_variables(
        self, config: "RunConfig", places: Mapping[str, Place]
    ) -> Sequence[Diagnostic]:
        """Name the variables of this shell that ranks of a declared environment do not get."""
        env = config.env
        names = [name for name in LEADING if self._environ.get(name) and name not in env.variables]
        if not names or not (env.origins or env.use):
            return ()
        return (
            Diagnostic(
                code="python_path_left_out",
                severity=Severity.WARNING,
                summary=f"ranks do not get `{'`, `'.join(names)}` of this shell, which may lead to "
                "packages that the declared environment does not pin",
                place=places.get("env"),
                hint="declare the packages; for modules of the code, write a path that starts at "
                "its root: `env: {variables: {PYTHONPATH: src}}`",
            ),
        )

    def _tracking(
        self, config: "RunConfig", places: Mapping[str, Place], *, called: bool
    ) -> Iterator[Diagnostic]:
        """What is wrong with the tracking of a run. That MLflow is missing is said once, unless a
        run cannot do without it."""
        for finding in check_tracking(config, places, called=called, installed=self._installed):
            if finding.code != "mlflow_missing" or finding.severity is Severity.ERROR:
                yield finding
            elif not self._said_missing:
                self._said_missing = True
                yield finding

    def _installed(self, package: str) -> bool:
        """Whether the interpreter of sgpu has a package: looked for once, whatever number of runs
        need it."""
        if package not in self._packages:
            self._packages[package] = find_spec(package) is not None
        return self._packages[package]

    @cached_property
    def _of_machine(self) -> tuple[Diagnostic, ...]:
        """What holds for every run, looked at once."""
        return (*_check_locks(), *_check_kernel())

    def _check_python(
        self, config: "RunConfig", places: Mapping[str, Place], folder: Path
    ) -> Sequence[Diagnostic]:
        if config.env.python is None:
            return ()
        python = interpreter_of(config.env.python, folder, self._pythons)
        if not isinstance(python, Interpreter):
            return (python.diagnostic(places.get("env.python")),)
        if config.command is None or config.ray is not None:
            return ()  # the driver of a Ray cluster finds the cluster's Python
        if config.env.origins or config.env.use:
            return ()
        return (
            Diagnostic(
                code="python_unused",
                severity=Severity.WARNING,
                summary="a command finds `python` on the PATH, whatever `env.python` says",
                place=places.get("env.python"),
                hint=f"write `{python.executable}` into the command, or declare an environment "
                "(`env.lock`, `env.requirements`, …), which comes first on the PATH",
            ),
        )


def _check_locks() -> list[Diagnostic]:
    """Warn if the locks of this host are not in the usual folder."""
    folder = host_locks.taken_folder()
    if folder is None:
        return []
    try:
        home = host_locks.host_lock_home()
    except OSError as error:
        return [Diagnostic(code="no_lock_folder", summary=str(error))]
    return [
        Diagnostic(
            code="locks_elsewhere",
            severity=Severity.WARNING,
            summary=f"`{folder}` can be changed by other users, so the locks of ports and GPUs "
            f"lie in `{home}`",
            hint="runs that started earlier do not use these locks; have the folder removed if "
            "nobody needs it",
        )
    ]


def _check_kernel() -> list[Diagnostic]:
    """Say what supervisors on this machine have to do without, and what that costs."""
    lacking = kernel_features.shortcomings()
    if not lacking:
        return []
    return [
        Diagnostic(
            code="kernel_lacks",
            severity=Severity.INFO,
            summary=kernel_features.in_words(lacking),
            hint="in a container, allow these system calls in its seccomp profile",
        )
    ]

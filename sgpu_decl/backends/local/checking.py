"""Whether this machine can run what a run asks for, said at plan time."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from sgpu_decl.backends.interpreting import interpreter_of
from sgpu_decl.backends.local.devices import visible_devices
from sgpu_decl.backends.local.secrets import look
from sgpu_decl.config.env import Env
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.desired import Interpreter
from sgpu_decl.model.pool import PoolChoice
from sgpu_decl.staging.snapshot import Snapshot

__all__ = ["LocalSurvey", "check_machine"]

# One supervisor holds a pidfd of each rank and makes three files for it: far below this a machine
# has neither the cores nor the descriptors for them.
_MOST_RANKS = 4096


class LocalSurvey:
    """See `backends.base.Survey`."""

    elsewhere = False

    def expect(self, config: RunConfig) -> None:
        pass

    def interpreter(self, env: Env, folder: Path) -> Interpreter | None:
        return interpreter_of(env.python, folder)

    def pool(
        self,
        config: RunConfig,  # noqa: ARG002  the protocol's
    ) -> tuple[PoolChoice | None, Sequence[Diagnostic]]:
        return None, ()

    def check(
        self,
        config: RunConfig,
        places: Mapping[str, Place],
        folder: Path,
        *,
        called: bool,  # noqa: ARG002  the protocol's
    ) -> Sequence[Diagnostic]:
        return check_machine(config, places, folder, os.environ)

    def check_code(
        self,
        config: RunConfig,  # noqa: ARG002  the protocol's
        places: Mapping[str, Place],  # noqa: ARG002
        code: Snapshot,  # noqa: ARG002
    ) -> Sequence[Diagnostic]:
        return ()  # what runs here is looked at by everybody


def check_machine(
    config: RunConfig, places: Mapping[str, Place], folder: Path, environ: Mapping[str, str]
) -> list[Diagnostic]:
    """Return what stands in the way of running `config`, declared in `folder`, here."""
    return [
        *_check_python(config, places, folder),
        *_check_devices(config, places),
        *_check_secrets(config, places, environ),
    ]


def _check_python(config: RunConfig, places: Mapping[str, Place], folder: Path) -> list[Diagnostic]:
    if interpreter_of(config.env.python, folder) is not None:
        return []
    return [
        Diagnostic(
            code="python_missing",
            summary=f"this machine has no Python `{config.env.python}`",
            place=places.get("env.python"),
            hint="install it on the PATH, name an interpreter by its path, or leave `env.python` "
            "out: ranks then use the Python that runs `sgpu`",
        )
    ]


def _check_ranks(config: RunConfig, places: Mapping[str, Place]) -> list[Diagnostic]:
    if config.gpus <= _MOST_RANKS:
        return []
    return [
        Diagnostic(
            code="too_many_ranks",
            summary=f"`gpus: {config.gpus}` asks for more than {_MOST_RANKS:,} processes on this "
            "machine",
            place=places.get("gpus"),
            hint="each rank is a process with open logs of its own; use fewer, or a target with "
            "another backend",
        )
    ]


def _check_secrets(
    config: RunConfig, places: Mapping[str, Place], environ: Mapping[str, str]
) -> list[Diagnostic]:
    """Warnings only: a plan may be applied where its secrets are."""
    return [
        Diagnostic(
            code="secret_missing",
            severity=Severity.WARNING,
            summary=f"{missing.summary}: `apply` here would refuse",
            place=places.get(f"env.secrets.{name}"),
            hint=missing.hint,
        )
        for name, reference in config.env.secrets.items()
        if (missing := look(name, reference, environ)) is not None
    ]


def _check_devices(config: RunConfig, places: Mapping[str, Place]) -> list[Diagnostic]:
    wanted = config.type.name
    per_rank = str(config.launch.per) == "rank"
    if wanted == "CPU":
        return _check_ranks(config, places) if per_rank else []
    devices = visible_devices()
    if not devices:
        return [
            Diagnostic(
                code="no_gpu",
                summary=f"`type: {wanted}` needs an NVIDIA GPU, and this machine has none",
                place=places.get("type"),
                hint="use `type: CPU` here (`--set type=CPU`), or a target with another backend",
            )
        ]
    if config.gpus > len(devices) and per_rank:
        return [
            Diagnostic(
                code="too_few_gpus",
                summary=f"`gpus: {config.gpus}` is more than the {len(devices)} of this machine",
                place=places.get("gpus"),
                hint=f"use `gpus: {len(devices)}` here, or a target with another backend",
            )
        ]
    models = sorted({device.model for device in devices if device.model})
    if models and not any(wanted.upper() in model.upper() for model in models):
        return [
            Diagnostic(
                code="other_gpu",
                severity=Severity.WARNING,
                summary=f"`type: {wanted}` will run on {', '.join(models)}, which this machine has",
                place=places.get("type"),
            )
        ]
    return []

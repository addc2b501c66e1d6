"""The Slurm backend as the engine knows it."""

from typing import TYPE_CHECKING

from sgpu_decl.model.backend_kinds import BackendKind, Capabilities

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.base import Backend
    from sgpu_decl.config.backend import BackendOptions


def _options() -> "type[BackendOptions]":
    from sgpu_decl.backends.slurm.options import SlurmOptions

    return SlurmOptions


def _open(context: "BackendContext") -> "Backend":
    from sgpu_decl.backends.slurm.slurm_backend import open_slurm

    return open_slurm(context)


def _check_reference(reference: str) -> None:
    from sgpu_decl.backends.remote.launching.remote_reference import check_reference

    check_reference(reference)


KIND = BackendKind(
    name="slurm",
    options=_options,
    capabilities=Capabilities(remote=True, fields=frozenset({"after", "resume"})),
    open=_open,
    check_reference=_check_reference,
)

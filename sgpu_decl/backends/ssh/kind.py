"""The backend of machines that ssh reaches, as the engine knows it."""

from typing import TYPE_CHECKING

from sgpu_decl.model.backend_kinds import BackendKind, Capabilities

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.base import Backend
    from sgpu_decl.config.backend import BackendOptions


def _options() -> "type[BackendOptions]":
    from sgpu_decl.backends.ssh.options import SshOptions

    return SshOptions


def _open(context: "BackendContext") -> "Backend":
    from sgpu_decl.backends.ssh.ssh_backend import open_ssh

    return open_ssh(context)


def _check_reference(reference: str) -> None:
    from sgpu_decl.backends.remote.launching.remote_reference import check_reference

    check_reference(reference, {"host": (str,), "storage": (str,)})


KIND = BackendKind(
    name="ssh",
    options=_options,
    capabilities=Capabilities(
        remote=True, fields=frozenset({"after", "on_finish", "ray", "resume"})
    ),
    open=_open,
    check_reference=_check_reference,
)

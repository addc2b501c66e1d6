"""The kind `folder`, as the engine knows it."""

from typing import TYPE_CHECKING

from sgpu_decl.model.backend_kinds import BackendKind, Capabilities

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.base import Backend
    from sgpu_decl.config.backend import BackendOptions


def _options() -> "type[BackendOptions]":
    from tests.contracts.folder_backend.options import FolderOptions

    return FolderOptions


def _open(context: "BackendContext") -> "Backend":
    from tests.contracts.folder_backend.backend import open_folder

    return open_folder(context)


KIND = BackendKind(
    name="folder",
    options=_options,
    capabilities=Capabilities(fields=frozenset({"resume"}), remote=True, queues=False),
    open=_open,
)

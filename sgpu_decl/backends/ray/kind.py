"""The Ray backend as the engine knows it: its options can be written, and it runs nothing yet."""

from typing import TYPE_CHECKING

from sgpu_decl.backends.kinds import BackendKind
from sgpu_decl.planning.capabilities import Capabilities

if TYPE_CHECKING:
    from sgpu_decl.config.backend import BackendOptions

__all__ = ["KIND"]


def _options() -> "type[BackendOptions]":
    from sgpu_decl.backends.ray.options import RayOptions

    return RayOptions


KIND = BackendKind(name="ray", options=_options, capabilities=Capabilities(remote=True))

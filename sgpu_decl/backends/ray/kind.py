"""The Ray backend as the engine knows it."""

from typing import TYPE_CHECKING

from sgpu_decl.model.backend_kinds import BackendKind, Capabilities

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.base import Backend, Survey
    from sgpu_decl.config.backend import BackendOptions


def _options() -> "type[BackendOptions]":
    from sgpu_decl.backends.ray.options import RayOptions

    return RayOptions


def _survey(context: "BackendContext") -> "Survey":
    from sgpu_decl.backends.ray.clusters import Clusters
    from sgpu_decl.backends.ray.planning.ray_survey import RaySurvey

    return RaySurvey(context.pythons, context.shared(Clusters), context.lineage)


def _open(context: "BackendContext") -> "Backend":
    from sgpu_decl.backends.ray.ray_backend import open_ray

    return open_ray(context)


def _check_reference(reference: str) -> None:
    from sgpu_decl.backends.remote.launching.remote_reference import check_reference

    check_reference(reference, {"address": (str,), "session": (str,)}, {"machine": (str,)})


KIND = BackendKind(
    name="ray",
    options=_options,
    capabilities=Capabilities(
        remote=True,
        queues=False,
        fields=frozenset({"after", "on_finish", "ray", "ray.cluster", "resume"}),
    ),
    survey=_survey,
    open=_open,
    check_reference=_check_reference,
)

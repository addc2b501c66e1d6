"""The Ray backend as the engine knows it: it answers planning, and runs nothing yet."""

from typing import TYPE_CHECKING

from sgpu_decl.backends.kinds import BackendKind
from sgpu_decl.planning.capabilities import Capabilities

if TYPE_CHECKING:
    from sgpu_decl.backends.backend_context import BackendContext
    from sgpu_decl.backends.base import Survey
    from sgpu_decl.config.backend import BackendOptions


def _options() -> "type[BackendOptions]":
    from sgpu_decl.backends.ray.options import RayOptions

    return RayOptions


def _survey(context: "BackendContext") -> "Survey":
    from sgpu_decl.backends.ray.planning.survey import RaySurvey

    return RaySurvey(context.pythons)


KIND = BackendKind(
    name="ray",
    options=_options,
    capabilities=Capabilities(remote=True, queues=False),
    survey=_survey,
)

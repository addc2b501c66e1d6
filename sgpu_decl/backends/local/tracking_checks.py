"""Checks of the tracking of a run on this machine."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sgpu_decl.backends.tracker_request import missing_mlflow, uri_findings
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.distribution import extra_command

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

_TWICE = {"experiment": "MLFLOW_EXPERIMENT_NAME", "tracking_uri": "MLFLOW_TRACKING_URI"}


def check_tracking(
    config: "RunConfig",
    places: Mapping[str, Place],
    *,
    called: bool,
    installed: Callable[[str], bool],
) -> list[Diagnostic]:
    """`installed` says whether the interpreter of sgpu has a package."""
    if not config.mlflow.enabled:
        return []
    errors = [
        finding
        for field in _TWICE
        if (finding := _contradiction(config, places, field)) is not None
    ]
    errors += uri_findings(config, places, os.environ)
    if not installed("mlflow"):
        how = f"install it beside sgpu, `{extra_command('mlflow')}`, or set `mlflow.enabled: false`"
        where = f"MLflow is not installed in {sys.prefix}"
        return [*errors, missing_mlflow(places, where, how, called=called)]
    if config.mlflow.system_metrics and not installed("psutil"):
        return [*errors, _unmeasured(places)]
    return errors


def _unmeasured(places: Mapping[str, Place]) -> Diagnostic:
    place = places.get("mlflow.system_metrics")
    return Diagnostic(
        code="psutil_missing",
        severity=Severity.WARNING if place else Severity.INFO,
        summary="MLflow gets no system metrics: psutil is not installed beside sgpu",
        place=place,
        hint=f"install it with `{extra_command('mlflow')}`, or set `mlflow.system_metrics: false`",
    )


def _contradiction(
    config: "RunConfig", places: Mapping[str, Place], field: str
) -> Diagnostic | None:
    """The error if `mlflow` and `env.variables` set the same thing to different values."""
    ours, variable = getattr(config.mlflow, field), _TWICE[field]
    theirs = config.env.variables.get(variable)
    if ours is None or theirs is None or ours == theirs:
        return None
    return Diagnostic(
        code="mlflow_said_twice",
        summary=f"`mlflow.{field}` is `{ours}` and `env.variables.{variable}` is `{theirs}`",
        place=places.get(f"env.variables.{variable}"),
        hint=f"leave one of them out; `mlflow.{field}` sets the variable for the ranks",
    )

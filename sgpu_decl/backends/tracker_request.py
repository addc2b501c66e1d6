"""What the tracker of an attempt records, and to which tracking URI.

So it is on every backend whose platform makes no MLflow run.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError
from sgpu_decl.tracking.run_description import tracking_request
from sgpu_decl.tracking.store_location import link_plain_folder
from sgpu_decl.tracking.tracking_request import TrackingRequest

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

# MLflow's own variables hold where the run says nothing: exported, or in `env.variables`.
_EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"
_STORE = "MLFLOW_TRACKING_URI"


def store_of(config: "RunConfig", environ: Mapping[str, str]) -> str | None:
    """Return the tracking URI of a run, as it is written; None for the project's own store."""
    variables = config.env.variables
    of_ranks = variables[_STORE] if _STORE in variables else environ.get(_STORE)
    return config.mlflow.tracking_uri or of_ranks or None


def uri_findings(
    config: "RunConfig", places: Mapping[str, Place], environ: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """Find a malformed tracking URI."""
    uri = store_of(config, environ)
    if not config.mlflow.enabled or uri is None:
        return
    try:
        urlsplit(uri)
    except ValueError:  # its text may have the password
        names = ("mlflow.tracking_uri", f"env.variables.{_STORE}")
        yield Diagnostic(
            code="bad_tracking_uri",
            summary="the tracking URI of MLflow is malformed",
            place=next((places[name] for name in names if name in places), None),
            hint=f"correct `mlflow.tracking_uri` or {_STORE}, such as `https://server:5000`",
        )


def missing_mlflow(
    places: Mapping[str, Place], where: str, how: str, *, called: bool
) -> Diagnostic:
    """A missing MLflow is an error if the file asks for tracking, else an info. For a call, fields
    of `mlflow` are filled in, so they do not count as asking.

    Args:
        where: says that it is missing there.
        how: the next step.
    """
    paths = [path for path in places if path.startswith("mlflow.") and not called]
    if "mlflow.enabled" in places:
        return Diagnostic(
            code="mlflow_missing",
            summary=f"`mlflow.enabled: true` asks for tracking, and {where}",
            place=places["mlflow.enabled"],
            hint=how,
        )
    if paths:
        return Diagnostic(
            code="mlflow_missing",
            severity=Severity.WARNING,
            summary=f"`{min(paths)}` has no effect, nor has any other field of `mlflow`: {where}",
            place=places[min(paths)],
            hint=how,
        )
    return Diagnostic(
        code="mlflow_missing",
        severity=Severity.INFO,
        summary=f"runs are not tracked: {where}",
        hint=how,
    )


def require_uri(config: "RunConfig", environ: Mapping[str, str]) -> None:
    """Refuse to launch with a malformed tracking URI: where a saved plan is applied, the variable
    may have another value than where it was made.

    Raises:
        BackendError: `bad_tracking_uri`.
    """
    for finding in uri_findings(config, {}, environ):
        raise BackendError(finding.summary, hint=finding.hint, code="bad_tracking_uri")


def tracker_request(
    request: LaunchRequest, *, base: Path, home: Path, python: str
) -> TrackingRequest:
    """Return what the tracker is asked to record.

    Args:
        base: the folder that paths in the run start from.
        home: the project's `.sgpu` folder, or another one, which holds the default store.
        python: the interpreter of the ranks.
    """
    config = request.config
    for folder in (home, base):
        link_plain_folder(folder)
    variables = {**os.environ, **config.env.variables}
    experiment = variables.get(_EXPERIMENT)
    return tracking_request(
        ref=request.ref,
        spec=request.inputs.spec,
        home=home,
        base=base,
        token=request.record.token,
        experiment=config.mlflow.experiment or experiment,
        names_experiment=bool(experiment),
        run_name=config.mlflow.run_name,
        tracking_uri=store_of(config, os.environ),
        artifact_location=config.mlflow.artifact_location,
        system_metrics=config.mlflow.system_metrics,
        facts={**request.facts, "python": python},
        git=request.git,
        tags=request.tags,
    )

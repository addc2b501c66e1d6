"""The tracking URI of a run, and whether it is one."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sgpu_decl.diagnostics.diagnostic import Diagnostic
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.errors import BackendError

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["require_uri", "store_of", "uri_findings"]

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


def require_uri(config: "RunConfig", environ: Mapping[str, str]) -> None:
    """Refuse to launch with a malformed tracking URI: where a saved plan is applied, the variable
    may have another value than where it was made.

    Raises:
        BackendError: `bad_tracking_uri`.
    """
    for finding in uri_findings(config, {}, environ):
        raise BackendError(finding.summary, hint=finding.hint, code="bad_tracking_uri")

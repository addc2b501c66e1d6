"""The tracker of a run on other machines whose platform makes no MLflow run: what their agent needs
to start it, and whether they can reach the store."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from sgpu_decl.backends.archives import tracker_zip
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.backends.tracker_request import store_of, tracker_request, uri_findings
from sgpu_decl.config.report_unkept import report_unkept
from sgpu_decl.diagnostics.diagnostic import Diagnostic, Severity
from sgpu_decl.diagnostics.masks import mask
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.rendering.spec import TrackerSpec
from sgpu_decl.tracking.store_location import (
    credential_variables,
    is_on_disk,
    secret_credentials,
    without_credentials,
)
from sgpu_decl.tracking.tracking_request import ENVIRONMENT, FILE, to_json

if TYPE_CHECKING:
    from sgpu_decl.config.run import RunConfig

__all__ = ["ARCHIVE", "NodeTracker", "node_tracker", "tracking_credentials", "tracking_findings"]

ARCHIVE = "tracker.zip"

_USER, _PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTracker:
    """`files` are those of the launch folder."""

    spec: TrackerSpec
    files: Mapping[str, bytes]


def node_tracker(
    request: LaunchRequest, *, project: Path, python: str, home: Path | None = None
) -> NodeTracker | None:
    """Return the tracker of an attempt; None if it is not tracked, or if nodes cannot reach the
    store.

    Args:
        project: the folder of the project.
        python: the interpreter of the ranks, as the MLflow run names it.
        home: the folder there that keeps the project's own store, for runs that name no other;
            None if there is none.
    """
    config = request.config
    uri = store_of(config, os.environ)
    if not config.mlflow.enabled:
        return None
    if uri is None and home is not None:
        tracking = tracker_request(request, base=home, home=home, python=python)
        uri = tracking.tracking_uri
    elif uri is None or _problem(uri) is not None:
        return None
    else:
        here = request.folder(project)  # the store of this machine is not used
        tracking = tracker_request(request, base=here, home=here / ".sgpu", python=python)
        plain = without_credentials(uri) if credential_variables(uri) else uri
        tracking = replace(tracking, tracking_uri=plain, home=None)
    spec = TrackerSpec(
        argv=(ARCHIVE,),
        env=ENVIRONMENT,
        credentials=credential_variables(uri),
        secrets=secret_credentials(uri),
    )
    return NodeTracker(spec=spec, files={ARCHIVE: tracker_zip(), FILE: to_json(tracking).encode()})


def tracking_credentials(config: "RunConfig", environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with credentials of the store that the nodes of a run need: those that
    are exported here, or stand in an exported URI, and that the run does not set itself. A launcher
    hands them on as it does the values of secrets."""
    uri = store_of(config, environ) if config.mlflow.enabled else None
    if uri is None or _problem(uri) is not None:
        return {}
    parts = urlsplit(uri)
    credentials = {name: environ[name] for name in credential_variables(uri) if environ.get(name)}
    if parts.username is not None and _USER in credential_variables(uri):
        credentials[_USER], credentials[_PASSWORD] = (
            unquote(parts.username),
            unquote(parts.password or ""),
        )
    own = {*config.env.secrets, *config.env.variables}
    return {name: value for name, value in credentials.items() if name not in own}


def tracking_findings(
    config: "RunConfig",
    places: Mapping[str, Place],
    environ: Mapping[str, str],
    *,
    keeps_store: bool = False,
) -> Iterator[Diagnostic]:
    """Find a store that nodes cannot reach, or a malformed URI. `keeps_store` says that the machine
    of the ranks keeps the project's own store, so a run need not name one."""
    malformed = tuple(uri_findings(config, places, environ))
    if malformed:
        yield from malformed
        return
    uri = store_of(config, environ)
    problem = _problem(uri) or _own_address(uri)
    if not config.mlflow.enabled or problem is None:
        return
    kept = keeps_store and uri is None
    if config.report:
        why = "its store is on the machine of its ranks" if kept else "nodes cannot reach its store"
        yield report_unkept(why, places)
    if kept:
        return
    names = ("mlflow.tracking_uri", "env.variables.MLFLOW_TRACKING_URI", "mlflow")
    yield Diagnostic(
        code="tracking_unreachable",
        severity=Severity.INFO,
        summary=problem,
        place=next((places[name] for name in names if name in places), None),
        hint="name a tracking server with `mlflow.tracking_uri` or MLFLOW_TRACKING_URI, or write "
        "`mlflow: {enabled: false}`",
    )


def _problem(uri: str | None) -> str | None:
    """Why nodes cannot use a store."""
    if uri is None:
        place = "the store is `.sgpu/mlflow.db` on the disk of this machine"
        return f"ranks get no MLflow run: {place}, which nodes cannot reach"
    if is_on_disk(uri):
        return f"ranks get no MLflow run: `{uri}` is on the disk of this machine"
    parts = urlsplit(uri)
    in_query = any(name.lower() == "password" for name, _ in parse_qsl(parts.query))
    if (parts.password is not None or in_query) and not credential_variables(uri):
        return f"ranks get no MLflow run: nodes would write the password in `{mask(uri)}` to a disk"
    return None


def _own_address(uri: str | None) -> str | None:
    """Why only nodes on this machine can use a store."""
    host = urlsplit(uri or "").hostname
    if host is None:
        return None
    try:
        own = ip_address(host).is_loopback
    except ValueError:
        own = host == "localhost"
    where = f"`{without_credentials(uri or '')}` is an address of this machine"
    return f"{where}: ranks on other machines get no MLflow run" if own else None

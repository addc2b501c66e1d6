"""MLflow: `/api/2.0/mlflow/…`, answered by a real MLflow server behind the workspace.

The platform's API is that of MLflow, so requests and answers have one shape: compare
`ExperimentsAPI` in `databricks/sdk/service/ml.py` with https://mlflow.org/docs/latest/rest-api.html.
The filter of `runs/search` may say more here: the platform documents comparisons of metrics,
parameters and tags, joined by `AND`.

Every tenant sees experiments of its own alone: what they are called there begins with the tenant's
key, which is put in front of names on the way in and taken away on the way out.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode

from sgpu_decl.testing.workspace.mlflow_names import Tracking, kept_name, name_prefix
from sgpu_decl.testing.workspace.mlflow_server import Forwarded
from sgpu_decl.testing.workspace.routes import ApiError, Request, Response, Route
from sgpu_decl.testing.workspace.tenant import Tenant
from sgpu_decl.testing.workspace.workspace_objects import WorkspaceObjects

__all__ = ["ExperimentsApi"]

_API = re.compile(r"/(?:ajax-)?api/(?:2|3)\.0/mlflow/(.+)")
_NAME = re.compile(r"(\bname\s*(?:=|!=|LIKE|ILIKE)\s*)(['\"])", re.IGNORECASE)
_MOST_FOUND = 1000
_PASSED_ON = ("Content-Type", "Content-Length", "Range")


@dataclass(frozen=True, slots=True)
class ExperimentsApi:
    """The handlers."""

    tracking: Tracking

    @property
    def routes(self) -> tuple[Route, ...]:
        """Its part of the API."""
        methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
        served = ("/api/2.0", "/api/3.0", "/ajax-api/2.0", "/ajax-api/3.0")
        return (
            *(
                Route(method, f"{api}/mlflow/{{rest...}}", self.passed_on)
                for method in methods
                for api in served
            ),
            Route("GET", "/version", self.passed_on),
            Route("GET", "/health", self.passed_on),
        )

    def passed_on(self, request: Request) -> Response:
        """Ask MLflow, in the tenant's names."""
        asked = _API.fullmatch(request.path)
        query, body = dict(request.query), None
        if asked is not None:
            query = _named_query(request.tenant, query)
            searched = asked[1] == "runs/search"
            body = self._own_search(request) if searched else _named_body(asked[1], request)
        target = quote(request.path, safe="/%") + (f"?{urlencode(query)}" if query else "")
        headers = {name: text for name in _PASSED_ON if (text := request.headers.get(name))}
        try:
            if body is not None:
                answer = self._forward(
                    request, target, headers | {"Content-Length": str(len(body))}, body
                )
            else:
                with request.content.open() as stream:
                    length = {"Content-Length": str(request.content.size)}
                    answer = self._forward(request, target, headers | length, stream)
        except (OSError, HTTPException) as error:
            message = f"the MLflow server of this emulator does not answer: {error}"
            raise ApiError(503, "TEMPORARILY_UNAVAILABLE", message) from None
        kind = {"Content-Type": answer.content_type}
        if asked is None:
            return Response(status=answer.status, stream=answer.blocks(), headers=kind)
        own = _own_alone(request.tenant, answer.read())
        return Response(status=answer.status, body=own, headers=kind)

    def _own_search(self, request: Request) -> bytes:
        """The body of a search for runs, in experiments of the tenant alone."""
        asked = request.json.get("experiment_ids")
        listed = asked if isinstance(asked, list) else []
        ids = [one for one in listed if self._is_own(request.tenant, str(one))]
        return json.dumps({**request.json, "experiment_ids": ids}).encode()

    def _is_own(self, tenant: Tenant, experiment_id: str) -> bool:
        endpoint = f"experiments/get?experiment_id={quote(experiment_id, safe='')}"
        try:
            experiment = self.tracking.server.ask("GET", endpoint, {})["experiment"]
        except ApiError:  # there is none
            return False
        return str(experiment["name"]).startswith(name_prefix(tenant))

    def _forward(
        self, request: Request, target: str, headers: Mapping[str, str], body: Any
    ) -> Forwarded:
        return self.tracking.server.forward(request.method, target, body=body, headers=headers)


def _named_query(tenant: Tenant, query: dict[str, str]) -> dict[str, str]:
    name = query.get("experiment_name")
    return query if name is None else {**query, "experiment_name": kept_name(tenant, name)}


def _named_body(endpoint: str, request: Request) -> bytes | None:
    """The body with the names that MLflow keeps; None where it has none."""
    tenant = request.tenant
    if not endpoint.startswith("experiments/") or request.method == "GET":
        return None
    given: dict[str, Any] = dict(request.json)
    if endpoint == "experiments/create":
        _check_place(tenant, str(given.get("name") or ""))
    for field in ("name", "new_name", "experiment_name"):
        if isinstance(given.get(field), str):
            given[field] = kept_name(tenant, given[field])
    if endpoint == "experiments/search":
        given.setdefault("max_results", _MOST_FOUND)  # where MLflow itself wants to be told
        own = f"name LIKE '{name_prefix(tenant)}%'"
        asked = given.get("filter")
        named = _NAME.sub(lambda found: found[0] + name_prefix(tenant), asked) if asked else ""
        given["filter"] = f"{named} AND {own}" if named else own
    return json.dumps(given).encode()


def _check_place(tenant: Tenant, name: str) -> None:
    """Refuse an experiment that is nowhere in the workspace's tree (evidence: A7, A12)."""
    if not name.startswith("/"):
        message = (
            f"Got an invalid experiment name '{name}'. An experiment name must be an absolute path "
            "within the Databricks workspace, e.g. '/Users/<some-username>/my-experiment'."
        )
        raise ApiError(400, "INVALID_PARAMETER_VALUE", message)
    objects = WorkspaceObjects(tenant)
    parent = objects.path_of(name).rpartition("/")[0] or "/"
    if not objects.file(parent).is_dir():
        message = f"Parent directory does not exist: {parent}"
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)


def _own_alone(tenant: Tenant, answer: bytes) -> bytes:
    """The answer in the tenant's names. Raises ApiError, 404, for an experiment of somebody
    else."""
    own = name_prefix(tenant).encode()
    try:
        experiment = json.loads(answer).get("experiment")
    except (ValueError, AttributeError):
        return answer
    if experiment is not None and not experiment["name"].startswith(own.decode()):
        message = f"No Experiment with id={experiment['experiment_id']} exists"
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)
    return answer.replace(own, b"")

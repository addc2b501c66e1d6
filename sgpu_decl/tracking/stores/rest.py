"""An MLflow run on a tracking server, by its REST API: no MLflow is imported.

Credentials are those that MLflow's client takes: `MLFLOW_TRACKING_TOKEN`, or a user's name and
password from the environment or `~/.mlflow/credentials`. A server that needs more than that
(`needs_client`) is left to MLflow's own client.
"""

from __future__ import annotations

import base64
import configparser
import http.client
import json
import math
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points

from sgpu_decl.tracking.mlflow_status import TrackedOutcome
from sgpu_decl.tracking.store_location import without_credentials
from sgpu_decl.tracking.stores.store_protocol import (
    EXPERIMENT_TAGS,
    CreatedRun,
    MetricHistory,
    MetricRow,
    StoreError,
    batches,
    deleted_experiment,
    filter_of_runs,
    token_filter,
)
from sgpu_decl.tracking.tracking_request import BATCH, TrackingRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sgpu_decl.model.jsonable import Json

_MORE_THAN_PLAIN = (
    "MLFLOW_TRACKING_AUTH",
    "MLFLOW_TRACKING_AWS_SIGV4",
    "MLFLOW_ENABLE_WORKSPACES",
    "MLFLOW_WORKSPACE",
    "NETRC",
)


_PAGE = 25_000  # values of one answer: the most that MLflow gives
_MOST_PAGES = 8


class _Refused(StoreError):
    """The server refused a request; `code` is MLflow's name of the reason."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


def needs_client(environ: Mapping[str, str]) -> bool:
    """Whether requests need signatures, plugins or workspaces, which only MLflow's client adds."""
    return (
        any(environ.get(name) for name in _MORE_THAN_PLAIN)
        or os.path.exists(os.path.expanduser("~/.netrc"))
        or bool(entry_points(group="mlflow.request_header_provider"))
    )


class RestRunStore:
    def __init__(self, uri: str, environ: Mapping[str, str], patience: float) -> None:
        self._uri = uri.rstrip("/")
        self._host = without_credentials(self._uri)
        self._headers = {"Content-Type": "application/json", **_authorization(self._uri, environ)}
        self._patience = patience
        handler = urllib.request.HTTPSHandler(context=_tls(environ))
        self._opener = urllib.request.build_opener(handler)

    def ping(self) -> None:
        """Ask the server something that needs no run.

        Raises:
            StoreError: it does not answer, is no MLflow server, or refuses the credentials.
        """
        self._experiment_named("Default")

    def create(self, request: TrackingRequest) -> CreatedRun:
        experiment = self._experiment(request)
        tags = list(request.tags.items())
        body: dict[str, Json] = {
            "experiment_id": experiment,
            "run_name": request.run_name,
            "user_id": "unknown",
            "start_time": time.time_ns() // 1_000_000,
            "tags": _pairs(tags[:BATCH]),
        }
        answer = self._ask("POST", "runs/create", body)
        run_id = self._run_id(answer.get("run"))
        self._log(run_id, tags=tags[BATCH:])
        return CreatedRun(run_id=run_id, experiment_id=experiment)

    def resume(self, request: TrackingRequest) -> CreatedRun | None:
        experiment = self._experiment(request)
        query: dict[str, Json] = {
            "experiment_ids": [experiment],
            "filter": token_filter(request),
            "max_results": 1,
        }
        runs = self._ask("POST", "runs/search", query).get("runs")
        if not (isinstance(runs, list) and runs):
            return None
        run_id = self._run_id(runs[0])
        self._ask("POST", "runs/update", {"run_id": run_id, "status": "RUNNING"})
        return CreatedRun(run_id=run_id, experiment_id=experiment)

    def record(self, run_id: str, request: TrackingRequest) -> None:
        self._log(run_id, params=list(request.params.items()))

    def last_metrics(self, runs: Mapping[str, str]) -> dict[str, dict[str, float]]:
        metrics: dict[str, dict[str, float]] = {}
        for some in batches(sorted(runs), BATCH):
            experiments: list[Json] = [*sorted({runs[run_id] for run_id in some})]
            body: dict[str, Json] = {
                "experiment_ids": experiments,
                "filter": filter_of_runs(some),
                "max_results": BATCH,
            }
            rows = self._ask("POST", "runs/search", body).get("runs")
            for run in rows if isinstance(rows, list) else ():
                try:
                    metrics[self._run_id(run)] = {
                        str(metric["key"]): float(metric["value"])
                        for metric in run.get("data", {}).get("metrics", ())
                    }
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise StoreError(f"{self._host} answers with strange metrics") from error
        return metrics

    def metric_history(self, run_id: str, names: Sequence[str]) -> MetricHistory:
        # https://mlflow.org/docs/latest/api_reference/rest-api.html#get-metric-history
        history: MetricHistory = {}
        for name in names:
            values = history.setdefault(name, [])
            query = {"run_id": run_id, "metric_key": name, "max_results": str(_PAGE)}
            for _ in range(_MOST_PAGES):
                path = f"metrics/get-history?{urllib.parse.urlencode(query)}"
                answer = self._ask("GET", path)
                rows = answer.get("metrics")
                try:
                    for row in rows if isinstance(rows, list) else ():
                        values.append((int(row.get("step", 0)), float(row["value"])))
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise StoreError(f"{self._host} answers with strange metrics") from error
                if not (token := answer.get("next_page_token")):
                    break
                query["page_token"] = str(token)
            values.sort(key=lambda pair: pair[0])
        return history

    def log(self, run_id: str, rows: Sequence[MetricRow], moment: int) -> None:
        for some in batches(rows, BATCH):
            metrics: list[Json] = [
                {"key": key, "value": _number(value), "timestamp": moment, "step": step}
                for key, value, step in some
            ]
            self._ask("POST", "runs/log-batch", {"run_id": run_id, "metrics": metrics})

    def finish(self, run_id: str, end: TrackedOutcome) -> None:
        ended = end.ended_at or time.time_ns() // 1_000_000
        body: dict[str, Json] = {"run_id": run_id, "status": end.status, "end_time": ended}
        try:
            self._ask("POST", "runs/update", body)
        except _Refused as error:
            # Of a run that is gone, and of one that is marked as deleted.
            if error.code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
        else:
            self._log(run_id, tags=list(end.tags.items()))

    def _run_id(self, run: Json) -> str:
        info = run.get("info") if isinstance(run, Mapping) else None
        run_id = info.get("run_id") if isinstance(info, Mapping) else None
        if not isinstance(run_id, str):
            raise StoreError(f"{self._host} answers with something else than a run")
        return run_id

    def _experiment(self, request: TrackingRequest) -> str:
        """Return the experiment's id; where two create it at once, both find the one."""
        experiment = self._experiment_named(request.experiment)
        if experiment is None:
            tags = _pairs([*EXPERIMENT_TAGS.items()])
            body: dict[str, Json] = {"name": request.experiment, "tags": tags}
            if request.artifacts is not None:
                body["artifact_location"] = request.artifacts
            try:
                return self._experiment_id(self._ask("POST", "experiments/create", body))
            except _Refused as error:
                if error.code != "RESOURCE_ALREADY_EXISTS":
                    raise
            experiment = self._experiment_named(request.experiment)
        if experiment is None or experiment.get("lifecycle_stage") == "deleted":
            raise deleted_experiment(request.experiment)
        return self._experiment_id(experiment)

    def _experiment_id(self, experiment: Mapping[str, Json]) -> str:
        if "experiment_id" not in experiment:
            raise StoreError(f"{self._host} answers with something else than an experiment")
        return str(experiment["experiment_id"])

    def _experiment_named(self, name: str) -> Mapping[str, Json] | None:
        query = urllib.parse.urlencode({"experiment_name": name})
        try:
            experiment = self._ask("GET", f"experiments/get-by-name?{query}").get("experiment")
        except _Refused as error:
            if error.code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return experiment if isinstance(experiment, Mapping) else None

    def _log(
        self,
        run_id: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        tags: Sequence[tuple[str, str]] = (),
    ) -> None:
        for start in range(0, max(len(params), len(tags)), BATCH):
            end = start + BATCH
            body: dict[str, Json] = {
                "run_id": run_id,
                "params": _pairs(params[start:end]),
                "tags": _pairs(tags[start:end]),
            }
            self._ask("POST", "runs/log-batch", body)

    def _ask(
        self, method: str, path: str, body: Mapping[str, Json] | None = None
    ) -> Mapping[str, Json]:
        request = urllib.request.Request(  # noqa: S310  the user's own tracking server
            f"{self._host}/api/2.0/mlflow/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
            method=method,
        )
        try:
            with self._opener.open(request, timeout=self._patience) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except urllib.error.URLError as error:
            raise StoreError(f"{self._host} cannot be reached: {_reason(error)}") from error
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(f"{self._host} does not answer: {_words(error)}") from error
        return self._object(data)

    def _object(self, data: bytes) -> Mapping[str, Json]:
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, Mapping):
            raise StoreError(f"{self._host} answers with something else than MLflow's API")
        return answer

    def _refusal(self, error: urllib.error.HTTPError) -> StoreError:
        status = f"{self._host} answers {error.code} {error.reason}"
        try:
            answer = self._object(error.read())
        except (StoreError, OSError, http.client.HTTPException):
            return StoreError(status)
        return _Refused(
            f"{status}: {answer.get('message') or answer}", str(answer.get("error_code") or "")
        )


def _authorization(uri: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The header that MLflow's client sends: from the URI, a name and password, or a token."""
    parts = urllib.parse.urlsplit(uri)
    user, password = parts.username, parts.password
    if user is not None:
        user, password = urllib.parse.unquote(user), urllib.parse.unquote(password or "")
    else:
        stored = _stored_credentials()
        user = environ.get("MLFLOW_TRACKING_USERNAME") or stored.get("mlflow_tracking_username")
        password = environ.get("MLFLOW_TRACKING_PASSWORD") or stored.get("mlflow_tracking_password")
    if user and password:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    token = environ.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _stored_credentials() -> Mapping[str, str]:
    config = configparser.ConfigParser()
    try:
        config.read(os.path.expanduser("~/.mlflow/credentials"))
    except configparser.Error as error:
        raise StoreError(f"~/.mlflow/credentials cannot be read: {error}") from error
    return dict(config["mlflow"]) if "mlflow" in config else {}


def _tls(environ: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=_authorities(environ))
        if environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if own := environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH"):
            context.load_cert_chain(own)
    except OSError as error:
        raise StoreError(f"a certificate cannot be read: {error}") from error
    return context


def _authorities(environ: Mapping[str, str]) -> str | None:
    names = ("MLFLOW_TRACKING_SERVER_CERT_PATH", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    return next((environ[name] for name in names if environ.get(name)), None)


def _reason(error: urllib.error.URLError) -> str:
    reason = error.reason
    return (reason.strerror or str(reason)) if isinstance(reason, OSError) else str(reason)


def _words(error: Exception) -> str:
    """The text of an error; some exceptions have only their name."""
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)


def _number(value: float) -> Json:
    """A number as the JSON of protocol buffers has it: `NaN` and `Infinity` are text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _pairs(items: Sequence[tuple[str, str]]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in items]

"""The page about a run as an artifact of the MLflow run that the workspace made."""

from typing import Any

import pytest

from sgpu_decl.backends.databricks.api.account import Account
from sgpu_decl.backends.databricks.api.connection import Connection
from sgpu_decl.backends.databricks.watching.run_artifacts import artifacts_of
from sgpu_decl.cli.main import main
from sgpu_decl.errors import BackendError
from tests.backends.databricks.bench import FAILS, DatabricksBench


@pytest.mark.parametrize("in_volume", [False, True])
def test_the_report_of_a_run_becomes_an_artifact_of_its_mlflow_run(
    bench: DatabricksBench, monkeypatch: pytest.MonkeyPatch, *, in_volume: bool
) -> None:
    if in_volume:
        (bench.tenant.tree("Volumes") / "main" / "ml" / "pages").mkdir(parents=True)
        bench.declare(more="mlflow: {artifact_location: /Volumes/main/ml/pages}\n")
    bench.code(FAILS)
    bench.declare(more="report: true\n")
    monkeypatch.chdir(bench.project)
    assert main(["apply", "-y"]) == 5
    session = bench.open()
    (ref,) = session.runs.find("hello")
    link = session.runs.status(ref).links["mlflow"]
    assert isinstance(link, dict)
    artifacts = artifacts_of(Connection(Account()), str(link["run_id"]))
    page = artifacts.read("sgpu-report.html").decode()
    assert "no such thing" in page
    artifacts.write("sgpu-report.html", b"another")
    assert artifacts.read("sgpu-report.html") == b"another"


@pytest.mark.parametrize(
    ("kind", "requested"),
    [
        ("AWS_PRESIGNED_URL", [("PUT", "https://a/b?s=1", b"page", {"x": "y"})]),
        ("GCP_SIGNED_URL", [("PUT", "https://a/b?s=1", b"page", {"x": "y"})]),
        (
            "AZURE_SAS_URI",
            [("PUT", "https://a/b?s=1", b"page", {"x": "y", "x-ms-blob-type": "BlockBlob"})],
        ),
        (
            "AZURE_ADLS_GEN2_SAS_URI",
            [
                ("PUT", "https://a/b?s=1&resource=file", b"", {"x": "y"}),
                (
                    "PATCH",
                    "https://a/b?s=1&action=append&position=0&flush=true",
                    b"page",
                    {"x": "y"},
                ),
            ],
        ),
        ("ANOTHER", None),
    ],
)
def test_each_storage_gets_the_requests_that_it_wants(
    monkeypatch: pytest.MonkeyPatch, bench: DatabricksBench, kind: str, requested: Any
) -> None:
    """As MLflow's own client sends them."""
    import requests

    headers = [{"name": "x", "value": "y"}]
    link = {"signed_uri": "https://a/b?s=1", "type": kind, "headers": headers}
    asked: list[Any] = []
    connection = Connection(Account())
    monkeypatch.setattr(connection, "tell", lambda *_: {"credential_infos": [link]})
    monkeypatch.setattr(connection, "ask", lambda *_, **__: {"run": {"info": {}}})

    def request(method: str, uri: str, **more: Any) -> Any:
        asked.append((method, uri, more["data"], more["headers"]))
        answer = requests.Response()
        answer.status_code = 200
        return answer

    monkeypatch.setattr(requests, "request", request)
    artifacts = artifacts_of(connection, "r")
    if requested is None:
        with pytest.raises(BackendError, match="links of the kind `ANOTHER` are not known"):
            artifacts.write("page.html", b"page")
    else:
        artifacts.write("page.html", b"page")
    assert asked == (requested or [])

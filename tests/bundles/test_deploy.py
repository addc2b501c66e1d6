"""A bundle that is deployed to an emulated workspace runs there, with results."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from venv import create

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound

from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from tests.backends.databricks.test_job_runs import install
from tests.bundles.cli_standin import CliStandin
from tests.bundles.test_loader import write
from tests.cli.conftest import Shell
from tests.workspace_login import log_in

pytestmark = pytest.mark.expensive


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceServer]:
    root = tmp_path_factory.mktemp("workspace")
    with WorkspaceServer(root, execution=ExecutionSettings(grace=1.0)) as running:
        yield running


@pytest.fixture
def client(
    bundle: CliStandin, server: WorkspaceServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Any:
    token = log_in(server, monkeypatch, tmp_path)
    return WorkspaceClient(host=server.url, token=token)


def deployed(bundle: CliStandin, client: Any) -> tuple[CliStandin, dict[str, int]]:
    user = client.current_user.me().user_name
    known = replace(bundle, user=user, apart=True)
    jobs = known.jobs()
    return known, known.deploy(client.api_client, jobs)


def launched(client: Any, job_id: int) -> dict[str, str]:
    """The results of the tasks of a launch, once it has ended."""
    api = client.api_client
    run_id = api.do("POST", "/api/2.2/jobs/run-now", body={"job_id": job_id})["run_id"]
    while True:
        run = api.do("GET", "/api/2.2/jobs/runs/get", query={"run_id": run_id})
        if run["state"]["life_cycle_state"] in ("TERMINATED", "INTERNAL_ERROR"):
            return {task["task_key"]: task["state"]["result_state"] for task in run["tasks"]}


def test_a_deployed_bundle_runs_with_results(
    bundle: CliStandin, server: WorkspaceServer, client: Any
) -> None:
    write(bundle, "databricks.yml", "        - task_key: prep\n"
          "          notebook_task: {notebook_path: /Workspace/Shared/prep}\n", "")  # fmt: skip
    write(bundle, "databricks.yml", "          depends_on: [{task_key: prep}]\n", "")
    known, ids = deployed(bundle, client)
    assert launched(client, ids["nightly"]) == {"prepare": "SUCCESS", "train": "SUCCESS"}
    assert launched(client, ids["etl"]) == {"gpu": "SUCCESS"}

    tenant = server.tenants.of_token(client.config.token).folder
    folder = tenant / known.file_path.lstrip("/") / "sgpu/runs"
    for job in ("job.nightly", "job.dev-me-etl"):
        (back,) = folder.glob(f"*/{job}/*/back/0")
        results = [
            json.loads(one.read_bytes()) for one in sorted(back.glob("*/ranks/*/output.json"))
        ]
        assert results == [{"rank": 0, "lr": 0.1}, {"rank": 1, "lr": 0.1}]
        written = sorted(path.read_text() for path in back.glob("node_*/output/model-*.txt"))
        assert written == ["0.1", "0.1"]


def test_an_environment_that_was_made_here_goes_along_and_an_old_one_goes(
    bundle: CliStandin, client: Any, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    create(venv, symlinks=True)
    (site,) = venv.glob("lib/python*/site-packages")
    install(site, "1.0")
    write(bundle, "sgpu.yml", "env: {base: gpu-6}",
          f"env: {{base: gpu-6, snapshot: true, python: {venv}/bin/python}}")  # fmt: skip
    write(bundle, "src/train.py", '"lr": lr', '"lr": __import__("greeting").VERSION')
    text = (bundle.folder / "databricks.yml").read_text()
    of_the_team = text[text.index("resources:\n  jobs:") : text.index("targets:")]
    write(bundle, "databricks.yml", of_the_team, "")

    def packs() -> set[str]:
        return {path.name for path in bundle.folder.glob("sgpu/objects/packs/*")}

    assert Shell(bundle.folder, dict(os.environ))("bundle", "render", "--keep", "1").code == 0
    first = packs()
    install(site, "2.0")
    known, ids = deployed(bundle, client)
    assert packs() > first, "the loader keeps the last three"
    assert Shell(bundle.folder, dict(os.environ))("bundle", "render", "--keep", "1").code == 0
    assert not packs() & {name for name in first if name.endswith(".manifest")}
    assert launched(client, ids["nightly"]) == {"prepare": "SUCCESS", "train": "SUCCESS"}
    (run,) = client.jobs.list_runs(job_id=ids["nightly"])
    assert run.state.result_state.value == "SUCCESS"
    (lineage,) = client.workspace.list(f"{known.file_path}/sgpu/runs")
    folders = list(client.workspace.list(f"{lineage.path}/job.nightly"))
    back = [one for one in folders if _has(client, f"{one.path}/back/0/node_0/report.json")]
    (launch,) = back
    output = f"{launch.path}/back/0/node_0/ranks/0/output.json"
    assert json.loads(client.workspace.download(output).read())["lr"] == "2.0"


def _has(client: Any, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    try:
        return any(str(one.path).endswith(f"/{name}") for one in client.workspace.list(folder))
    except NotFound:
        return False


def test_sgpu_leaves_a_deployed_job_to_its_bundle(bundle: CliStandin, client: Any) -> None:
    """Adopt refuses it, and a plan is about a job of its own, beside that of the bundle."""
    _, ids = deployed(bundle, client)
    shell = Shell(bundle.folder, dict(os.environ))
    refused = shell("adopt", "job.nightly", str(ids["nightly"]))
    assert refused.code == 1
    assert "is managed by a bundle" in refused.err
    before = client.jobs.get(ids["nightly"]).as_dict()
    plan = shell("plan", "-o", "json")
    assert plan.code == 0, plan.err
    (job,) = [one for one in json.loads(plan.out)["data"]["changes"] if one["kind"] == "job"]
    assert job["action"] == "create"
    assert client.jobs.get(ids["nightly"]).as_dict() == before


def test_a_job_in_a_bundle_is_what_apply_makes_but_for_its_places(
    bundle: CliStandin, client: Any
) -> None:
    write(bundle, "sgpu.yml", "    lifecycle: {prevent_destroy: true}\n", "    paused: false\n")
    _, ids = deployed(bundle, client)
    assert Shell(bundle.folder, dict(os.environ))("apply", "-y").code == 0
    api = client.api_client
    listed = api.do("GET", "/api/2.2/jobs/list", query={"expand_tasks": "true"})["jobs"]
    found = {one["job_id"]: one["settings"] for one in listed}
    ours = found.pop(ids["nightly"])
    (applied,) = (one for one in found.values() if "sgpu_token" in one.get("tags", {}))
    assert "sgpu_token" not in ours.get("tags", {})
    for settings in (ours, applied):
        for name in ("name", "tags", "deployment", "edit_mode"):
            settings.pop(name, None)
    assert without_places(ours) == without_places(applied)


def without_places(value: Any) -> Any:
    """Paths in the workspace by their last part; what names a version has none."""
    if isinstance(value, dict):
        return {
            key: without_places(item)
            for key, item in value.items()
            if key != "mlflow_experiment_directory"
        }
    if isinstance(value, list):
        return [without_places(item) for item in value]
    if isinstance(value, str) and value.startswith("/Workspace"):
        return value.rpartition("/")[2]
    return value

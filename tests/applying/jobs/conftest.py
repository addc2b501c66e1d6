"""A project with jobs, a workspace of its own that keeps them, and the engine in this process."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sgpu_decl.api import Location, PlanOptions, Session
from sgpu_decl.applying.apply_result import Applied
from sgpu_decl.model.plan import Plan
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from tests.support import require

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

require("databricks.sdk")

NOTEBOOK = "notebook: {path: /Workspace/Shared/report}"
JOB = f"""\
jobs:
  nightly:
    {NOTEBOOK}
    schedule: 0 30 2 * * ?
    timezone: Europe/Berlin
    tags: {{team: ml}}
"""


@dataclass(frozen=True)
class Shop:
    """`folder` is the project; the rest is the workspace, seen without any code of ours."""

    folder: Path
    server: WorkspaceServer
    token: str

    def write(self, text: str, name: str = "sgpu.yml") -> None:
        (self.folder / name).write_text(text)

    def session(self, name: str = "sgpu.yml", **said: Any) -> Session:
        return Session.open(Location(file=self.folder / name, project=self.folder, **said))

    def plan(self, *, target: str | None = None, **asked: Any) -> Plan:
        return self.session(target=target).plan(PlanOptions(**asked)).plan

    def apply(self, *, target: str | None = None, **asked: Any) -> Applied:
        session = self.session(target=target)
        return session.apply(session.plan(PlanOptions(**asked)))

    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        given: dict[str, Any] = {"query": body} if method == "GET" else {"body": body}
        return self._client.api_client.do(method, f"/api/2.{path}", **given)

    @cached_property
    def _client(self) -> "WorkspaceClient":
        from databricks.sdk import WorkspaceClient

        return WorkspaceClient(host=self.server.url, token=self.token)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """The settings of every job, by id."""
        found = self.api("GET", "2/jobs/list", {"expand_tasks": "true"}).get("jobs", ())
        return {str(item["job_id"]): item["settings"] for item in found}

    def job(self) -> tuple[str, dict[str, Any]]:
        """The one job that there is."""
        ((job_id, settings),) = self.jobs().items()
        return job_id, settings

    def edit(self, **settings: Any) -> None:
        """As somebody does in the workspace."""
        job_id, _ = self.job()
        self.api("POST", "2/jobs/update", {"job_id": int(job_id), "new_settings": settings})

    def put_notebook(self, path: str) -> None:
        body = {"path": path, "language": "PYTHON", "content": "MQ==", "overwrite": True}
        self.api("POST", "0/workspace/import", body)

    def fault(self, pattern: str, effect: Effect, **more: Any) -> None:
        tenant = self.server.tenants.of_token(self.token).key
        self.server.faults.add(Fault(pattern=pattern, effect=effect, **more), tenant=tenant)

    def asked(self, path: str) -> list[int]:
        """The statuses of what was asked of a path."""
        key = self.server.tenants.of_token(self.token).key
        return [item.status for item in self.server.recording.all(key) if item.path.endswith(path)]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceServer]:
    with WorkspaceServer(tmp_path_factory.mktemp("workspace")) as running:
        yield running


@pytest.fixture
def shop(folder: Path, server: WorkspaceServer, monkeypatch: pytest.MonkeyPatch) -> Shop:
    token = server.new_token()
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(folder / "none"))
    monkeypatch.setenv("DATABRICKS_HOST", server.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", token)
    monkeypatch.delenv("DATABRICKS_CONFIG_PROFILE", raising=False)
    made = Shop(folder, server, token)
    made.write(JOB)
    made.put_notebook("/Workspace/Shared/report")
    return made

"""A user of the workspace who speaks through the SDK alone."""

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from databricks.sdk.service.workspace import ImportFormat

from tests.support import until


@pytest.fixture
def user(client: Any) -> "User":
    return User(client)


@dataclass
class User:
    client: Any

    @property
    def home(self) -> str:
        return f"/Workspace/Users/{self.client.current_user.me().user_name}"

    def stage(self, folder: str = "launch", **files: str | bytes) -> str:
        """Upload files, with `__` for `.` in their names; the folder that they are in."""
        where = f"{self.home}/{folder}"
        self.client.workspace.mkdirs(where)
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            path = f"{where}/{'.'.join(name.rsplit('__', 1))}"
            self.client.workspace.upload(
                path, io.BytesIO(data), format=ImportFormat.AUTO, overwrite=True
            )
        return where

    def task(self, command: str, **more: Any) -> dict[str, Any]:
        """An AI Runtime task that runs a staged command."""
        count, kind = more.pop("count", 1), more.pop("kind", "GPU_1xA10")
        compute = {"accelerator_type": kind, "accelerator_count": count}
        asked = {
            "experiment": "exp",
            "deployments": [{"command_path": f"{command}/command.sh", "compute": compute}],
            **more.pop("ai", {}),
        }
        return {
            "task_key": "train", "environment_key": "default", "ai_runtime_task": asked, **more
        }  # fmt: skip

    def payload(self, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
        environment = {"environment_key": "default", "spec": {"environment_version": "5"}}
        return {"run_name": "r", "environments": [environment], "tasks": list(tasks), **more}

    def submit(self, text: str, *, of_run: dict[str, Any] | None = None, **of_task: Any) -> int:
        """Stage a command and submit it."""
        task = self.task(self.stage(uuid4().hex, command__sh=text), **of_task)
        return self.post("runs/submit", self.payload(task, **(of_run or {})))["run_id"]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.client.api_client.do("POST", f"/api/2.2/jobs/{path}", body=body)

    def run(self, run_id: int) -> Any:
        return self.client.jobs.get_run(run_id)

    def state(self, run_id: int) -> str:
        return str(self.run(run_id).state.life_cycle_state.value)

    def ended(self, run_id: int) -> Any:
        """The run, once it has ended."""
        until(lambda: self.run(run_id).state.result_state)
        return self.run(run_id)

    def output(self, run_id: int, attempt: int = -1) -> Any:
        return self.client.jobs.get_run_output(self.run(run_id).tasks[attempt].run_id)

    def page(self, run_id: int, **query: Any) -> Any:
        path = f"/api/2.0/ai-training/workflows/by-run-id/{run_id}/logs"
        named = {name.replace("__", "."): value for name, value in query.items()}
        return self.client.api_client.do("GET", path, query=named)

    def lines(self, run_id: int, node: int | None = None, **query: Any) -> list[str]:
        """All lines, page by page."""
        if node is not None:
            query["filter__node_index"] = node
        found: list[str] = []
        while True:
            page = self.page(run_id, **query)
            found += [record["body"] for record in page["log_records"]]
            if "next_page_token" not in page:
                return found
            query["page_token"] = page["next_page_token"]

    def says(self, run_id: int, line: str) -> None:
        """Wait until a run's log has a line."""
        until(lambda: line in self.lines(run_id))


def processes_with(text: str) -> list[int]:
    """The living processes whose command line or environment has that text."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            said = Path(f"/proc/{name}/cmdline").read_bytes()
            said += Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if text.encode() in said and int(name) != os.getpid():
            found.append(int(name))
    return found

"""The same through a workspace that executes runs: staged, submitted and read by its API alone."""

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sgpu_decl.agent.node.node_report import REPORT, unseal
from sgpu_decl.agent.system.processes import carriers
from sgpu_decl.backends.archives import agent_zip
from tests.backends.launches import code_of, launching_of, workspace_files_of
from tests.testing.workspace.conftest import client, no_profile, server, token
from tests.testing.workspace.executing.conftest import User, user

__all__ = ["client", "no_profile", "server", "token", "user"]


class Submitted:
    """A run of the workspace."""

    def __init__(self, user: User, folder: str, token: str, run_id: int) -> None:
        self.user = user
        self.folder = folder
        self.token = token
        self.id = run_id

    def ended(self) -> Any:
        run = self.user.ended(self.id)
        assert carriers(self.token) == []
        return run

    def back(self, name: str, *, node: int = 0, attempt: int = 0) -> Any:
        path = f"{self.folder}/back/{attempt}/node_{node}/{name}"
        with self.user.client.workspace.download(path) as file:
            content = file.read()
        return unseal(content) if name == REPORT else json.loads(content)

    def attempts(self) -> int:
        return len(list(self.user.client.workspace.list(f"{self.folder}/back")))


@pytest.fixture
def submit(user: User, tmp_path: Path) -> Callable[..., Submitted]:
    def put(path: str, data: bytes) -> None:
        user.client.workspace.mkdirs(path.rpartition("/")[0])
        user.client.api_client.do(
            "POST", f"/api/2.0/workspace-files/import-file{path}?overwrite=true",
            data=io.BytesIO(data), headers={"Content-Type": "application/octet-stream"},
        )  # fmt: skip

    def make(
        source: str, *, nodes: int = 1, config: Mapping[str, Any] = {}, **task: Any
    ) -> Submitted:
        token = uuid4().hex
        given = {"name": "test", "gpus": nodes, "type": "A10", "entrypoint": "main.py:main",
                 "grace": "400ms", **config}  # fmt: skip
        (tmp_path / "main.py").write_text(source)
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        launching = launching_of(token=token, spec=json.dumps(given), code_digest=code_of(source))
        staging = f"{user.home}/.sgpu"
        folder = f"{staging}/runs/lineage/test/1-{token[:8]}"
        files = workspace_files_of(
            launching, root=tmp_path, nodes=nodes, scratch=scratch,
            folder=folder, code=tmp_path,
        )  # fmt: skip
        for name, content in files.items():
            assert isinstance(content, bytes)
            put(f"{folder}/{name}", content)
        digest, archive = agent_zip()
        put(f"{staging}/objects/agent/{digest}.zip", archive)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            tar.add(tmp_path / "main.py", "code/main.py")
        code = f"{staging}/objects/code/{token}.tar.gz"
        put(code, packed.getvalue())
        asked = user.task(folder, count=nodes, ai={"code_source_path": code}, **task)
        run_id = user.post("runs/submit", user.payload(asked))["run_id"]
        return Submitted(user, folder, token, run_id)

    return make


@pytest.mark.expensive
def test_ranks_on_two_nodes_return_their_values(submit: Any) -> None:
    source = """
import os
def main():
    print("hello")
    return [os.environ[name] for name in ("RANK", "WORLD_SIZE", "NODE_RANK", "MLFLOW_RUN_ID")]
"""
    run = submit(source, nodes=2)
    assert run.ended().state.result_state.value == "SUCCESS"
    tracked = run.user.output(run.id).ai_runtime_task_output.mlflow_run_id
    assert run.back("ranks/0/output.json") == ["0", "2", "0", tracked]
    assert run.back("ranks/1/output.json", node=1) == ["1", "2", "1", tracked]
    assert run.back(REPORT)["mlflow_run_id"] == tracked
    assert run.user.lines(run.id, node=1) == ["[rank 1] hello"]


@pytest.mark.expensive
def test_a_mistake_of_the_user_is_made_once(submit: Any) -> None:
    source = "def main(): raise ValueError('a mistake')"
    run = submit(source, nodes=2, config={"retry": {"max": 2}}, max_retries=2)
    ended = run.ended()
    assert ended.state.result_state.value == "FAILED"
    assert len(ended.tasks) == 3
    assert run.back(REPORT)["outcome"]["first_cause"]["summary"] == "ValueError: a mistake"
    assert run.attempts() == 1


@pytest.mark.expensive
def test_a_run_goes_on_after_the_death_of_a_node(submit: Any) -> None:
    source = """
import os, signal
def main():
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        print("up", flush=True)
        while True: signal.pause()
    return os.environ["TORCHELASTIC_RESTART_COUNT"]
"""
    retry = {"retry": {"max": 1, "backoff": "0s"}}
    run = submit(source, nodes=2, config=retry, max_retries=1)
    run.user.says(run.id, "[rank 1] up")
    lost = {"run_id": run.id, "node": 1}
    run.user.client.api_client.do("POST", "/__testserver/lose-node", body=lost)
    assert run.ended().state.result_state.value == "SUCCESS"
    assert run.back("ranks/1/output.json", node=1, attempt=1) == "1"


@pytest.mark.expensive
def test_a_cancelled_run_brings_back_what_it_has(submit: Any) -> None:
    source = """
import signal, sys
def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("up", flush=True)
    while True: signal.pause()
"""
    run = submit(source, config={"grace": "30s"})
    run.user.says(run.id, "[rank 0] up")
    run.user.client.jobs.cancel_run(run.id)
    assert run.ended().state.result_state.value == "CANCELED"
    assert run.back(REPORT)["outcome"]["state"] == "cancelled"
    assert run.back(REPORT)["exit_code"] == 130


def test_secrets_come_from_the_workspace(submit: Any, user: User) -> None:
    user.client.secrets.create_scope("scope")
    user.client.secrets.put_secret("scope", "key", string_value="hf_very_secret")
    source = """
import os
def main():
    print("it is", os.environ["HF_TOKEN"])
    return len(os.environ["HF_TOKEN"])
"""
    run = submit(source, config={"env": {"secrets": {"HF_TOKEN": "scope/key"}}})
    assert run.ended().state.result_state.value == "SUCCESS"
    assert run.back("ranks/0/output.json") == len("hf_very_secret")
    assert user.lines(run.id) == ["[rank 0] it is ***"]

"""What `air`, the platform's own client, and sgpu submit for the same workload, side by side.

The golden file shows both. Each difference has its reason here, and none is without one. The side
of sgpu is made by each test. That of `air` 1.2.1 was recorded with the command itself, and is
recorded anew where SGPU_REGEN=1 and SGPU_TEST_AIR say so.
"""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient

from sgpu_decl.testing.workspace import WorkspaceServer
from tests.backends.databricks.bench import DatabricksBench, Launched
from tests.support import REGEN, check_golden
from tests.testing.workspace.sessions import recorded

HERE = Path(__file__).parent / "golden"
RECORDED = HERE / "air_submissions.json"
AIR = os.environ.get("SGPU_TEST_AIR") or shutil.which("air")

Side = dict[str, Any]
"""`submitted`, the body of `runs/submit`; `beside`, the files in the command's folder; `changed`,
what else a client tells the workspace to do."""

WORKLOADS = {
    "small": (
        """\
experiment_name: small
compute: {num_accelerators: 2, accelerator_type: GPU_1xA10}
environment: {version: "5", dependencies: []}
env_variables: {GREETING: hello}
parameters: {lr: 0.5}
code_source: {type: snapshot, snapshot: {root_path: ./code}}
max_retries: 0
timeout_minutes: 10
command: echo hello
""",
        """\
name: small
gpus: 2
type: A10
env: {base: gpu-5, variables: {GREETING: hello}}
parameters: {lr: 0.5}
code: {root: code}
timeout: 10m
command: echo hello
backend: databricks
""",
    ),
    "whole": (
        """\
experiment_name: whole
mlflow_run_name: first
mlflow_experiment_directory: /Workspace/Shared/team
mlflow_artifact_location: dbfs:/Volumes/main/ml/artifacts
compute: {num_accelerators: 16, accelerator_type: GPU_8xH100}
environment: {version: "5", dependencies: [peft==0.17.1]}
secrets: {HF_TOKEN: ml/hf}
usage_policy_name: team
permissions: [{group_name: users, level: CAN_VIEW}]
max_retries: 2
timeout_minutes: 60
command: echo hello
""",
        """\
name: whole
gpus: 16
type: H100
env: {base: gpu-5, dependencies: [peft==0.17.1], secrets: {HF_TOKEN: "databricks:ml/hf"}}
mlflow:
  experiment: /Shared/team/whole
  run_name: first
  artifact_location: /Volumes/main/ml/artifacts
budget: team
permissions: [{level: view, group: users}]
retry: {max: 2, on: [infra]}
timeout: 1h
command: echo hello
backend: databricks
""",
    ),
}

WHY = {
    "run_name": "sgpu names the attempt: several of one run can be told apart in the workspace",
    "timeout_seconds": "the platform counts the queue: sgpu leaves 24 h for it in each attempt, "
    "and its agent ends the ranks when their own time is over",
    "idempotency_token": "sgpu derives it from the attempt: a launch that broke off is never "
    "submitted twice",
    "tasks.0.timeout_seconds": "0 means none, as if it is left out",
    "tasks.0.email_notifications": "empty, as if it is left out; sgpu sends `on_finish` for "
    "the run",
    "tasks.0.max_retries": "0 is the default; sgpu always says it",
    "tasks.0.retry_on_timeout": "sgpu never pays again for a run that used up its time",
    "tasks.0.ai_runtime_task.mlflow_run": "sgpu numbers the MLflow runs of one run",
    "tasks.0.ai_runtime_task.mlflow_experiment_directory": "sgpu always says it: a service "
    "principal need not have a default folder",
    "tasks.0.ai_runtime_task.deployments.0.command_path": "each has a folder of its own in the "
    "home of the user",
    "tasks.0.ai_runtime_task.code_source_path": "each stages code by itself: sgpu by content, so "
    "that equal code is there once; where `air` has no code source, sgpu sends the folder of the "
    "run file",
    "environments.0.spec.dependencies": "an empty list, as if it is left out",
    "access_control_list": "sgpu submits permissions with the run: nobody sees it without them",
    "beside env_vars.json": "sgpu keeps variables in `spec.json`, which its agent reads",
    "beside hyperparameters.yaml": "sgpu keeps parameters in `spec.json`; its agent writes the "
    "file",
    "beside requirements.yaml": "sgpu sends dependencies in the body, which is where they count",
    "beside _air.py": "the entrypoint of the ranks",
    "beside spec.json": "what the agent is told of the launch",
    "beside submitted.json": "which run the launch became, for other machines",
    "changed PATCH /api/2.0/permissions/jobs/ID": "sgpu submits permissions with the run",
    "changed POST /api/2.0/ai-training/config:validate": "sgpu asks when it plans whether the run "
    "is valid",
}


@pytest.mark.expensive
def test_each_difference_between_air_and_sgpu_has_a_reason(
    bench: DatabricksBench, tmp_path: Path
) -> None:
    _put_secret(WorkspaceClient())
    (bench.project / "code").mkdir()
    (bench.project / "code" / "note.txt").write_text("from the code\n")
    if REGEN and AIR is not None:
        server = bench.server
        said = {name: _air(air, server, tmp_path / name) for name, (air, _) in WORKLOADS.items()}
        RECORDED.write_text(_plain(json.dumps(said, indent=1, sort_keys=True)) + "\n")
    of_air: dict[str, Side] = json.loads(RECORDED.read_text())
    used: set[str] = set()

    parts = []
    for name, (_, run) in WORKLOADS.items():
        own = _sgpu(bench, run)
        lines = list(_compared(_flat(of_air[name]), _flat(own), used))
        parts.append("\n".join([f"# {name}", "", *lines]))

    assert set(WHY) == used, "reasons for what is no difference"
    text = "\n\n".join(parts) + "\n"
    check_golden(HERE / "air_side_by_side.txt", text)


def _compared(air: Mapping[str, str], sgpu: Mapping[str, str], used: set[str]) -> Iterator[str]:
    """One line for each field that both say alike, and for each other one what both say, and why
    they differ."""
    for name in sorted({*air, *sgpu}):
        if air.get(name) == sgpu.get(name):
            yield f"  {name}: {air[name]}"
            continue
        reason = next((item for item in WHY if name == item or name.startswith(f"{item}.")), None)
        assert reason is not None, f"{name}: {air.get(name)} of air, {sgpu.get(name)} of sgpu"
        used.add(reason)
        yield f"~ {name}"
        yield f"    air:  {air.get(name, '-')}"
        yield f"    sgpu: {sgpu.get(name, '-')}"
        yield f"    why:  {WHY[reason]}"


def _flat(side: Side) -> dict[str, str]:
    found = dict(_leaves(side["submitted"], ""))
    found |= {f"beside {name}": "there" for name in side["beside"]}
    return found | {f"changed {what}": "yes" for what in side["changed"]}


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    empty = True
    for key, below in inner:
        empty = False
        yield from _leaves(below, f"{path}.{key}" if path else str(key))
    if empty:
        yield path, _plain(json.dumps(value))


def _plain(text: str) -> str:
    """Without what differs from time to time: users, hashes, moments."""
    text = re.sub(r"user-[0-9a-f]{8}@", "me@", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"sgpu1-[0-9a-z]+", "sgpu1-HASH", text)
    text = re.sub(r"\d{8}_\d{6}", "MOMENT", text)
    return re.sub(r"[0-9a-f]{8,}", "HASH", text)


def _sgpu(bench: DatabricksBench, run: str) -> Side:
    (bench.project / "run.yaml").write_text(run)
    bench.forget_requests()
    opened = bench.open()
    plan = opened.plan()
    assert plan.plan.applyable, [check.summary for check in plan.plan.checks]
    launched = Launched(opened, *opened.apply(plan).launched)
    asked = [(item.method, item.path, item.json) for item in bench.requests()]
    launched.cancelled()
    (submitted,) = [body for _, path, body in asked if path.endswith("/runs/submit")]
    assert isinstance(submitted, dict)
    folder = bench.tenant.folder / _command(submitted).parent.relative_to("/")
    beside = sorted(item.name for item in folder.iterdir() if item.is_file())
    return {"submitted": submitted, "beside": beside, "changed": _changed(asked)}


def _put_secret(client: WorkspaceClient) -> None:
    client.secrets.create_scope("ml")
    client.secrets.put_secret("ml", "hf", string_value="hf-of-nobody")


def _air(text: str, server: WorkspaceServer, folder: Path) -> Side:
    """As another user: what it makes in the workspace, sgpu does not find."""
    token = server.new_token()
    client = WorkspaceClient(host=server.url, token=token)
    _put_secret(client)
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "note.txt").write_text("from the code\n")
    (folder / "run.yaml").write_text(text)
    with recorded(server.url) as (url, passed):
        environment = {
            **{key: text for key, text in os.environ.items() if not key.startswith("DATABRICKS_")},
            "DATABRICKS_HOST": url, "DATABRICKS_TOKEN": token, "HOME": str(folder),
            "AIR_DISABLE_TELEMETRY": "1",
        }  # fmt: skip
        done = subprocess.run(
            [str(AIR), "--json", "run", "-f", "run.yaml"], env=environment, cwd=folder,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    bodies = [(item["method"], item["path"], base64.b64decode(item["body"])) for item in passed]
    (submitted,) = [json.loads(body) for _, path, body in bodies if path.endswith("/runs/submit")]
    client.jobs.cancel_run(json.loads(done.stdout)["data"]["run_id"])
    above = str(_command(submitted).parent)
    sent = [_path_of(body) for _, path, body in bodies if path.endswith("/workspace/import")]
    beside = sorted(Path(item).name for item in sent if str(Path(item).parent) == above)
    return {"submitted": submitted, "beside": beside, "changed": _changed(bodies)}


def _path_of(form: bytes) -> str:
    found = re.search(rb'name="path"\r\n\r\n(.*?)\r\n', form)
    assert found is not None
    return found[1].decode()


def _command(submitted: Side) -> Path:
    (task,) = submitted["tasks"]
    return Path(task["ai_runtime_task"]["deployments"][0]["command_path"])


def _changed(asked: list[tuple[str, str, Any]]) -> list[str]:
    """What a client told the workspace to do, each once; ids left out."""
    found = {f"{method} {path.partition('?')[0]}" for method, path, _ in asked if method != "GET"}
    return sorted({re.sub(r"/\d+$", "/ID", item) for item in found})

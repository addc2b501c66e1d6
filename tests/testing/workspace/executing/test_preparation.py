"""What a node is made ready from: code, secrets, files beside the command."""

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.testing.workspace.executing.node_access import NodeAccess
from sgpu_decl.testing.workspace.executing.node_environment import Position
from sgpu_decl.testing.workspace.executing.places import NodePlaces, workspace_path
from sgpu_decl.testing.workspace.executing.preparation import Preparation
from sgpu_decl.testing.workspace.executing.workload import Workload
from sgpu_decl.testing.workspace.mlflow_names import Tracked
from sgpu_decl.testing.workspace.tenant import Tenant
from tests.testing.workspace.executing.conftest import User


def archive(**files: str) -> bytes:
    """A tar.gz with these files, `__` in their names for `/`."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return whole.getvalue()


def failure(user: User, command: str, **task: Any) -> str:
    run_id = user.post("runs/submit", user.payload(user.task(command, **task)))["run_id"]
    run = user.ended(run_id)
    assert run.state.result_state.value == "FAILED"
    return str(run.state.state_message)


def test_code_is_extracted_on_each_node(user: User) -> None:
    where = user.stage(
        command__sh='cat "$CODE_SOURCE_PATH/train.py"; echo $NODE_RANK >> "$CODE_SOURCE_PATH/own"\n'
        'cat "$CODE_SOURCE_PATH/own"\n',
        code__gz=archive(project__train="x", **{"project__train.py": "text\n"}),
    )
    task = user.task(where, count=2, ai={"code_source_path": f"{where}/code.gz"})
    run_id = user.post("runs/submit", user.payload(task))["run_id"]
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    assert user.lines(run_id, node=0) == ["text", "0"]
    assert user.lines(run_id, node=1) == ["text", "1"]


@pytest.mark.parametrize(
    "content", [archive(a__x="1", b__y="2"), archive(x="1"), archive()], ids=["two", "file", "none"]
)
def test_an_archive_has_one_folder_at_its_top(user: User, content: bytes) -> None:
    where = user.stage(command__sh="echo never\n", code__gz=content)
    message = failure(user, where, ai={"code_source_path": f"{where}/code.gz"})
    assert message.endswith("could not determine top level component from tarball")


def test_a_damaged_archive_and_a_missing_one_are_told_apart(user: User) -> None:
    where = user.stage(command__sh="echo never\n", code__gz=b"no archive")
    message = failure(user, where, ai={"code_source_path": f"{where}/code.gz"})
    assert "failed to extract code source" in message
    message = failure(user, where, ai={"code_source_path": f"{where}/other.gz"})
    assert message.endswith("other.gz does not exist")


def test_secrets_are_resolved_on_the_node(user: User) -> None:
    user.client.secrets.create_scope("scope")
    user.client.secrets.put_secret("scope", "key", string_value="hidden")
    wanted = [{"name": "TOKEN", "secret_scope": "scope", "secret_key": "key"}]
    where = user.stage(command__sh="echo $TOKEN\n", secret_env_vars__json=json.dumps(wanted))
    run_id = user.post("runs/submit", user.payload(user.task(where)))["run_id"]
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    assert user.lines(run_id) == ["hidden"]


def test_a_missing_scope_fails_the_run(user: User) -> None:
    wanted = [{"name": "TOKEN", "secret_scope": "nowhere", "secret_key": "key"}]
    where = user.stage(command__sh="echo never\n", secret_env_vars__json=json.dumps(wanted))
    message = failure(user, where)
    assert "Failed to resolve secret for env var TOKEN" in message
    assert "nowhere" in message


def test_files_beside_the_command_that_make_no_sense_fail_the_run(user: User) -> None:
    where = user.stage(command__sh="echo never\n", env_vars__json='{"A": "b"}')
    assert "Failed to parse env_vars.json" in failure(user, where)


def test_a_command_that_was_deleted_fails_the_run(user: User) -> None:
    assert failure(user, f"{user.home}/nowhere").endswith("/nowhere/command.sh does not exist")


def test_variables_of_the_job_come_with_the_task(user: User) -> None:
    user.client.secrets.create_scope("scope")
    user.client.secrets.put_secret("scope", "key", string_value="hidden")
    where = user.stage(
        command__sh="echo $PLAIN $SECRET $FILED\n", more__env="# c\nFILED=3\nPLAIN=0\n"
    )
    spec = {
        "files": [f"{where}/more.env"],
        "variables": {"PLAIN": "1", "SECRET": "{{secrets/scope/key}}"},
    }
    given = [{"environment_variables_key": "vars", "spec": spec}]
    task = user.task(where, environment_variables_key="vars")
    payload = user.payload(task, environment_variables=given)
    run_id = user.post("runs/submit", payload)["run_id"]
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    assert user.lines(run_id) == ["1 hidden 3"]


def test_a_python_file_runs_with_its_parameters(user: User) -> None:
    where = user.stage(main__py="import sys; print(sys.argv[1:])\n")
    task = {
        "task_key": "script",
        "spark_python_task": {"python_file": f"{where}/main.py", "parameters": ["a", "b c"]},
    }
    run_id = user.post("runs/submit", user.payload(task))["run_id"]
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    assert user.lines(run_id) == ["['a', 'b c']"]


def test_results_written_to_the_workspace_are_there_for_the_api(user: User) -> None:
    run_id = user.submit(f"echo result > {user.home}/result.txt\n")
    assert user.ended(run_id).state.result_state.value == "SUCCESS"
    with user.client.workspace.download(f"{user.home}/result.txt") as file:
        assert file.read() == b"result\n"


@pytest.mark.parametrize("rooted", [True, False])
def test_a_node_without_a_root_of_its_own_is_given_real_folders(
    tmp_path: Path, rooted: bool
) -> None:
    (tmp_path / "tenant").mkdir()
    tenant = Tenant("key", tmp_path / "tenant", "me@example.com")
    launch = tenant.tree("Workspace") / "launch"
    launch.mkdir()
    (launch / "command.sh").write_text("true")
    (launch / "hyperparameters.yaml").write_text("a: 1")
    (tenant.tree("Volumes") / "code.gz").write_bytes(archive(project__a="1"))
    tracked = Tracked(experiment_id="1", run_id="abc", artifacts=tmp_path)
    access = NodeAccess(url="http://x", token="dapi", generous=False, tracked=tracked)
    preparation = Preparation(
        tenant=tenant, scratch=tmp_path / "scratch", settings={}, task={}, python=sys.executable,
        rooted=rooted, access=access, workload=Workload(
            accelerator="GPU_1xA10", gpus=1, nodes=1, program="/Workspace/launch/command.sh",
            code_source="/Volumes/code.gz",
        ),
    )  # fmt: skip
    spec = preparation.node(Position(node=0, nodes=1, gpus_per_node=1, master_port=1))
    found = (
        spec.argv[-1],
        *map(spec.environment.get, ("HYPERPARAMETERS_PATH", "CODE_SOURCE_PATH")),
    )
    tenant.close()
    if rooted:
        assert found == (
            "/Workspace/launch/command.sh", "/Workspace/launch/hyperparameters.yaml",
            "/databricks/code_source/project",
        )  # fmt: skip
        assert spec.folders["/Workspace"] == str(tenant.tree("Workspace"))
    else:
        assert all(path and Path(path).exists() for path in found)
        assert spec.root is None


@pytest.mark.parametrize("path", ["relative", "/Workspace/../etc/passwd", "/Volumes/a/../../b"])
def test_paths_do_not_lead_out_of_the_workspace(path: str) -> None:
    with pytest.raises(ValueError, match=r"absolute|leads"):
        workspace_path(path)


def test_paths_mean_the_same_with_and_without_the_first_folder() -> None:
    places = NodePlaces(trees={"Workspace": Path("/t")}, local=Path("/l"), rooted=True)
    assert (
        places.on_disk("/Users/a/x")
        == places.on_disk("/Workspace/Users/a/x")
        == Path("/t/Users/a/x")
    )
    assert workspace_path("dbfs:/Volumes/a/b") == "/Volumes/a/b"

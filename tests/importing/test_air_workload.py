"""Workloads of `databricks air`, newer and older, as run files."""

from pathlib import Path

import pytest

from sgpu_decl.errors import InvalidInput
from sgpu_decl.importing.translation import Fate
from tests.importing.conftest import Import

LEAST = """\
experiment_name: train
compute: {accelerator_type: GPU_1xA10, num_accelerators: 1}
command: python train.py
"""
WHOLE = """\
experiment_name: my-training
compute: {accelerator_type: GPU_8xH100, num_accelerators: 16, pool_id: abc, priority_class: NORMAL}
environment: {version: databricks_ai_v5, dependencies: [peft==0.17.1]}
code_source: {root_path: .}
env_variables: {NCCL_DEBUG: WARN, ON: 1}
secrets: {HF_TOKEN: ml/hf}
parameters: {lr: 1.0e-3, text: "1e-3"}
max_retries: 0
timeout_minutes: 360
mlflow_run_name: first
mlflow_experiment_directory: /Workspace/Users/a@example.com/all
mlflow_artifact_location: dbfs:/Volumes/a/b/c
permissions: [{group_name: ml, level: CAN_MANAGE_RUN}, {user_name: a@example.com, level: IS_OWNER}]
usage_policy_name: research
command: python train.py
"""


def test_a_workload_is_the_run_file_that_says_the_same(imported: Import) -> None:
    found = imported(WHOLE)
    assert found.yaml == {
        "name": "my-training",
        "gpus": 16,
        "type": "GPU_8xH100",
        "command": "python train.py",
        "launch": {"per": "node"},
        "parameters": {"lr": 0.001, "text": "1e-3"},
        "env": {
            "base": "ai-5",
            "dependencies": ["peft==0.17.1"],
            "variables": {"NCCL_DEBUG": "WARN", "ON": "1"},
            "secrets": {"HF_TOKEN": "databricks:ml/hf"},
        },
        "timeout": "6h",
        "retry": {"max": 0},
        "mlflow": {
            "run_name": "first",
            "experiment": "/Workspace/Users/a@example.com/all/my-training",
            "artifact_location": "dbfs:/Volumes/a/b/c",
        },
        "pool": "abc",
        "priority": "normal",
        "permissions": [{"level": "run", "group": "ml"}],
        "budget": "research",
        "backend": "databricks",
    }
    assert found.of(Fate.LOST) == {"permissions.1"}
    assert found.of(Fate.CHANGED) == {"timeout_minutes"}


def test_what_is_absent_is_the_default_of_the_platform(imported: Import) -> None:
    found = imported(LEAST)
    assert found.yaml["retry"] == {"max": 3, "on": ["infra", "error"]}
    assert found.yaml["env"] == {"base": "gpu-6"}
    assert found.yaml["pool"] == "on_demand"
    assert found.yaml["code"] == {"exclude": ["*"]}
    assert found.defaults == {
        "backend", "max_retries", "code_source", "environment.version", "compute.pool_id",
    }  # fmt: skip


def test_the_older_package_has_another_default(imported: Import) -> None:
    found = imported(LEAST + "job_type: standard\n")
    assert found.yaml["env"] == {"base": "gpu-4"}
    assert found.fates["job_type"] is Fate.CARRIED


def test_the_older_form_says_where_the_packages_are(imported: Import, tmp_path: Path) -> None:
    (tmp_path / "requirements.yaml").write_text("version: 5\ndependencies: [numpy, torch]\n")
    found = imported(
        LEAST
        + "environment: {dependencies: requirements.yaml}\n"
        + "code_source: {type: snapshot, snapshot: {root_path: ., include_paths: [src/a, b]}}\n"
    )
    assert found.yaml["env"] == {"base": "gpu-5", "dependencies": ["numpy", "torch"]}
    assert found.yaml["code"]["exclude"] == ["/*", "!/src", "/src/*", "!/src/a", "!/b"]
    assert found.fates["environment.dependencies"] is Fate.CHANGED


def test_the_older_form_has_what_no_run_has(imported: Import) -> None:
    found = imported(
        LEAST.replace("}", ", node_pool_id: pool-1}", 1)
        + "priority: 100\nenvironment: {docker_image: {url: a/b, tag_policy: latest}}\n"
    )
    lost = {"compute.node_pool_id", "priority", "environment.docker_image"}
    assert found.of(Fate.LOST) == lost
    assert all(found.notes[path] for path in lost)


def test_packages_are_installed_by_the_platform(imported: Import) -> None:
    lines = ["numpy", "-f https://x/w", "/Volumes/a/b/c/x.whl", "-r /Workspace/r.txt", "--no-deps"]
    found = imported(
        LEAST + f"environment: {{dependencies: {[*lines, './a-1-py3-none-any.whl']}}}\n"
    )
    assert found.yaml["env"]["dependencies"] == lines
    assert found.of(Fate.LOST) == {"environment.dependencies.5"}


def test_an_image_has_the_packages(imported: Import) -> None:
    found = imported(LEAST + "environment: {unity_catalog_image: 'a.b.c:1'}\n")
    assert found.yaml["image"] == "a.b.c:1"
    assert "env" not in found.yaml


def test_bases_come_below_the_workload(imported: Import, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(LEAST + "env_variables: {A: x, B: y}\n")
    found = imported("_bases_: [base.yaml]\nexperiment_name: other\nenv_variables: {B: z}\n")
    assert found.yaml["name"] == "other"
    assert found.yaml["env"]["variables"] == {"A": "x", "B": "z"}
    (tmp_path / "base.yaml").write_text("_bases_: [theirs.yaml]\n")
    with pytest.raises(InvalidInput, match="has itself among its `_bases_`"):
        imported("_bases_: [base.yaml]\n", tool="air")


def test_the_command_finds_its_code(imported: Import) -> None:
    found = imported(LEAST.replace("python", "cd $CODE_SOURCE_PATH && python"))
    assert found.yaml["command"] == (
        'export CODE_SOURCE_PATH="$PWD"\ncd $CODE_SOURCE_PATH && python train.py'
    )
    assert found.fates["command"] is Fate.CHANGED


def test_a_pinned_revision_is_lost(imported: Import) -> None:
    found = imported(LEAST + "code_source: {root_path: ., git: {branch: main, remote: false}}\n")
    assert found.of(Fate.LOST) == {"code_source.git.branch"}
    assert "check the revision out" in (found.hints["code_source.git.branch"] or "")


def test_what_sgpu_refuses_is_lost_with_its_reason(imported: Import) -> None:
    found = imported(LEAST + "env_variables: {RANK: 1, KEPT: 2}\nsecrets: {A: 'no scope'}\n")
    assert found.yaml["env"]["variables"] == {"KEPT": "2"}
    assert found.of(Fate.LOST) == {"env_variables.RANK", "secrets.A"}
    assert "sgpu sets `RANK` itself" in found.notes["env_variables.RANK"]


def test_an_unknown_field_has_the_nearest(imported: Import) -> None:
    found = imported(LEAST + "max_retrys: 2\n")
    assert found.of(Fate.LOST) == {"max_retrys"}
    assert found.hints["max_retrys"] == "did you mean `max_retries`?"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("containers: [{name: a, ranks: [0], command: a}]\n", "has `containers`"),
        ("job_type: udp\nudp: {model: a}\n", "is batch inference"),
    ],
)
def test_a_workload_without_a_run_is_refused(imported: Import, more: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        imported(LEAST + more)


def test_a_number_of_gpus_that_does_not_fit_is_refused_at_its_place(imported: Import) -> None:
    with pytest.raises(InvalidInput, match="no multiple") as raised:
        imported(LEAST.replace("GPU_1xA10", "GPU_8xH100"))
    (finding,) = raised.value.diagnostics
    assert finding.place is not None
    assert (finding.place.line, finding.place.column) == (2, 59)

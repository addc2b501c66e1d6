"""Tasks of SkyPilot as run files."""

import subprocess
from pathlib import Path

import pytest

from sgpu_decl.errors import InvalidInput
from sgpu_decl.importing.translation import Fate
from tests.importing.conftest import Import

TASK = """\
name: train
resources: {accelerators: "H100:8", use_spot: true, cloud: aws}
num_nodes: 2
workdir: src
envs: {NCCL_DEBUG: WARN, GIVEN: null}
secrets: {HF_TOKEN: null}
file_mounts: {/data: s3://bucket}
setup: |
  # packages
  pip install -r requirements.txt
run: |
  echo $SKYPILOT_NODE_RANK/$SKYPILOT_NUM_NODES ${undefined}
"""


def test_a_task_is_the_run_file_that_says_the_same(imported: Import) -> None:
    found = imported(TASK)
    command = found.yaml.pop("command")
    assert found.yaml == {
        "name": "train",
        "gpus": 16,
        "type": "H100",
        "launch": {"per": "node"},
        "env": {
            "variables": {"NCCL_DEBUG": "WARN"},
            "secrets": {"GIVEN": "env:GIVEN", "HF_TOKEN": "env:HF_TOKEN"},
            "requirements": "src/requirements.txt",
        },
        "code": {"root": "src"},
    }
    assert found.of(Fate.LOST) == {"resources.use_spot", "resources.cloud", "file_mounts./data"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env={"NODE_RANK": "1", "NUM_NODES": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1/2\n"


@pytest.mark.parametrize(
    ("accelerators", "kind", "gpus", "fate"),
    [
        ("A100-80GB:4", "A100_80GB", 4, Fate.CARRIED),
        ("{L4: 2}", "L4", 2, Fate.CARRIED),
        ("V100:0.5", "V100", 1, Fate.CHANGED),
        ("[L4:1, T4:2]", "L4", 1, Fate.CHANGED),
        ("tpu-v5e:8", "GPU", 8, Fate.CHANGED),
    ],
)
def test_accelerators(
    imported: Import, accelerators: str, kind: str, gpus: int, fate: Fate
) -> None:
    text = accelerators if accelerators[0] in "{[" else f'"{accelerators}"'
    found = imported(f"resources: {{accelerators: {text}}}\nrun: a\n")
    assert (found.yaml["type"], found.yaml["gpus"]) == (kind, gpus)
    assert found.fates["resources.accelerators"] is fate


def test_what_is_absent_is_the_default_of_skypilot(imported: Import) -> None:
    found = imported("run: python train.py\nnum_nodes: 2\n")
    assert (found.yaml["name"], found.yaml["type"], found.yaml["gpus"]) == ("theirs", "CPU", 2)
    assert found.yaml["code"] == {"exclude": ["*"]}
    assert found.defaults == {"name", "workdir", "setup", "backend", "resources.accelerators"}


def test_setup_that_does_more_comes_first(imported: Import) -> None:
    found = imported(
        "setup: |\n  apt install x\n  pip install a\nrun: python a.py\n", tool="skypilot"
    )
    assert found.yaml["command"].splitlines()[1:] == [
        "apt install x",
        "pip install a",
        "python a.py",
    ]
    assert found.fates["setup"] is Fate.CHANGED
    assert "env" not in found.yaml


def test_a_variable_without_a_counterpart_is_named(imported: Import) -> None:
    found = imported("workdir: .\nrun: echo $SKYPILOT_CLUSTER_INFO $SKYPILOT_NODE_RANK\n")
    assert found.hints["run"] == "sgpu has nothing for `SKYPILOT_CLUSTER_INFO`: do without it"


def test_restarts_are_counted(imported: Import) -> None:
    recovery = (
        "resources: {job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 3}}\nrun: a\n"
    )
    assert imported(recovery).yaml["retry"] == {"max": 3, "on": ["infra", "error"]}
    found = imported("resources: {use_spot: false, job_recovery: FAILOVER}\nrun: a\n")
    assert found.yaml["retry"] == {"max": 10, "on": ["infra"]}
    assert found.fates["resources.job_recovery"] is Fate.CHANGED


@pytest.mark.parametrize(
    ("text", "why"),
    [("service: {readiness_probe: /}\nrun: a\n", "is a service"), ("workdir: .\n", "has no `run`")],
)
def test_a_file_without_a_run_is_refused(
    imported: Import, text: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=why):
        imported(text, tool="skypilot")

"""Tasks of dstack as run files."""

import pytest

from sgpu_decl.errors import InvalidInput
from sgpu_decl.importing.translation import Fate
from tests.importing.conftest import Import

TASK = """\
type: task
name: train
python: "3.12"
nodes: 2
env: [HF_TOKEN, A=b=c, "B=${{ secrets.key }}"]
repos: [.]
commands:
  - pip install -r requirements.txt
  - torchrun --nproc-per-node $DSTACK_GPUS_PER_NODE train.py
resources: {gpu: "A100:80GB:4", shm_size: 8GB}
max_duration: 6h
utilization_policy: {min_gpu_utilization: 10, time_window: 30m}
spot_policy: on-demand
"""


def test_a_task_is_the_run_file_that_says_the_same(imported: Import) -> None:
    found = imported(TASK)
    assert found.yaml == {
        "name": "train",
        "gpus": 8,
        "type": "A100_80GB",
        "command": "set +u +o pipefail\n"
        'export DSTACK_GPUS_PER_NODE="$LOCAL_WORLD_SIZE"\n'
        "torchrun --nproc-per-node $DSTACK_GPUS_PER_NODE train.py",
        "launch": {"per": "node"},
        "env": {
            "python": "3.12",
            "requirements": "requirements.txt",
            "variables": {"A": "b=c"},
            "secrets": {"HF_TOKEN": "env:HF_TOKEN", "B": "env:B"},
        },
        "timeout": "6h",
        "grace": "5m",
        "idle": {"below": "10%", "for": "30m", "then": "stop"},
    }
    assert found.of(Fate.LOST) == {"resources.shm_size"}
    assert found.defaults == {"backend", "stop_duration"}


@pytest.mark.parametrize(
    ("gpu", "kind", "gpus", "fate"),
    [
        ("H100:8", "H100", 8, Fate.CARRIED),
        ("nvidia:L4", "L4", 1, Fate.CARRIED),
        ("2", "GPU", 2, Fate.CARRIED),
        ("H100,H200:4..8", "H100", 4, Fate.CHANGED),
        ("24GB..:2", "GPU", 2, Fate.CHANGED),
        ("{name: [T4], count: {min: 2, max: 4}}", "T4", 2, Fate.CHANGED),
        ("0..2", "CPU", 1, Fate.CHANGED),
    ],
)
def test_gpus(imported: Import, gpu: str, kind: str, gpus: int, fate: Fate) -> None:
    text = gpu if gpu[0] == "{" or gpu.isdecimal() else f'"{gpu}"'
    found = imported(f"type: task\ncommands: [a]\nresources: {{gpu: {text}}}\n")
    assert (found.yaml["type"], found.yaml["gpus"]) == (kind, gpus)
    assert found.fates["resources.gpu"] is fate


def test_retries_are_counted(imported: Import) -> None:
    found = imported("type: task\ncommands: [a]\nretry: {on_events: [error], duration: 1h}\n")
    assert found.yaml["retry"] == {"max": 3, "on": ["error"]}
    found = imported("type: task\ncommands: [a]\nretry: {on_events: [no-capacity]}\n")
    assert found.of(Fate.LOST) == {"retry"}


def test_files_elsewhere_are_lost(imported: Import) -> None:
    found = imported("type: task\ncommands: [a]\nrepos: [https://github.com/a/b]\nfiles: [x.txt]\n")
    assert found.of(Fate.LOST) == {"repos.0", "files.0"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("type: service\nport: 80\n", "is a dstack service"),
        ("type: task\nimage: a\n", "has no `commands`"),
        ("type: task\ngroups: [{commands: [a]}]\n", "has `groups`"),
    ],
)
def test_a_file_without_a_run_is_refused(imported: Import, text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        imported(text)

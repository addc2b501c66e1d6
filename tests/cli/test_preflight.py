"""`preflight: true` in a run's YAML."""

import json

import pytest

from tests.cli.conftest import Shell

RUN = """\
name: train
gpus: 2
type: CPU
entrypoint: train.py
mlflow: {enabled: false}
preflight: true
"""


@pytest.mark.expensive
def test_devices_are_measured_before_ranks_start(sgpu: Shell) -> None:
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", "print('up')")
    assert sgpu("apply", "-y").code == 0
    attempt = sgpu.folder / ".sgpu/default/runs/train/1"
    devices = json.loads((attempt / "outcome.json").read_text())["preflight"]
    assert [one["device"] for one in devices] == [0, 1]
    assert all(one["gflops"] > 0 for one in devices)
    # It is no input of the computation.
    sgpu.write("run.yaml", RUN.replace("preflight: true\n", ""))
    plan = json.loads(sgpu("plan", "-o", "json").out)["data"]
    assert [one["action"] for one in plan["changes"]] == ["update"]

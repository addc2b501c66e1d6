"""What GPUs do is measured by NVML; here a library stands for that of the driver."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgpu_decl.agent.monitor.series_file import read_series
from tests.cli.conftest import Shell
from tests.progress_reports import REPORT
from tests.support import until

GPUS = ("NVIDIA H100 80GB HBM3:85899345920", "NVIDIA H100 80GB HBM3:85899345920")
RUN = """\
name: train
gpus: 2
type: H100
entrypoint: train.py
mlflow: {enabled: false}
"""
PROGRAM = f"""{REPORT}
report(1)
await_file("seen")
"""


def test_a_run_on_gpus_has_their_series(on: Callable[..., Shell]) -> None:
    sgpu = on(*GPUS, SGPU_TEST_LOAD="87:612000:61:32:0", SGPU_TEST_XID="94")
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", PROGRAM)
    assert sgpu("apply", "-y", "--detach").code == 0
    attempt = sgpu.folder / ".sgpu/default/runs/train/1"
    told = until(lambda: _devices(attempt / "monitor.json"))
    first, second = told
    assert (first["utilisation"], first["power"], first["temperature"]) == (87, 612, 61)
    assert (first["room"], first["throttle"], first["ecc"]) == (81_920, 32, 0)
    assert second["device"] == 1
    (attempt / "output" / "seen").touch()
    assert sgpu("wait", "train").code == 0
    devices = read_series(attempt / "series.db")["devices"]
    assert devices.keys() == {0, 1}
    assert [row["xid"] for row in devices[0] if row["xid"]] == [94]
    used = json.loads((attempt / "outcome.json").read_text())["usage"]
    assert (used["gpus"], used["gpu_name"], used["gpu_percent"]) == (2, GPUS[0].split(":")[0], 87.0)


def test_gpus_that_tell_nothing_are_not_guessed(on: Callable[..., Shell]) -> None:
    sgpu = on(*GPUS)
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", PROGRAM)
    assert sgpu("apply", "-y", "--detach").code == 0
    attempt = sgpu.folder / ".sgpu/default/runs/train/1"
    (first, _) = until(lambda: _devices(attempt / "monitor.json"))
    assert first.keys() == {"device", "memory", "room"}
    (attempt / "output" / "seen").touch()
    assert sgpu("wait", "train").code == 0


def test_what_was_used_is_said_at_the_end_and_in_the_next_plan(on: Callable[..., Shell]) -> None:
    sgpu = on(*GPUS)
    sgpu.write("run.yaml", RUN)
    sgpu.write("train.py", "")
    assert sgpu("apply", "-y").code == 0
    path = sgpu.folder / ".sgpu/default/runs/train/1/outcome.json"
    outcome = json.loads(path.read_text())
    # As if it had taken an hour.
    outcome["usage"] = {
        "seconds": 3600.0, "nodes": 1, "gpus": 2, "gpu_name": "NVIDIA H100 80GB HBM3",
        "gpu_percent": 11.0, "gpus_unused": 0, "gpu_memory": 9_300, "gpu_memory_there": 81_559,
    }  # fmt: skip
    path.write_text(json.dumps(outcome))
    words = "used 11 % of 2 H100 and at most 9 of 80 GB"
    assert f"{words}: 1 GPU would do" in sgpu("show", "train").out
    assert f"{words}: 1 GPU would do" in sgpu("wait", "train").err
    assert json.loads(sgpu("show", "train", "-o", "json").out)["data"]["usage"]["gpus"] == 2
    assert words not in sgpu("plan").out
    assert f"the last attempt {words}" in sgpu("plan", "--rerun", "train").out


def test_gpus_that_do_nothing_are_said_and_end_the_run(on: Callable[..., Shell]) -> None:
    sgpu = on(*GPUS, SGPU_TEST_LOAD="2:100000:40:0:0")
    sgpu.write("run.yaml", f"{RUN}idle: {{below: 5%, for: 1s}}\n")
    sgpu.write("train.py", PROGRAM)
    assert sgpu("apply", "-y", "--detach").code == 0
    words = "2 GPUs are idle: used 2 % in the last 1 s"
    until(lambda: words in sgpu("status").out)
    assert words in sgpu("top", "train", "--once").out
    assert json.loads(sgpu("show", "train", "-o", "json").out)["data"]["idle"]["percent"] == 2.0
    (sgpu.folder / ".sgpu/default/runs/train/1/output/seen").touch()
    assert sgpu("wait", "train").code == 0
    assert words not in sgpu("show", "train").out
    sgpu.write("run.yaml", f"{RUN}idle: {{below: 5%, for: 1s, then: stop}}\n")
    ended = sgpu("apply", "-y", "--rerun", "train")
    assert ended.code == 5
    summary = "each of 2 GPUs was used at most 2 % in the last 1 s: the limit is 5 % (`idle`)"
    assert summary in ended.err


def _devices(path: Path) -> Any:
    try:
        return json.loads(path.read_text())["devices"]
    except (OSError, ValueError):
        return None

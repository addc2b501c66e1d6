"""What becomes of a job whose nodes have ended, where Slurm says what it says here."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.slurm.job.job_end import conclude
from sgpu_decl.backends.slurm.job.node_step import StopSignal

KILLED, TERM, SOON, LATER = 137, 143, 60, 3600
INFRA = {"max": 2, "on": ["infra"]}


@pytest.mark.parametrize(
    ("code", "how", "launch", "note", "state", "stop", "more"),
    [
        (0, {}, {}, {}, "ended", None, {}),
        (0, {}, {"again": True, "links": 3}, {}, "again", None, {}),  # nobody knows how it ended
        (TERM, {"cancel": True}, {"again": True}, {}, "ended", "cancelled", {}),
        (TERM, {"asked": True, "end": LATER}, {"again": True}, {}, "ended", "signal", {}),
        (TERM, {"asked": True, "end": SOON}, {}, {}, "ended", "time", {"links": 1}),
        # `retry` does not cover the end of its time.
        (TERM, {"asked": True, "end": SOON}, {"again": True}, {}, "ended", "time", {"links": 1}),
        (TERM, {"asked": True, "end": SOON}, {"again": True, "links": 3}, {}, "again", None,
         {"links": 1, "why": "its job came to its time limit, in 1 of 3 links (`chain`)"}),
        (TERM, {"asked": True, "end": SOON, "refuses": True}, {"again": True, "links": 3}, {},
         "ended", "time", {"links": 1}),
        (TERM, {"asked": True, "end": SOON}, {"again": True, "links": 3}, {"links": 2}, "ended",
         "time", {"links": 3}),
        (TERM, {"over": True}, {"again": True, "links": 3}, {}, "ended", "time",
         {"why": "its `timeout` is over, in 1 of 3 links (`chain`)"}),
        (KILLED, {}, {"again": True}, {}, "again", None, {}),
        (KILLED, {}, {"again": True}, {"restart": 2}, "ended", "killed", {}),
        (KILLED, {}, {"again": True, "links": 3}, {"restart": 3, "links": 2}, "again", None, {}),
        (1, {"refused": "node 1: full"}, {}, {}, "ended", "refused",
         {"refused": "node 1: full", "class": "staging_failed"}),
    ],
)  # fmt: skip
def test_a_job_ends_or_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, how: dict[str, Any],
    launch: dict[str, Any], note: dict[str, Any], state: str, stop: str | None,
    more: dict[str, Any],
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    end = int(time.time()) + how.get("end", 0)
    for name, does in (
        ("squeue", f"echo 'RUNNING|{end}'" if "end" in how else "exit 1"),
        ("scontrol", "[ $1 = ping ]" if "refuses" in how else "true"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "values.json").write_text("{}")
    if "cancel" in how:
        (logs / "cancel").touch()
    told: Any = {
        "folder": str(tmp_path), "back": f"{tmp_path}/back", "again": False, "links": 1,
        "retry": INFRA, "lead": 30, **launch,
    }  # fmt: skip
    before = signal.getsignal(signal.SIGTERM)
    asked = StopSignal()
    signal.signal(signal.SIGTERM, before)
    asked.asked, asked.over = time.time() if "asked" in how else 0.0, "over" in how

    given = {"job": "7", "name": "hello-1", "restart": 0, "links": 0, "spent": 1.0, **note}
    conclude(told, given, asked, code, how.get("refused"))

    left = json.loads((logs / "job.json").read_text())
    assert (left["state"], left.get("stop")) == (state, stop)
    assert left.items() >= more.items()
    needs_values = state == "again" or (stop == "signal" and told["again"])
    assert (logs / "values.json").exists() == needs_values

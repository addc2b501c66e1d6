"""Each field that says how a run is launched does on two nodes what it does on one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from sgpu_decl.planner.policy import POLICY, FieldClass
from sgpu_decl.rendering.spec import IdleSpec, PreflightSpec, RetrySpec, Warm
from tests.progress_reports import REPORT

BLOCK = """
import os, signal
def main():
    open(os.environ["SGPU_OUTPUT_DIR"] + "/up" + os.environ["RANK"], "w").close()
    while True: signal.pause()
"""


def hang(make_nodes: Any, _: pytest.MonkeyPatch) -> None:
    nodes = make_nodes(BLOCK, progress_timeout=0.4, world_size=2).all()
    assert nodes.wait() == [124, 124]
    for number in (0, 1):
        seen = nodes.read(number)
        assert (seen["state"], seen["class"]) == ("failed", "hung")
    assert "ranks 0-1 have the same stacks:" in nodes.read()["first_cause"]["traceback"]
    for rank in range(2):
        assert "main.py" in nodes.attempt.text(f"ranks/{rank}/0/fault.log")


def stop_late(make_nodes: Any, _: pytest.MonkeyPatch) -> None:
    """A timeout, and ranks of another node that have to be killed after the grace."""
    source = BLOCK.replace("def main():\n", "def main():\n    signal.signal(15, signal.SIG_IGN)\n")
    nodes = make_nodes(source, timeout=1.5, grace=0.3, world_size=2).all()
    nodes.up(0, 1)
    assert nodes.wait() == [124, 124]
    ended = nodes.read()
    assert ended["class"] == "timeout"
    assert [rank["signal"] for rank in ended["ranks"]] == ["SIGKILL", "SIGKILL"]


def end_idle(make_nodes: Any, _: pytest.MonkeyPatch) -> None:
    """Nodes that are all idle; while one of them works, none is ended."""
    works = "    while not os.path.exists(out + '/go'): pass\n"
    source = f"{REPORT}\ndef main():\n    report(0)\n    if os.environ['RANK'] == '1':\n    {works}"
    source += "    await_file('never')\n"
    idle = IdleSpec(below=4.0, seconds=1.0, stop=True)
    nodes = make_nodes(source, idle=idle, world_size=2).all()
    nodes.attempt.until(lambda: nodes.events("idle"))
    assert nodes.read()["state"] == "running"
    (nodes.attempt.folder / "output" / "go").touch()
    assert nodes.wait() == [124, 124]
    for number in (0, 1):
        assert nodes.read(number)["class"] == "timeout"
        assert nodes.read(number)["first_cause"]["summary"].endswith("(`idle`)")


def check_devices(make_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node measures its own devices; if one node refuses, no rank goes on."""
    slow = """
import builtins, os, sys, time
if sys.argv[:1] == ["-c"]:
    sys.modules["torch"] = None
    if os.environ["NODE_RANK"] == "1" and os.environ["LOCAL_RANK"] == "1":
        fast = builtins.zip
        def zip(*rows):
            time.sleep(0.05)
            return fast(*rows)
        builtins.zip = zip
"""
    nodes = make_nodes(BLOCK, preflight=PreflightSpec(seconds=0.2, least=0.2))
    hook = nodes.attempt.folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", str(hook))
    nodes.all()
    assert nodes.wait() == [1, 1]
    for number in (0, 1):
        cause = nodes.read(number)["first_cause"]
        assert cause["class"] == "launch_failed"
        assert cause["summary"].startswith("processor 1 of node 1 multiplies at ")
    assert len(nodes.events("preflight", 1)) == 1


GIVES = """
import os, sys, time
def main():
    output = os.environ["SGPU_OUTPUT_DIR"]
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        open(output + "/up" + os.environ["RANK"], "w").close()
        while not os.path.exists(output + "/up0") or not os.path.exists(output + "/up1"):
            time.sleep(0.01)
        raise OSError("once")
    for number in range(4000):
        print("line %05d" % number, "x" * 60)
    print("the key is", os.environ["KEY"])
    while not os.path.exists(output + "/go"): time.sleep(0.01)
    return [os.environ["MASTER_PORT"], "decimal" in sys.modules]
"""


def go_on(make_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart, warm ranks, logs that are masked and bounded, the port that was asked for."""
    limit = 64 << 10
    nodes = make_nodes(
        GIVES, world_size=2, log_limit=limit, redact_logs=True, secrets={"KEY": "env:KEY"},
        retry=RetrySpec(max=1, on=("error",), backoff=0.1), progress_timeout=60.0,
        warm=Warm(imports=(("decimal", ()),), required=True),
    )  # fmt: skip
    monkeypatch.setenv("KEY", "a value that nobody guesses")
    nodes.all()
    logs = [nodes.attempt.folder / f"ranks/{rank}/1/stdout.log" for rank in (0, 1)]
    nodes.attempt.until(
        lambda: (
            all(log.exists() and 0 < log.stat().st_blocks * 512 <= limit for log in logs)
            and all(b"the key is" in log.read_bytes() for log in logs)
        )
    )
    (nodes.attempt.folder / "output" / "go").touch()
    assert nodes.wait() == [0, 0]
    for log in logs:
        assert b"nobody guesses" not in log.read_bytes()
    told = [json.loads(nodes.attempt.text(f"ranks/{rank}/output.json")) for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0][1] is True
    assert nodes.read()["restart"] == 1


Case = Callable[[Any, pytest.MonkeyPatch], None]
ON_NODES: dict[Case, tuple[str, ...]] = {
    hang: ("progress_timeout",),
    end_idle: ("idle",),
    check_devices: ("preflight",),
    stop_late: ("timeout", "grace"),
    go_on: ("retry", "logs", "launch"),
}
"""What a launch on two nodes shows, and the fields that it is about."""

ELSEWHERE = {
    "startup_timeout": "test_node_group: a node that never comes",
    "hang_after": "monitor/test_hangs: a rank of another node is named",
    "hang": "monitor/test_hangs: a rank of another node is named",
    "resume": "test_node_group: all nodes go on from what any of them left",
    "mlflow": "databricks/nodes/test_node: ranks find what they find everywhere",
    "after": "ray/test_upstream_wait, databricks/test_order: the platform's node waits",
    "ray": "tests/agent/ray: clusters of two nodes",
    "on_finish": "databricks/nodes/test_node_notices: node 0 tells",
    **dict.fromkeys(
        ("max_parallel", "until", "on_active", "backend", "pool", "priority", "permissions",
         "budget", "image", "report"),
        "no node reads it",
    ),
}  # fmt: skip


def test_each_field_of_a_launch_is_tried_on_two_nodes() -> None:
    fields = {path for path, rule in POLICY.items() if rule.field_class is FieldClass.LAUNCH}
    tried = {*(name for names in ON_NODES.values() for name in names), *ELSEWHERE}
    assert {path.partition(".")[0] for path in fields} == tried


@pytest.mark.parametrize(
    "case",
    [
        case if case is hang else pytest.param(case, marks=pytest.mark.expensive)
        for case in ON_NODES
    ],
    ids=lambda case: case.__name__,
)
def test_a_field_of_a_launch_counts_on_all_nodes(
    make_nodes: Any, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    case(make_nodes, monkeypatch)

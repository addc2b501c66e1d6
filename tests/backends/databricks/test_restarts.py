"""What is told of a run that the platform started again on new nodes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sgpu_decl.api import Session
from sgpu_decl.cli.main import main
from sgpu_decl.testing.workspace import Effect, Fault, WorkspaceServer
from tests.backends.databricks.test_runs import ended

WAITS = "import time\ndef main(n):\n    print('up', flush=True)\n    time.sleep(2)\n"


@pytest.mark.expensive
def test_a_run_that_lost_a_node_shows_its_restart(
    session: Callable[[], Session],
    project: Path,
    server: WorkspaceServer,
    token: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (project / "run.yaml").write_text((project / "run.yaml").read_text() + "retry: {max: 1}\n")
    (project / "train.py").write_text(WAITS)
    server.faults.add(
        Fault(pattern="POST */runs/submit", effect=Effect.HOOK, hook="lose_node",
              arguments={"node": 0, "after_lines": 1}),
        tenant=server.tenants.of_token(token).key,
    )  # fmt: skip
    ended(session())
    monkeypatch.chdir(project)

    def said(*words: str) -> str:
        capsys.readouterr()
        assert main(list(words)) == 0
        return capsys.readouterr().out

    (run,) = json.loads(said("status", "-o", "json"))["data"]["runs"]
    assert (run["state"], run["restart"]) == ("succeeded", 1)
    assert said("status").splitlines()[1].endswith("  1 restart")
    shown = said("show", "hello")
    assert "hello#1 succeeded" in shown
    assert ", 1 restart\n" in shown
    assert shown.splitlines()[-1].endswith(", 1 restart; reason: first run")

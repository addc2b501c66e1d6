"""What becomes of runs when the server ends, in peace or killed, and another takes its place."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
from tests.support import until
from tests.testing.workspace.conftest import client_of
from tests.testing.workspace.executing.conftest import User, processes_with

_SERVER = """
import signal, sys
from pathlib import Path
from sgpu_decl.testing.workspace import ExecutionSettings, WorkspaceServer
settings = ExecutionSettings(capacity={"GPU_1xA10": 2})
with WorkspaceServer(Path(sys.argv[1]), execution=settings) as server:
    print(server.url, server.new_token(), flush=True)
    signal.sigwait({signal.SIGTERM})
"""
_LONG = """
trap '' TERM
(trap '' TERM; exec setsid sleep 10000) &
echo up; while :; do sleep 0.05; done
"""


@pytest.fixture(
    params=[pytest.param(signal.SIGTERM, marks=pytest.mark.expensive), signal.SIGKILL],
    ids=["ended", "killed"],
)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str, list[int]]:
    """A server's folder, a token, and the ids of a run that was running and one that waited."""
    blocked = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    with server:
        assert server.stdout is not None
        url, token = server.stdout.readline().split()
        user = User(client_of(url, token))
        running = user.submit(_LONG, count=2, max_retries=3)
        until(lambda: user.lines(running, node=0) == ["up"])
        waiting = user.submit("echo never\n", count=2)
        assert len(processes_with(str(tmp_path))) > 2
        server.send_signal(request.param)
        server.wait()
    return tmp_path, token, [running, waiting]


@pytest.mark.expensive
def test_nothing_goes_on_and_nothing_is_forgotten(left: tuple[Path, str, list[int]]) -> None:
    folder, token, ids = left
    until(lambda: processes_with(str(folder)) == [])
    with WorkspaceServer(folder, execution=ExecutionSettings()) as server:
        user = User(client_of(server.url, token))
        for run_id in ids:
            run = user.run(run_id)
            assert run.state.life_cycle_state.value == "INTERNAL_ERROR"
            assert run.state.result_state.value == "FAILED"
            assert "restarted" in run.state.state_message
            assert run.status.termination_details.type.value == "INTERNAL_ERROR"
            assert len(run.tasks) == 1
        assert user.lines(ids[0], node=0) == ["up"]
        assert not list(user.client.jobs.list_runs(active_only=True))

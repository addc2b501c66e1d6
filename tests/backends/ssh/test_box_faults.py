"""What kills a run on a box, or does not: over a real sshd whose machine can lose its power, its
network and the room of `/tmp`."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase
from tests.content.conftest import pack_wheel
from tests.ssh_hosts import GATE, SshHost, SshHosts
from tests.support import until

pytestmark = pytest.mark.expensive


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    hosts = SshHosts(tmp_path_factory.mktemp("hosts") / "hosts", count=1, tmp="8m")
    yield hosts
    hosts.close()


@pytest.fixture
def box(hosts: SshHosts) -> SshHost:
    return hosts.hosts[0]


@pytest.fixture
def bench(hosts: SshHosts, box: SshHost, tmp_path: Path) -> Iterator[BackendBench]:
    block = {"kind": "ssh", "host": "gpu1", "storage": "~/sgpu"}
    one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
    environ = {"PATH": f"{hosts.path}{os.pathsep}{os.environ['PATH']}"}
    case = BackendCase(fields=one, pair=one, many=one, secret=("", ""), missing="", environ=environ)
    bench = BackendBench(case, tmp_path)
    yield bench
    (box.gate / "go-0").touch()
    bench.close()
    assert box.processes("SGPU_COOKIE=") == []
    for file in box.gate.iterdir():
        file.unlink()


def hold(bench: BackendBench, box: SshHost) -> None:
    bench.declare("hold", args={"gate": GATE})
    bench.launched()
    until((box.gate / "up-0-0").exists)


def supervisor(box: SshHost) -> tuple[int, int]:
    """The pids of the guardian and of the supervisor of the attempt, as this machine has them."""
    guardian, own = sorted(
        pid for pid in box.processes("/runs/hello/1") if "__main__" in _command(pid)
    )[:2]
    return guardian, own


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_a_box_that_is_restarted_has_lost_its_run_which_is_launched_again(
    hosts: SshHosts, bench: BackendBench, box: SshHost
) -> None:
    hold(bench, box)

    box.kill()
    hosts.hang_up()
    box.start()

    run = bench.status()
    assert (run["state"], run["first_cause"]["class"]) == ("lost", "node_lost")
    assert "the machine was restarted" in run["first_cause"]["summary"]
    bench.declare("value", args={"gate": GATE})
    again = bench.ran()
    assert (again["attempt"], again["state"]) == (2, "succeeded")
    assert (box.gate / "launches").read_text() == "0\n"


def test_a_run_whose_guardian_is_killed_goes_on(bench: BackendBench, box: SshHost) -> None:
    hold(bench, box)

    os.kill(supervisor(box)[0], signal.SIGKILL)

    assert bench.status()["state"] == "running"
    (box.gate / "go-0").touch()
    assert bench.ended()["state"] == "succeeded"


def test_a_network_that_is_cut_and_an_sshd_that_dies_leave_the_run_alone(
    hosts: SshHosts, bench: BackendBench, box: SshHost
) -> None:
    hold(bench, box)
    with bench.backend() as backend:
        log = backend.attempts.logs(bench.record("hello"), ranks=None, follow=True)
        assert [line.text for line in log.read()[0]] == ["up 0"]

        box.cut()
        for pid in box.processes("sshd: ann"):
            os.kill(pid, signal.SIGKILL)
        hosts.hang_up()
        assert log.read()[1] is False
        away = bench.status()
        (box.gate / "go-0").touch()
        until(lambda: box.processes("SGPU_COOKIE=") == [])
        box.cut(off=False)
        until(lambda: log.read()[1])

    assert (away["state"], away["unavailable"] is not None) == ("running", True)
    assert bench.status()["state"] == "succeeded"
    assert bench.results() == [(0, {"rank": 0, "n": 0})]


def test_a_tmp_without_room_is_named(bench: BackendBench, box: SshHost) -> None:
    bench.declare("value", args={"gate": GATE})
    with box.full_tmp():
        refused = bench("apply", "-y", "--detach", "-o", "json")

    assert refused.error["code"] == "no_room", refused
    assert "`/tmp" in refused.error["message"]
    assert bench.ran()["state"] == "succeeded"


def test_a_home_that_runs_no_programs_holds_runs_and_no_compiled_modules(
    bench: BackendBench, box: SshHost, tmp_path: Path
) -> None:
    bench.declare("value", args={"gate": GATE})
    with box.noexec_home():
        assert bench.ran()["state"] == "succeeded"
        env = {"dependencies": [str(pack_wheel(tmp_path, "mine", "1.0", {"mine.py": ""}))]}
        bench.declare("value", args={"gate": GATE}, env=env)
        (check,) = bench.done("plan", "-o", "json").data["checks"]

    assert (check["id"], check["severity"]) == ("storage_unusable", "warning")
    assert "on `gpu1` is mounted with `noexec`" in check["summary"]

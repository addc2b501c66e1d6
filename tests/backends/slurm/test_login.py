"""Slurm behind a login node that ssh reaches, whatever is killed or lost on the way."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.backends.backend_context import BackendContext
from sgpu_decl.backends.box.boxes import Boxes
from sgpu_decl.backends.box.named_hosts import NamedHosts
from sgpu_decl.backends.box.ssh_process import SshConnectionLost
from sgpu_decl.backends.remote.launching.launch_hosts import LaunchHosts
from sgpu_decl.backends.slurm.login_nodes import LoginNodes, SlurmLaunches
from sgpu_decl.backends.slurm.options import SlurmOptions
from sgpu_decl.backends.slurm.slurm_backend import logins_of
from sgpu_decl.backends.slurm.slurm_commands import SlurmCommands
from sgpu_decl.errors import BackendError
from sgpu_decl.testing.contracts.backend_bench import BackendBench, until
from sgpu_decl.testing.slurm_cluster import SlurmCluster
from tests.lossy_sbatch import LossySbatch
from tests.sampling import sampled
from tests.ssh_server import SshServer

LAUNCHES = "sgpu_decl.backends.remote.launching.remote_launches,RemoteLaunches"
SLURM = "sgpu_decl.backends.slurm"
STEPS = [
    "sgpu_decl.storing.sqlite.writer,SqliteWriter,begin,after,1",
    f"{LAUNCHES},mark,before,1",
    "sgpu_decl.backends.box.ssh_process,SshProcess,call,before,6",
    f"{SLURM}.slurm_launcher,SlurmLauncher,_earlier,after,1",
    f"{SLURM}.slurm_launcher,SlurmLauncher,start,after,1",
    f"{LAUNCHES},mark,after,2",
]
SUBMISSION = 'command","words":["sbatch","--parsable'
LOST = ("command", "file_put", "file_stat", "file_folder", "file_get")


@pytest.mark.parametrize("step", sampled(STEPS, quick=1))
def test_killed_at_a_step_and_applied_again_there_is_one_run(
    laptop: BackendBench, step: str
) -> None:
    laptop.declare("value", args={"gate": str(laptop.gate)})
    laptop.killed(step, "apply", "-y", "--detach")

    run = laptop.ran()

    assert (run["attempt"], run["state"], laptop.launches) == (1, "succeeded", 1)


@pytest.mark.parametrize("request_name", [SUBMISSION, *sampled(LOST, quick=0)])
def test_an_answer_that_is_lost_with_its_connection_is_asked_for_again(
    login: SshServer, laptop: BackendBench, request_name: str
) -> None:
    laptop.declare("value", args={"gate": str(laptop.gate)})
    laptop.done("plan")  # so that the agent is there
    login.lose(request_name)

    applied = laptop("apply", "-y", "--detach")

    assert not (login.folder / "lose").exists()
    assert applied.code == 0, applied
    run = laptop.ended()
    assert (run["attempt"], run["state"], laptop.launches) == (1, "succeeded", 1)


@pytest.mark.expensive
def test_a_submission_that_comes_late_over_a_lost_connection_ends_at_once(
    slurm: SlurmCluster, login: SshServer, laptop: BackendBench, sbatch: LossySbatch
) -> None:
    laptop.declare("value", args={"gate": str(laptop.gate)})
    sbatch.next("late")  # the agent on the login node is killed, and what it called goes on

    assert laptop("apply", "-y", "--detach", "-o", "json").error["code"] == "outcome_unknown"
    run = laptop.ran()
    (sbatch.folder / "go").touch()
    until((sbatch.folder / "done").exists)
    until(lambda: slurm.leftovers() == [])

    assert (run["attempt"], run["state"], laptop.launches) == (1, "succeeded", 1)


@pytest.mark.expensive
def test_an_array_whose_submission_is_not_answered_is_found_and_no_other_cluster_waits_for_it(
    login: SshServer, laptop: BackendBench
) -> None:
    cells: dict[str, Any] = {
        "matrix": {"n": [0, 1]},
        "args": {"gate": str(laptop.gate), "n": "${matrix.n}"},
    }
    laptop.declare("hold", **cells)
    laptop.done("plan")
    login.lose(SUBMISSION)

    laptop.done("apply", "-y", "--detach")

    assert not (login.folder / "lose").exists()
    for n in (0, 1):
        laptop.up(n)
    text = (login.folder / "ssh_config").read_text()
    (login.folder / "ssh_config").write_text(text.replace("Host box", "Host box other"))
    block = {**laptop.case.fields["backend"], "login": "other"}
    laptop.declare("value", **cells, backend=block)
    behind = laptop("apply", "-y", "--detach", "--on-active", "queue")
    assert (behind.code, "goes on on the cluster of `box`" in behind.err) == (1, True)
    for n in (0, 1):
        laptop.go(n)
        assert laptop.ended(f'hello["n={n}"]')["state"] == "succeeded"


@pytest.mark.expensive
def test_a_follower_waits_for_a_login_node_that_is_away(
    login: SshServer, laptop: BackendBench
) -> None:
    laptop.declare("hold", like="pair", args={"gate": str(laptop.gate)})
    laptop.launched()
    seen: list[str] = []

    with laptop.backend() as backend:
        record = laptop.record("hello")
        log = backend.attempts.logs(record, ranks=None, follow=True)

        def ended() -> bool:
            lines, over = log.read()
            seen.extend(line.text for line in lines)
            return over

        login.stop()
        assert not ended()
        assert backend.attempts.look([record])[record.ref].unavailable is not None
        laptop.up(ranks=2)
        login.start()
        laptop.go()
        until(ended)

    assert sorted(text for text in seen if text.startswith("up")) == ["up 0", "up 0"]


@pytest.mark.expensive
def test_a_job_outlives_the_connection_and_a_login_node_that_is_away_is_unknown(
    login: SshServer, laptop: BackendBench
) -> None:
    laptop.declare("hold", like="pair", args={"gate": str(laptop.gate)})
    laptop.launched()
    laptop.up(ranks=2)
    until(lambda: "up 0" in laptop.done("logs", "hello").out)
    before = laptop.running()
    shutil.rmtree(laptop.project / ".sgpu/default/runs")  # as another laptop
    assert laptop.running()["state"] == "running"
    laptop.done("logs", "hello")

    login.stop()
    away = laptop.status()
    logs = laptop("logs", "hello")

    assert (before["state"], away["state"]) == ("running", "running")
    assert away["unavailable"].startswith("cannot reach `box` by ssh")
    assert away["unknown_since"] is not None
    assert (logs.code, "up 0" in logs.out, "cannot reach `box`" in logs.err) == (1, True, True)
    (change,) = laptop.done("plan", "-o", "json").data["changes"]
    assert change["action"] == "adopt"

    laptop.go()
    login.start()
    assert laptop.ended()["state"] == "succeeded"
    assert len(laptop.results()) == 2


def test_accounting_that_is_not_reached_does_not_say_that_a_job_is_lost() -> None:
    def run(words: Sequence[str], patience: float) -> tuple[int, str, str]:
        raise SshConnectionLost(f"{words[0]}, {patience}")

    with pytest.raises(SshConnectionLost):
        SlurmCommands(run, "on `box`").accounted("7")


def test_what_keeps_a_plan_from_the_cluster_is_said(
    login: SshServer, laptop: BackendBench, tmp_path: Path
) -> None:
    def found(**block: Any) -> dict[str, Any]:
        whole = {**laptop.case.fields["backend"], **block}
        laptop.declare("value", args={"gate": "."}, backend=whole)
        (check,) = laptop("plan", "-o", "json").data["checks"]
        return check

    (login.home / ".bashrc").write_text("echo a word of the day\n")
    assert found()["id"] == "slurm_placement"
    assert "no-such-host" in found(login="no-such-host")["summary"]
    (tmp_path / "file").touch()
    assert "cannot be used" in found(storage=str(tmp_path / "file"))["summary"]


@pytest.mark.expensive
def test_slurm_is_found_on_the_path_of_a_login_shell_and_else_is_said_to_be_missing(
    slurm: SlurmCluster, login: SshServer, laptop: BackendBench, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "bash", "env"):
        (tools / name).symlink_to(shutil.which(name) or name)
    (tools / "python3").symlink_to(os.path.realpath(sys.executable))
    bare = SshServer(tmp_path / "bare", PATH=str(tools), **slurm.environ)
    shutil.copy(bare.path / "ssh", login.path / "ssh")
    laptop.declare("value", args={"gate": "."})

    def code() -> str:
        (check,) = laptop("plan", "-o", "json").data["checks"]
        return f"{check['id']}: {check['summary']}"

    profile = bare.home / ".bash_profile"
    profile.write_text(f"export PATH={tools}\n")
    assert "there is no Slurm on `box`" in code()
    profile.write_text(f"echo welcome\nexport PATH={os.environ['PATH']}\n")
    found = code()
    assert found.startswith("slurm_placement: ")
    assert "Slurm would start it" in found
    bare.close()


def test_a_login_node_that_only_a_shared_state_names_is_not_asked(
    laptop: BackendBench, tmp_path: Path
) -> None:
    laptop.declare("value", args={"gate": "."})
    record = replace(laptop.unknown(), reference="/home/ann/sgpu/runs/abc/hello/1-t")
    unused: dict[str, Any] = dict.fromkeys(("store", "environments", "pythons"))

    def host(*named: str, shared: bool = True) -> str | None:
        context = BackendContext(
            project=tmp_path, state_dir=tmp_path, **unused, shared_state=lambda: shared,
            backend_blocks=lambda _: tuple(SlurmOptions(kind="slurm", login=one) for one in named),
        )  # fmt: skip
        hosts = NamedHosts(context, LaunchHosts(tmp_path / "hosts.json"), logins_of)
        node = SlurmLaunches(context.layout, LoginNodes(Boxes()), hosts).node(record)
        return node.box.host if node.box is not None else None

    with pytest.raises(BackendError, match="only the record of the run names") as refused:
        host("another")
    assert refused.value.code == "address_not_named"
    assert host(shared=False) == "box"
    assert host("another", "box") == "box"

"""Several agents as one run: on loopback, and between network namespaces where they are allowed."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_files import read_json
from sgpu_decl.agent.attempt.attempt_status import read_attempt
from sgpu_decl.agent.attempt.monitor_files import MONITOR
from sgpu_decl.agent.several_nodes.node_wire import _proof
from sgpu_decl.agent.system.processes import send_signal, start_time
from sgpu_decl.rendering.spec import Entry, RetrySpec, Warm
from tests.progress_reports import REPORT
from tests.support import PATIENCE, require, until

Record = Callable[..., None]
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
TELLS = f"import os\ndef main(): return [int(os.environ[name]) for name in {NAMES}]"
MAIN = Entry(kind="file_function", path="main.py", function="main")
BLOCK = """
import os, signal
def main():
    open(os.environ["SGPU_OUTPUT_DIR"] + "/up" + os.environ["RANK"], "w").close()
    while True: signal.pause()
"""


def test_every_rank_knows_its_node_and_all_agents_end_alike(make_nodes: Any) -> None:
    nodes = make_nodes(TELLS).all()
    assert nodes.wait() == [0, 0]
    assert nodes.values() == [
        [0, 0, 4, 2, 0, 0],
        [1, 1, 4, 2, 0, 0],
        [2, 0, 4, 2, 1, 1],
        [3, 1, 4, 2, 1, 1],
    ]
    whole = nodes.read()
    assert [rank["node_rank"] for rank in whole["ranks"]] == [0, 0, 1, 1]
    assert {rank["state"] for rank in whole["ranks"]} == {"succeeded"}
    assert nodes.read(1)["state"] == "succeeded"
    assert set(nodes.events("clocks")[0]["offset_ns"]) == {"1"}


def test_a_failure_on_one_node_stops_the_ranks_of_the_other(make_nodes: Any) -> None:
    source = BLOCK.replace(
        "    while", "    if os.environ['RANK'] == '3': import gone_from_here\n    while"
    )
    nodes = make_nodes(source).all()
    assert nodes.wait() == [1, 1]
    for number in (0, 1):
        cause = nodes.read(number)["first_cause"]
        assert (cause["rank"], cause["kind"]) == (3, "missing_package")
        assert "`gone_from_here`" in cause["explanation"]["meaning"]
        assert "main.py" in cause["traceback"]
    states = [rank["state"] for rank in nodes.read()["ranks"]]
    assert states == ["stopped", "stopped", "stopped", "failed"]


def test_the_only_rank_of_node_0_stops_those_of_the_others_when_it_fails(make_nodes: Any) -> None:
    fails = """
import os, signal, time
def main():
    up = os.environ["SGPU_OUTPUT_DIR"] + "/up1"
    if os.environ["RANK"] == "1":
        open(up, "w").close()
        while True: signal.pause()
    while not os.path.exists(up): time.sleep(0.01)
    raise ValueError("no such thing")
"""
    nodes = make_nodes(fails, world_size=2).all()

    assert nodes.wait() == [1, 1]
    seen = nodes.read()
    assert (seen["first_cause"]["rank"], seen["first_cause"]["class"]) == (0, "exception")
    assert seen["ranks"][1]["signal"] == "SIGTERM"


def test_a_restart_starts_the_ranks_of_all_nodes_again(make_nodes: Any) -> None:
    source = (
        "import os\n"
        "def main():\n"
        "    restart = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "    if os.environ['RANK'] == '2' and restart == '0': raise OSError('once')\n"
        "    return restart\n"
    )
    nodes = make_nodes(source, retry=RetrySpec(max=1, on=("error",), backoff=0.0)).all()
    assert nodes.wait() == [0, 0]
    assert nodes.values() == ["1", "1", "1", "1"]
    assert nodes.read(1)["restart"] == 1


SAVES = """
import os
def main():
    previous = os.environ.get("SGPU_PREVIOUS_OUTPUT_DIR")
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if os.environ["RANK"] == "@SAVER@":
            open(os.environ["SGPU_OUTPUT_DIR"] + "/checkpoint", "w").close()
            raise OSError("once")
        import signal
        while True: signal.pause()
    return previous
"""


@pytest.mark.parametrize("saver", [0, 1])
def test_all_nodes_go_on_from_what_any_of_them_left(make_nodes: Any, saver: int) -> None:
    """Each node has a folder of its own, and an older attempt left something for it."""
    nodes = make_nodes(
        SAVES.replace("@SAVER@", str(saver)), world_size=2, resume=True,
        output_dir="output", code_dir="code",
        retry=RetrySpec(max=1, on=("error",), backoff=0.0),
    )  # fmt: skip
    first = nodes.attempt.folder
    second = first.with_name("second")
    shutil.copytree(first, second)
    for folder in (first, second):
        (folder / "previous_output").mkdir()
        (folder / "previous_output/checkpoint").write_text("older")
    nodes.start(0)
    nodes.start(1, spec=second / "spec.json")
    assert nodes.wait() == [0, 0]
    for rank, folder in enumerate((first, second)):
        told = json.loads((folder / f"ranks/{rank}/output.json").read_text())
        assert told == str(folder / "output")


def test_node_0_knows_what_the_ranks_of_all_nodes_use(make_nodes: Any) -> None:
    source = REPORT + BLOCK.split("\n", 2)[2].replace("    while", "    report(1, 9)\n    while")
    nodes = make_nodes("import signal\n" + source).all()

    def seen() -> Any:
        return read_json(str(nodes.attempt.folder), MONITOR) or {}

    until(lambda: set(seen().get("others", {}).get("1", {}).get("ranks", {})) == {"2", "3"})
    assert set(seen()["ranks"]) == {"0", "1"}
    nodes.agents[0].terminate()
    nodes.wait()


@pytest.mark.parametrize("asked", [0, 1])
def test_a_signal_to_any_agent_cancels_the_run_on_all(make_nodes: Any, asked: int) -> None:
    nodes = make_nodes(BLOCK).all()
    nodes.up(0, 1, 2, 3)
    nodes.agents[asked].terminate()
    assert nodes.wait() == [130, 130]
    assert [nodes.read(number)["state"] for number in (0, 1)] == ["cancelled", "cancelled"]


def test_ctrl_c_at_an_agents_terminal_counts_once(make_nodes: Any) -> None:
    nodes = make_nodes(BLOCK, nodes=1)
    nodes.start(0, "setsid")  # the leader of a group, as a shell starts it
    nodes.up(0, 1, 2, 3)
    os.killpg(nodes.agents[0].pid, signal.SIGINT)
    assert nodes.wait() == [130]
    assert [event["name"] for event in nodes.events("signal")] == ["SIGINT"]


@pytest.mark.fault("two nodes: the agent of one killed")
def test_a_killed_agent_is_a_lost_node(make_nodes: Any, record_fault: Record) -> None:
    nodes = make_nodes(BLOCK).all()
    nodes.up(0, 1, 2, 3)
    nodes.attempt.mark()
    os.kill(nodes.supervisor(1), signal.SIGKILL)
    assert nodes.wait() == [1, 70]
    record_fault(nodes.attempt)
    ended = nodes.read()
    assert (ended["state"], ended["class"]) == ("failed", "node_lost")
    assert ended["first_cause"]["summary"].startswith("node 1 was lost: ")
    assert [rank["state"] for rank in ended["ranks"]] == ["stopped", "stopped", "lost", "lost"]
    assert nodes.read(1)["class"] == "supervisor_lost"


@pytest.mark.fault("two nodes: agent 0 killed")
def test_agents_that_lose_agent_0_stop_their_ranks(make_nodes: Any, record_fault: Record) -> None:
    nodes = make_nodes(BLOCK).all()
    nodes.up(0, 1, 2, 3)
    nodes.attempt.mark()
    os.kill(nodes.supervisor(0), signal.SIGKILL)
    assert nodes.wait() == [70, 1]
    ended = nodes.read(1)
    record_fault(nodes.attempt, verdict=ended)
    assert (ended["state"], ended["class"]) == ("failed", "node_lost")
    assert ended["first_cause"]["summary"].startswith("node 0 was lost: ")


@pytest.mark.expensive
@pytest.mark.fault("two nodes: the agent of one stopped (SIGSTOP), later continued")
def test_a_node_that_says_nothing_any_more_is_lost(make_nodes: Any, record_fault: Record) -> None:
    nodes = make_nodes(BLOCK)
    nodes.silence = 1.5
    nodes.all().up(0, 1, 2, 3)
    nodes.attempt.mark()
    stopped = nodes.supervisor(1)
    os.kill(stopped, signal.SIGSTOP)
    assert nodes.agents[0].wait(PATIENCE) == 1
    assert "it sent nothing for" in nodes.read()["first_cause"]["summary"]
    assert send_signal(stopped, start_time(stopped), signal.SIGCONT)
    assert nodes.wait() == [1, 1]
    record_fault(nodes.attempt)
    assert nodes.read(1)["class"] == "node_lost"


@pytest.mark.fault("two nodes: the clock of one an hour ahead; its rank fails first")
def test_a_clock_that_is_an_hour_ahead_orders_nothing(
    make_nodes: Any, record_fault: Record
) -> None:
    unshare = ("unshare", "--time", "--monotonic", "3600", "--fork", "--kill-child=TERM")
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no time namespaces")
    source = """
import os, time
out = os.environ["SGPU_OUTPUT_DIR"]
def main():
    rank = int(os.environ["RANK"])
    if rank == 3:
        open(out + "/moment", "w").write(str(time.monotonic_ns() - 3600 * 10**9))
        raise KeyError("first")
    if rank == 0:
        while not os.path.exists(os.path.dirname(out) + "/ranks/3/0/error.json"): time.sleep(0.01)
        raise BrokenPipeError("a peer is gone")
    while True: time.sleep(9)
"""
    nodes = make_nodes(source)
    nodes.start(0)
    nodes.start(1, *unshare)
    assert nodes.wait() == [1, 1]
    record_fault(nodes.attempt)
    assert nodes.read()["first_cause"]["rank"] == 3
    offset = nodes.events("clocks")[0]["offset_ns"]["1"]
    assert abs(offset / 1e9 - 3600) < 1


@pytest.mark.expensive
def test_a_node_that_never_comes_is_named(make_nodes: Any) -> None:
    nodes = make_nodes(TELLS, nodes=4, startup_timeout=4.0)
    nodes.start(2)
    nodes.start(0)
    assert nodes.wait() == [1, 1]
    assert nodes.read()["first_cause"]["summary"] == (
        "node 1 was lost: it did not join within 4 s, nor did node 3"
    )


def test_strangers_and_other_runs_are_turned_away(make_nodes: Any, tmp_path: Path) -> None:
    nodes = make_nodes(TELLS)
    other = tmp_path / "other"
    shutil.copytree(nodes.attempt.folder, other)
    spec = json.loads((other / "spec.json").read_text())
    (other / "spec.json").write_text(json.dumps({**spec, "grace": 9.0}))
    nodes.listening()
    for noise in (b"GET / HTTP/1.0\r\n\r\n", b'{"node": 1, "nonce": "n"}\n{"proof": "p"}\n'):
        with socket.create_connection(("127.0.0.1", nodes.port)) as stranger:
            stranger.sendall(noise)
            stranger.settimeout(PATIENCE)
            while stranger.recv(4096):
                pass
    nodes.start(1, spec=other / "spec.json")
    assert nodes.agents[1].wait(PATIENCE) == 1
    assert (
        "its spec.json is another one"
        in read_attempt(other / "nodes" / "1")["first_cause"]["summary"]
    )
    nodes.start(1)
    assert nodes.wait() == [0, 0]


NOISE = (
    b'{"node": 1, "nonce": "n"}\n{"proof": "\xc3\xa9"}\n',
    b'{"node": 1, "nonce": "\\ud800"}\n{"proof": "\\ud800"}\n',
    b'{"node": [1], "nonce": {"a": []}}\n{"proof": 7}\n',
    b'{"node": true, "nonce": null}\n{"proof": null}\n',
    b'{"node": ' + b"9" * 4000 + b"}\n{}\n",
    b"[" * 4000 + b"\n",
    b"\xff\xfe\x00\n",
    b"x" * 100_000,
)


def test_bad_messages_close_only_the_connection_they_came_by(make_nodes: Any) -> None:
    nodes = make_nodes(TELLS).listening()
    for noise in NOISE:  # after one that ends the node, the next is refused
        print(noise[:24])
        with socket.create_connection(("127.0.0.1", nodes.port)) as stranger:
            stranger.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionError):
                stranger.sendall(noise)
                while stranger.recv(4096):
                    pass
    nodes.start(1)
    assert nodes.wait() == [0, 0]


@pytest.mark.expensive
def test_strangers_that_send_a_byte_now_and_then_keep_nobody_out(make_nodes: Any) -> None:
    nodes = make_nodes(BLOCK).listening()
    over = threading.Event()
    with contextlib.ExitStack() as crowd:
        opened = [socket.create_connection(("127.0.0.1", nodes.port)) for _ in range(60)]
        for stranger in opened:
            crowd.enter_context(stranger)

        def drip() -> None:
            while not over.wait(0.1):
                for stranger in opened:
                    with contextlib.suppress(OSError):
                        stranger.send(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            nodes.start(1)
            nodes.up(0, 1, 2, 3)
            opened[-1].settimeout(PATIENCE)
            with contextlib.suppress(ConnectionError):
                assert opened[-1].recv(1) == b""
        finally:
            over.set()
            dripping.join()
    reasons = [event["reason"] for event in nodes.events("node_refused")]
    assert {reason: reasons.count(reason) <= 5 for reason in reasons} == dict.fromkeys(
        set(reasons), True
    )
    assert any("within 5 s" in reason for reason in reasons)
    nodes.agents[0].send_signal(signal.SIGTERM)
    nodes.wait()


def test_the_token_of_a_run_is_no_name_that_others_can_read(make_nodes: Any) -> None:
    nodes = make_nodes(BLOCK).all()
    nodes.up(0, 1, 2, 3)
    token = json.loads(nodes.attempt.text("spec.json"))["token"]
    for number, agent in nodes.agents.items():
        for pid in {agent.pid, nodes.supervisor(number)}:
            for name in ("cmdline", "cgroup", "comm"):
                assert token not in Path(f"/proc/{pid}/{name}").read_text()
        cgroup = json.loads((nodes.folder(number) / "identity.json").read_text())["cgroup"]
        assert token not in cgroup
    nodes.agents[0].send_signal(signal.SIGTERM)
    nodes.wait()


def test_whoever_knows_the_token_alone_is_no_node(make_nodes: Any) -> None:
    nodes = make_nodes(TELLS).listening()
    token = json.loads(nodes.attempt.text("spec.json"))["token"]
    with (
        socket.create_connection(("127.0.0.1", nodes.port), timeout=PATIENCE) as stranger,
        stranger.makefile("rwb", buffering=0) as wire,
    ):
        wire.write(b'{"node": 1, "nonce": "n"}\n')
        nonce = json.loads(wire.readline())["nonce"]
        proof = _proof(token.encode(), "node", 1, nonce, "n")
        wire.write(json.dumps({"proof": proof}).encode() + b"\n")
        assert "does not know the control key" in json.loads(wire.readline())["refused"]
    nodes.start(1)
    assert nodes.wait() == [0, 0]


def test_a_crowd_of_strangers_takes_no_descriptors(make_nodes: Any) -> None:
    nodes = make_nodes(TELLS).listening()
    with contextlib.ExitStack() as crowd:
        for _ in range(200):
            stranger = socket.create_connection(("127.0.0.1", nodes.port))
            crowd.enter_context(stranger)
        assert len(os.listdir(f"/proc/{nodes.supervisor(0)}/fd")) < 150
    nodes.start(1)
    assert nodes.wait() == [0, 0]


def test_a_rank_that_cannot_start_on_another_node_is_the_cause(make_nodes: Any) -> None:
    nodes = make_nodes("", entry=Entry(kind="command", command=("no-such-program",))).all()
    assert nodes.wait() == [1, 1]
    ended = nodes.read()
    assert ended["class"] == "launch_failed_user"
    assert "no-such-program" in ended["first_cause"]["summary"]


def test_a_launcher_runs_once_on_each_node(make_nodes: Any) -> None:
    command = ("sh", "-c", "echo $NODE_RANK $RANK $LOCAL_WORLD_SIZE $NUM_NODES")
    entry = Entry(kind="command", command=command)
    nodes = make_nodes("", entry=entry, per="node").all()
    assert nodes.wait() == [0, 0]
    assert [nodes.attempt.log(process) for process in (0, 1)] == ["0 0 2 2\n", "1 2 2 2\n"]


def test_an_agent_whose_stderr_nobody_reads_goes_on(make_nodes: Any) -> None:
    nodes = make_nodes(TELLS, nodes=1, warm=Warm(refused="which is said on stderr"))
    argv = [sys.executable, str(nodes.archive), "--spec", nodes.attempt.folder / "spec.json"]
    nodes.agents[0] = subprocess.Popen(argv, stderr=subprocess.PIPE)
    nodes.agents[0].stderr.close()
    assert nodes.wait() == [0]
    assert nodes.events("cold_start")


def test_wrong_use_of_the_agent_is_told(make_nodes: Any) -> None:
    nodes = make_nodes(TELLS, world_size=3)
    nodes.start(0)
    assert nodes.wait() == [64]
    assert "3 ranks cannot be shared evenly by 2 nodes" in nodes.attempt.text("node-0.log")


@pytest.mark.expensive
@pytest.mark.fault("two nodes: the link between them cut")
def test_nodes_that_see_each_other_over_a_network_until_it_is_cut(
    make_nodes: Any, record_fault: Record, two_hosts: tuple[str, str, str]
) -> None:
    nodes = make_nodes(BLOCK)
    nodes.silence = 1.5
    nodes.on_hosts(two_hosts)
    nodes.up(0, 1, 2, 3)
    nodes.attempt.mark()
    subprocess.run(["ip", "-n", two_hosts[1], "link", "set", "eth0", "down"], check=True)
    assert nodes.wait() == [1, 1]
    record_fault(nodes.attempt)
    for number in (0, 1):
        assert nodes.read(number)["class"] == "node_lost"
        assert "sent nothing for" in nodes.read(number)["first_cause"]["summary"]


def test_ranks_know_the_address_at_which_other_nodes_reach_them(
    make_nodes: Any, two_hosts: tuple[str, str, str]
) -> None:
    source = "from sgpu_decl import runtime\ndef main(): return runtime.get_node_ip()"
    nodes = make_nodes(source, world_size=2)
    nodes.on_hosts(two_hosts)
    assert nodes.wait() == [0, 0]
    assert nodes.values() == ["10.77.0.1", "10.77.0.2"]


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_agents_and_ranks_run_on_other_pythons(make_nodes: Any, version: str) -> None:
    python = shutil.which(f"python{version}") or "none"
    asked = [python, "-c", "import sys; print(sys.executable)"]
    try:
        found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"this machine has no Python {version}")
    source = "import sys\ndef main(): return list(sys.version_info[:2])"
    nodes = make_nodes(source, python=found, world_size=2)
    nodes.python = found
    nodes.all()
    assert nodes.wait() == [0, 0]
    assert nodes.values() == [[int(part) for part in version.split(".")]] * 2


@pytest.mark.expensive
@pytest.mark.torch
def test_torch_meets_over_the_network_of_two_nodes(
    make_nodes: Any, two_hosts: tuple[str, str, str]
) -> None:
    require("torch")
    source = """
import torch
import torch.distributed as dist
def main():
    dist.init_process_group("gloo")
    total = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total.item()
"""
    nodes = make_nodes(source, world_size=2, env={"GLOO_SOCKET_IFNAME": "eth0"})
    nodes.on_hosts(two_hosts)
    codes = [agent.wait(PATIENCE) for _, agent in sorted(nodes.agents.items())]
    assert codes == [0, 0], nodes.attempt.log(0, "stderr") + nodes.attempt.log(1, "stderr")
    assert nodes.values() == [3.0, 3.0]


def test_agent_0_listens_where_its_address_is_another_machines(make_nodes: Any) -> None:
    nodes = make_nodes(TELLS)
    nodes.start(0, address="192.0.2.1")  # of nobody, as that of a service leads to some node
    nodes.start(1)
    assert nodes.wait() == [0, 0]


def test_a_node_that_lacks_something_is_told_by_agent_0_and_not_tried_again(
    make_nodes: Any,
) -> None:
    nodes = make_nodes(TELLS, retry=RetrySpec(max=3, backoff=0.0))
    nodes.start(0)
    nodes.start(1, also=("--unprepared", "staging_failed", "node 1: no disk"))
    assert nodes.wait() == [1, 1]
    ended = nodes.read()
    assert (ended["class"], ended["restart"]) == ("staging_failed", 0)
    assert ended["first_cause"]["summary"] == "node 1: no disk"


def test_ranks_go_on_counting_where_they_were_started_before(make_nodes: Any) -> None:
    source = """
import os
def main():
    count = os.environ["TORCHELASTIC_RESTART_COUNT"]
    if count == "2":
        os._exit(5)
    return count
"""
    nodes = make_nodes(source, retry=RetrySpec(max=3, on=("error",), backoff=0.0))
    for number in range(2):
        nodes.start(number, also=("--restart", "2"))
    assert nodes.wait() == [0, 0]
    assert nodes.read()["restart"] == 3
    assert nodes.attempt.text("ranks/0/output.json") == '"3"'

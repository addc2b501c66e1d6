"""One run on several hosts: a gang that starts and ends as one, over real sshds, each with a
network, a user and processes of its own."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase
from tests.cli.conftest import nvml_library
from tests.ssh_hosts import GATE, SshHosts
from tests.support import until

__all__ = ["nvml_library"]

pytestmark = pytest.mark.expensive

BLOCK = {"kind": "ssh", "hosts": ["gpu1", "gpu2"], "storage": "~/sgpu"}
LAUNCHER = "sgpu_decl.backends.ssh.ssh_launcher,SshLauncher"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    hosts = SshHosts(tmp_path_factory.mktemp("hosts") / "hosts")
    yield hosts
    hosts.close()


@pytest.fixture
def bench(hosts: SshHosts, tmp_path: Path) -> Iterator[BackendBench]:
    bench = bench_on(hosts, tmp_path)
    yield bench
    for n in range(3):
        release(hosts, n)
    bench.close()
    for host in hosts.hosts:
        assert host.processes("SGPU_COOKIE=") == []
        for file in host.gate.iterdir():
            file.unlink()


def bench_on(hosts: SshHosts, folder: Path, **fields: Any) -> BackendBench:
    one = {"type": "CPU", "gpus": 4, "backend": BLOCK, "mlflow": {"enabled": False}, **fields}
    environ = {"PATH": f"{hosts.path}{os.pathsep}{os.environ['PATH']}"}
    case = BackendCase(fields=one, pair=one, many=one, secret=("", ""), missing="", environ=environ)
    return BackendBench(case, folder)


def release(hosts: SshHosts, n: int = 0) -> None:
    for host in hosts.hosts:
        (host.gate / f"go-{n}").touch()


def holding(hosts: SshHosts, bench: BackendBench, n: int = 0) -> None:
    """Apply a run, and see its four ranks up, two on each host."""
    bench.declare("hold", args={"gate": GATE, "n": n})
    bench.launched()
    seen = [hosts.hosts[rank // 2].gate / f"up-{n}-{rank}" for rank in range(4)]
    until(lambda: all(file.exists() for file in seen))


def launches(hosts: SshHosts) -> list[int]:
    """The ranks of `value` that there ever were."""
    files = [host.gate / "launches" for host in hosts.hosts]
    return sorted(int(rank) for file in files if file.exists() for rank in file.read_text().split())


def test_a_gang_starts_is_watched_and_leaves_its_files_as_one(
    hosts: SshHosts, bench: BackendBench
) -> None:
    (bench.project / "train.py").write_text(
        "import os, pathlib, socket\n"
        "def main():\n"
        "    rank, folder = os.environ['RANK'], pathlib.Path(os.environ['SGPU_OUTPUT_DIR'])\n"
        "    print('hello', rank, flush=True)\n"
        "    (folder / rank).write_text(rank)\n"
        "    (folder / 'same').write_text(os.environ['NODE_RANK'])\n"
        "    interfaces = {name for _, name in socket.if_nameindex()}\n"
        "    assert os.environ['GLOO_SOCKET_IFNAME'] in interfaces - {'lo'}\n"
        "    return [os.environ[n] for n in ('LOCAL_RANK', 'NODE_RANK', 'MASTER_ADDR')]\n"
    )
    bench.declare("main")

    assert bench.ran()["state"] == "succeeded"

    first = hosts.hosts[0].address
    places = [["0", "0"], ["1", "0"], ["0", "1"], ["1", "1"]]
    assert bench.results() == [(rank, [*place, first]) for rank, place in enumerate(places)]
    lines = bench.done("logs", "hello", "--rank", "all").out.splitlines()
    assert sorted(line[-1] for line in lines) == ["0", "1", "2", "3"]
    folder = Path(bench.done("fetch", "hello").out.split("\n")[0])
    found = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert found == {"0", "1", "2", "3", "same", "node_1/same"}
    changes = bench.done("plan", "-o", "json").data["changes"]
    assert [change["action"] for change in changes] == ["no_op"]
    bench.done("gc", "-y", "--all", "--keep-last", "0")
    assert [list(host.home.glob("sgpu/states/*/runs/*/*")) for host in hosts.hosts] == [[], []]


@pytest.mark.expensive
def test_a_rank_that_fails_on_one_host_ends_those_on_all(
    hosts: SshHosts, bench: BackendBench
) -> None:
    bench.declare("fail", args={"at": 3})

    run = bench.ran()

    assert (run["state"], run["first_cause"]["rank"]) == ("failed", 3)
    assert "No module named 'no_such_thing'" in run["first_cause"]["summary"]


@pytest.mark.expensive
def test_ranks_of_all_hosts_show_their_stacks_and_are_cancelled(
    hosts: SshHosts, bench: BackendBench
) -> None:
    holding(hosts, bench)

    stacks = bench.done("stacks", "hello", "-o", "json").data["stacks"]
    assert [(one["rank"], "in hold" in one["stack"]) for one in stacks] == [
        (rank, True) for rank in range(4)
    ]
    bench.done("cancel", "hello")
    assert bench.status()["state"] == "cancelled"


@pytest.mark.parametrize("number", [0, 1])
def test_a_host_that_loses_power_ends_the_run_on_the_other(
    hosts: SshHosts, bench: BackendBench, number: int
) -> None:
    holding(hosts, bench)
    lost, other = hosts.hosts[number], hosts.hosts[1 - number]

    lost.kill()
    hosts.hang_up()

    run = bench.ended()
    assert run["first_cause"]["class"] == "node_lost", run
    assert f"node {number} was lost" in run["first_cause"]["summary"]
    until(lambda: other.processes("SGPU_COOKIE=") == [])
    lost.start()
    bench.declare("value", args={"gate": GATE})
    assert bench.ran()["attempt"] == 2
    assert launches(hosts) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "step", ["launch,before,1", "_start_on,after,1", "_start_on,after,2", "_stage,after,1"]
)
def test_a_launch_that_reached_some_hosts_becomes_one_gang(
    hosts: SshHosts, bench: BackendBench, step: str
) -> None:
    bench.declare("value", args={"gate": GATE})
    bench.killed(f"{LAUNCHER},{step}", "apply", "-y", "--detach")

    run = bench.ran()

    assert (run["attempt"], run["state"], launches(hosts)) == (1, "succeeded", [0, 1, 2, 3])


def test_hosts_that_do_not_reach_each_other_are_told_before_ranks_start(
    hosts: SshHosts, bench: BackendBench
) -> None:
    nowhere = {**BLOCK, "hosts": [{"host": "gpu1", "address": "127.0.0.1"}, "gpu2"]}
    bench.declare("value", args={"gate": GATE}, backend=nowhere)

    (apart,) = bench("plan", "-o", "json").data["checks"]
    refused = bench("apply", "-y", "--detach")

    assert (apart["id"], apart["severity"]) == ("hosts_apart", "error")
    assert "`gpu2` does not reach `gpu1` at `127.0.0.1`, port" in apart["summary"]
    assert "{host: gpu1, address:" in apart["hint"]
    assert refused.code == 1
    assert launches(hosts) == []


@pytest.fixture
def gpu_hosts(nvml_library: Path, tmp_path: Path) -> Iterator[SshHosts]:
    """Two hosts with a GPU each, as far as NVML says."""
    hosts = SshHosts(
        tmp_path / "hosts", LD_LIBRARY_PATH="/mnt/home/lib",
        SGPU_TEST_GPUS="NVIDIA H100 80GB HBM3:85520809984",
    )  # fmt: skip
    for host in hosts.hosts:
        library = shutil.copytree(nvml_library, host.home / "lib")
        for path in (library, *library.iterdir()):
            path.chmod(0o755)
    yield hosts
    hosts.close()


def test_runs_that_want_the_same_hosts_in_another_order_take_turns(
    gpu_hosts: SshHosts, tmp_path: Path
) -> None:
    bench = bench_on(gpu_hosts, tmp_path / "bench", type="H100", gpus=2)
    turned = {**BLOCK, "hosts": ["gpu2", "gpu1"]}
    runs = {
        f"run{n}": {"function": "hold", "args": {"gate": GATE, "n": n}, **fields}
        for n, fields in enumerate(({}, {"backend": turned}, {"backend": turned}))
    }
    bench.declare_all(runs)
    bench.done("apply", "-y", "--detach")

    for n in range(3):
        release(gpu_hosts, n)

    states = [bench.ended(name)["state"] for name in runs]
    assert states == ["succeeded"] * 3, json.dumps([bench.status(name) for name in runs])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpus": 3}, "`gpus: 3` cannot be shared evenly by 2 hosts"),
        ({"ray": True}, "starts no Ray cluster"),
        ({"resume": "auto"}, "do not see the output of earlier attempts"),
        ({"backend": {"kind": "ssh", "hosts": ["gpu1", "gpu1"]}}, "has a machine twice"),
        ({"backend": {"kind": "ssh", "host": "a", "hosts": ["b"]}}, "both `host` and `hosts`"),
        ({"backend": {"kind": "ssh"}}, "has no `host`"),
        ({"backend": {"kind": "ssh", "hosts": ["-oProxyCommand=id"]}}, "is no name of a host"),
        ({"backend": {"kind": "ssh", "hosts": ["a", {"host": "b", "port": 1}]}}, "port"),
    ],
)
def test_what_several_hosts_do_not_take_is_refused_with_a_way_out(
    bench: BackendBench, fields: dict[str, Any], words: str
) -> None:
    bench.declare("value", args={"gate": GATE}, **fields)

    refused = bench("plan")

    assert (refused.code, words in refused.err + refused.out) == (1, True), refused

"""A run on a real cluster, whose nodes are processes of this machine: what belongs to it there."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgpu_decl.agent.system.processes import command_line, related, start_time
from sgpu_decl.backends.ray.head.head_reader import ROOT
from sgpu_decl.backends.remote.staging.remote_layout import RemoteLayout
from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase
from sgpu_decl.testing.ray_cluster import RayCluster

Processes = dict[int, int]
"""Start times by pid."""

_GONE = 15.0  # seconds until nothing may be left: 10 that are promised, and 5 for a busy machine
_KEYS = """\
import sys
from ray._raylet import GcsClient
for key in GcsClient(address=sys.argv[1]).internal_kv_keys(b"gcs://", None, 60):
    print(key.decode())
"""


class ClusterRun:
    """The run `hello` of two ranks, each on a node of its own, with `bench` as its project.
    `shared` is its storage, or else the folder of the head node. `address` is that of a proxy."""

    def __init__(
        self,
        cluster: RayCluster,
        folder: Path,
        environ: Mapping[str, str] = {},
        *,
        storage: bool = True,
        address: str | None = None,
    ) -> None:
        self.cluster = cluster
        self._block = {"kind": "ray", "address": address or cluster.url, "ranks_per_node": 1}
        if storage:
            self.shared = folder / "shared"
            self.shared.mkdir()
            self._block["storage"] = str(self.shared)
        else:
            session = cluster.get("/api/version")["session_name"]
            self.shared = cluster.folder / "0" / session / "logs" / "sgpu"
        pair = self.fields()
        case = BackendCase(fields=pair, pair=pair, many=pair, environ=environ, secret=("", ""),
                           missing="")  # fmt: skip
        self.bench = BackendBench(case, folder)

    def fields(self, **block: Any) -> dict[str, Any]:
        """The run file's part about the cluster, with options of the `backend` block."""
        backend = {**self._block, **block}
        return {"type": "CPU", "gpus": 2, "backend": backend, "mlflow": {"enabled": False}}

    def hold(self, **fields: Any) -> None:
        """Have the ranks run until `bench.go()`, and the driver know that."""
        self.bench.declare("hold", args={"gate": str(self.bench.gate)}, **fields)
        self.bench.launched()
        self.bench.up(ranks=2)
        assert self.bench.running()["state"] == "running"

    # Processes, those of the head first

    @property
    def actors(self) -> list[int]:
        return [
            pid
            for node in self.cluster.nodes
            for pid in related(node.pid)
            if words(pid)[0].startswith("ray::NodeActor")
        ]

    @property
    def node_programs(self) -> list[int]:
        return [pid for actor in self.actors for pid in related(actor) if _is_program(pid)]

    @property
    def guardians(self) -> list[int]:
        return [_children(pid)[0] for pid in self.node_programs]

    @property
    def supervisors(self) -> list[int]:
        """Those of the node agents."""
        return [_children(pid)[0] for pid in self.guardians]

    @property
    def ranks(self) -> list[int]:
        return [_children(pid)[0] for pid in self.supervisors]

    @property
    def driver(self) -> int:
        (job,) = self.jobs
        return int(job["driver_info"]["pid"])

    @property
    def job_supervisor(self) -> int:
        """The process of Ray above the driver."""
        return _parent(self.driver)

    @property
    def processes(self) -> Processes:
        """All that belong to the run, on all nodes."""
        pids = [self.driver, *(pid for actor in self.actors for pid in (actor, *related(actor)))]
        return {pid: started for pid in pids if (started := start_time(pid)) is not None}

    # The cluster

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """The jobs that were submitted for the run."""
        lineage = self.bench.record("hello").lineage
        jobs = self.cluster.get("/api/jobs/")
        return [job for job in jobs if (job["metadata"] or {}).get("sgpu.lineage") == lineage]

    def keys(self) -> list[str]:
        """The names of what the run has in the key-value store, without packages: Ray deletes these
        minutes later, and a cluster that tests share has those of other tests; see `unowned`."""
        token = self.bench.record("hello").token
        return [key for key in self.stored() if token in key]

    def unpacked(self) -> list[Path]:
        """The files of its jobs in the working folders that Ray made of their packages."""
        names = {_package(job).removeprefix("gcs://").removesuffix(".zip") for job in self.jobs}
        folders = self.cluster.folder.glob("*/*/runtime_resources/working_dir_files/sgpu_*")
        return [file for path in folders if path.name in names for file in path.glob("*")]

    def stored(self) -> list[str]:
        """The names of all packages in the key-value store of the cluster."""
        answer = subprocess.run(
            [self.cluster.python, "-c", _KEYS, self.cluster.address],
            capture_output=True, check=True, text=True,
            env={**os.environ, **authentication(self.cluster)},
        )  # fmt: skip
        return answer.stdout.splitlines()

    def unowned(self) -> set[str]:
        """The names of the packages that no job has."""
        packages = {key for key in self.stored() if key.startswith("gcs://")}
        return packages - {_package(job) for job in self.cluster.get("/api/jobs/")}

    @property
    def waiting(self) -> list[Path]:
        """What waits here of launch folders until it travels in a package."""
        return list(self.bench.project.glob(".sgpu/*/ray-packages/*"))

    # What must hold after a kill

    def assert_frees_everything(self) -> None:
        """The cluster has one job, no value and no file of it; gc deletes the launch folder."""
        assert len(self.jobs) == 1
        assert self.keys() == []
        assert self.unpacked() == []
        self.assert_is_freed()

    def launch_folder(self, name: str) -> Path:
        """Where the first launch of a run lies."""
        above = RemoteLayout("").launch(self.bench.record(name))
        return self.shared / above.removeprefix(ROOT).removeprefix(str(self.shared)).lstrip("/")

    def assert_is_freed(self) -> None:
        folder = self.launch_folder("hello")
        assert folder.exists()
        self.bench.done("gc", "-y", "--all", "--keep-last", "0")
        assert not folder.exists()


def authentication(cluster: RayCluster) -> dict[str, str]:
    """The variables that let a process use the cluster."""
    if cluster.token is None:
        return {"RAY_AUTH_MODE": "disabled"}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": cluster.token}


def assert_gone(processes: Processes) -> None:
    """None of these runs 10 s from now; on a busy machine, a few seconds later."""
    deadline = time.monotonic() + _GONE
    while left := [pid for pid, started in processes.items() if start_time(pid) == started]:
        assert time.monotonic() < deadline, [words(pid) for pid in left]
        time.sleep(0.1)


def cause(run: Mapping[str, Any]) -> tuple[str, str | None, int | None]:
    """The state of a run, and the class and the rank of its first cause."""
    first = run["first_cause"] or {}
    return run["state"], first.get("class"), first.get("rank")


def words(pid: int) -> list[str]:
    """The command line of a process."""
    return command_line(pid).decode().rstrip("\0").split("\0")


def _package(job: Mapping[str, Any]) -> str:
    """The key of the package of a job."""
    return str((job["runtime_env"] or {}).get("working_dir"))


def _is_program(pid: int) -> bool:
    return "node" in words(pid) and "--run" in words(pid)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

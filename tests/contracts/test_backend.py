"""The contract of backends (`sgpu_decl.testing.contracts.backend_contract`) holds for ours."""

import json
import os
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sgpu_decl.errors import BackendError
from sgpu_decl.places.folder import FolderPlace
from sgpu_decl.testing.contracts.backend_bench import BackendBench, BackendCase, until
from sgpu_decl.testing.contracts.backend_contract import BackendContract
from sgpu_decl.testing.ray_cluster import RayCluster
from sgpu_decl.testing.slurm_cluster import SlurmCluster
from sgpu_decl.testing.workspace import Effect, ExecutionSettings, Fault, WorkspaceServer
from tests.backends.ray.lossy_proxy import lossy_proxy
from tests.lossy_sbatch import LossySbatch
from tests.ray_versions import NEWEST_CLUSTER, OLDEST_CLUSTER
from tests.ssh_server import SshServer

ROOT = Path(__file__).parents[2]
VALUE = "a-value-that-nobody-may-see"


class TestLocal(BackendContract):
    @pytest.fixture
    def case(self) -> BackendCase:
        one = {"type": "CPU", "gpus": 1, "mlflow": {"enabled": False}}
        return BackendCase(
            fields=one,
            pair={**one, "gpus": 2},
            many={**one, "gpus": 12},
            environ={"THE_WORD": VALUE},
            secret=("env:THE_WORD", VALUE),
            missing="env:NO_SUCH_WORD",
            orders=True,
        )


class TestSsh(BackendContract):
    """A machine that ssh reaches: this one, over an sshd of the test's own."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> Iterator[BackendCase]:
        server = SshServer(tmp_path / "ssh")
        block = {"kind": "ssh", "host": "box", "storage": "~/sgpu"}
        one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
        yield BackendCase(
            fields=one,
            pair={**one, "gpus": 2},
            many={**one, "gpus": 12},
            environ={"THE_WORD": VALUE, "PATH": f"{server.path}:{os.environ['PATH']}"},
            staging=(server.home,),
            secret=("env:THE_WORD", VALUE),
            missing="env:NO_SUCH_WORD",
            elsewhere=True,
            orders=True,
            lose_answer=lambda: server.lose("start", times=2),
        )
        server.close()


class RemoteContract(BackendContract):
    """What holds beside that for backends whose launches lie in launch folders."""

    def test_results_whose_launch_folder_is_gone_are_not_taken_for_none(
        self, bench: BackendBench
    ) -> None:
        bench.declare("value", args={"gate": str(bench.gate)}, matrix={"n": [1, 2]})
        bench.launched()
        assert bench("wait", "hello").code == 0
        bench.done("gc", "-y")  # records the ends
        folders = [back.parent for place in bench.case.staging for back in place.rglob("back")]
        shutil.rmtree(next(one for one in folders if one.parent.name.startswith("hello@")))

        for _ in ("as the machine that saw it end", "as one that has the state alone"):
            read, run = sorted(
                bench.done("results", "hello", "-o", "json").data["runs"],
                key=lambda one: one["unread"] or "",
            )
            assert (read["unread"], read["returned"]["rank"]) == (None, 0)
            assert (run["state"], run["returned"]) == ("succeeded", {})
            refused = bench("results", f"{run['name']}#1", "-o", "json").error
            assert refused["code"] in ("attempt_freed", "launched_elsewhere")
            assert run["unread"]
            compared = bench("diff", 'hello["n=1"]', 'hello["n=2"]', "-o", "json").data
            assert (compared["results"], compared["not_compared"]) == ([], [run["unread"]])
            shutil.rmtree(bench.project / ".sgpu/default/runs")


class TestSlurm(RemoteContract):
    """A Slurm of two nodes on this machine, without accounts."""

    @pytest.fixture
    def case(self, slurm: SlurmCluster, tmp_path: Path) -> BackendCase:
        storage = tmp_path / "storage"
        storage.mkdir()
        block = {"kind": "slurm", "storage": str(storage)}
        one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
        two = {**one, "gpus": 2, "backend": {**block, "gpus_per_node": 1}}
        sbatch = LossySbatch(tmp_path / "bin")
        return BackendCase(
            fields=one,
            pair=two,
            many={**one, "gpus": 12, "backend": {**block, "gpus_per_node": 6}},
            environ={
                "THE_WORD": VALUE, "PATH": f"{sbatch.folder}:{os.environ['PATH']}", **slurm.environ,
            },
            staging=(storage,),
            secret=("env:THE_WORD", VALUE),
            missing="env:NO_SUCH_WORD",
            tells_restarts=False,
            elsewhere=True,
            orders=True,
            lose_answer=sbatch.lose,
        )  # fmt: skip


class TestSlurmLogin(RemoteContract):
    """The same, given from elsewhere: an sshd of the test's own is on its login node."""

    @pytest.fixture
    def case(self, slurm: SlurmCluster, tmp_path: Path) -> Iterator[BackendCase]:
        sbatch = LossySbatch(tmp_path / "bin")
        path = f"{sbatch.folder}:{os.environ['PATH']}"
        server = SshServer(tmp_path / "ssh", PATH=path, **slurm.environ)
        block = {"kind": "slurm", "login": "box", "storage": "~/sgpu"}
        one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
        yield BackendCase(
            fields=one,
            pair={**one, "gpus": 2, "backend": {**block, "gpus_per_node": 1}},
            many={**one, "gpus": 12, "backend": {**block, "gpus_per_node": 6}},
            environ={"THE_WORD": VALUE, "PATH": f"{server.path}:{os.environ['PATH']}"},
            staging=(server.home,),
            secret=("env:THE_WORD", VALUE),
            missing="env:NO_SUCH_WORD",
            tells_restarts=False,
            elsewhere=True,
            orders=True,
            lose_answer=sbatch.lose,
        )
        server.close()


class TestFolder(RemoteContract):
    """A backend of another package, found by its entry point alone."""

    @pytest.fixture
    def case(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackendCase:
        site = tmp_path / "site"
        installed = site / "folder_backend-1.0.dist-info"
        installed.mkdir(parents=True)
        (installed / "METADATA").write_text("Name: folder-backend\nVersion: 1.0\n")
        (installed / "entry_points.txt").write_text(
            "[sgpu.backends]\nfolder = tests.contracts.folder_backend.kind:KIND\n"
        )
        monkeypatch.syspath_prepend(site)
        shared = tmp_path / "shared"
        block = {"kind": "folder", "root": str(shared)}
        one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
        two = {**one, "backend": {**block, "nodes": 2}}
        return BackendCase(
            fields=one,
            pair={**two, "gpus": 2},
            many={**two, "gpus": 12},
            environ={"THE_WORD": VALUE, "PYTHONPATH": f"{site}:{ROOT}"},
            staging=(shared,),
            secret=("env:THE_WORD", VALUE),
            missing="env:NO_SUCH_WORD",
            tells_restarts=False,
            elsewhere=True,
            queues=False,
        )

    def test_gc_frees_what_lies_in_a_storage_that_says_no_sizes(
        self, bench: BackendBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.declare("leave", args={"names": ["a"]})
        assert bench.ran()["state"] == "succeeded"
        listed = FolderPlace.list
        monkeypatch.setattr(
            FolderPlace,
            "list",
            lambda files, folder: tuple(replace(one, size=0) for one in listed(files, folder)),
        )
        shutil.rmtree(bench.project / ".sgpu/default/runs")

        freed = bench.done("gc", "-y", "--all", "--keep-last", "0", "-o", "json").data

        assert freed["attempts"] == ["hello#1"]
        assert list((tmp_path / "shared/runs").glob("*/hello/*")) == []

    def test_gc_goes_on_after_a_launch_that_this_user_may_not_delete(
        self, bench: BackendBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in (1, 2):
            bench.declare("leave", args={"names": [f"{number}"]})
            assert bench.ran()["state"] == "succeeded"
        delete = FolderPlace.delete

        def refuse(files: FolderPlace, path: str) -> None:
            if "/hello/1-" in path:
                raise BackendError("permission denied")
            delete(files, path)

        monkeypatch.setattr(FolderPlace, "delete", refuse)

        freed = bench.done("gc", "-y", "--all", "--keep-last", "0", "-o", "json").data

        assert freed["attempts"] == ["hello#2"]
        assert freed["kept"] == [{"attempt": "hello#1", "reason": "unreachable"}]
        assert [one["summary"] for one in freed["problems"]] == ["permission denied"]

    def test_gc_frees_launches_in_a_storage_that_is_full_and_tries_the_rest_again(
        self, bench: BackendBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.declare("leave", args={"names": ["a"]})
        assert bench.ran()["state"] == "succeeded"
        put = FolderPlace.put

        def full(*_: object) -> None:
            raise BackendError("no space left on device", hint="make room", code="no_room")

        with monkeypatch.context() as patch:
            patch.setattr(FolderPlace, "put", full)
            patch.setattr(FolderPlace, "create", full)
            freed = bench.done("gc", "-y", "--all", "--keep-last", "0", "-o", "json").data

        assert FolderPlace.put is put
        assert freed["attempts"] == ["hello#1"]
        assert freed["problems"] == [{"summary": "no space left on device", "hint": "make room"}]
        assert list((tmp_path / "shared/runs").glob("*/hello/*")) == []
        assert list((tmp_path / "shared/objects/code").iterdir()) != []
        assert bench.done("gc", "-y", "-o", "json").data["problems"] == []
        assert list((tmp_path / "shared/objects/code").iterdir()) == []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceServer]:
    settings = ExecutionSettings(grace=1.0)
    with WorkspaceServer(tmp_path_factory.mktemp("workspace"), execution=settings) as running:
        yield running


class TestDatabricks(RemoteContract):
    @pytest.fixture
    def case(self, server: WorkspaceServer, tmp_path: Path) -> BackendCase:
        from databricks.sdk import WorkspaceClient

        token = server.new_token()
        client = WorkspaceClient(host=server.url, token=token)
        client.secrets.create_scope("ml")
        client.secrets.put_secret("ml", "word", string_value=VALUE)
        tenant = server.tenants.of_token(token)
        lost = Fault(pattern="POST */runs/submit", effect=Effect.LOSE_ANSWER)
        one = {"type": "A10", "gpus": 1, "backend": "databricks", "env": {"base": "gpu-6"}}
        return BackendCase(
            fields=one,
            pair={**one, "gpus": 2},
            many={**one, "type": "H100", "gpus": 16},
            environ={
                "DATABRICKS_HOST": server.url,
                "DATABRICKS_TOKEN": token,
                "DATABRICKS_CONFIG_FILE": str(tmp_path / "databrickscfg"),
            },
            staging=(tenant.folder / "Workspace",),
            secret=("databricks:ml/word", VALUE),
            missing="databricks:ml/nothing",
            tells_restarts=False,
            elsewhere=True,
            queues=False,
            orders=True,
            lose_answer=lambda: server.faults.add(lost, tenant=tenant.key),
        )


@pytest.mark.ray
class TestRay(RemoteContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Path | None:
        shared = tmp_path / "shared"
        shared.mkdir()
        return shared

    @pytest.fixture
    def case(self, cluster: RayCluster, storage: Path | None) -> Iterator[BackendCase]:
        with lossy_proxy(cluster.url) as proxy:
            block = {"kind": "ray", "address": proxy.url}
            if storage is not None:
                block["storage"] = str(storage)
            one = {"type": "CPU", "gpus": 1, "backend": block, "mlflow": {"enabled": False}}
            two = {**one, "gpus": 2, "backend": {**block, "ranks_per_node": 1}}
            yield BackendCase(
                fields=one,
                pair=two,
                many={**one, "gpus": 12, "backend": {**block, "ranks_per_node": 6}},
                environ={"THE_WORD": VALUE},
                staging=(cluster.folder if storage is None else storage,),
                secret=("env:THE_WORD", VALUE),
                missing="env:NO_SUCH_WORD",
                tells_restarts=False,
                elsewhere=True,
                queues=False,
                orders=True,
                lose_answer=lambda: setattr(proxy, "lose", "POST /api/jobs/"),
            )

    @OLDEST_CLUSTER
    def test_runs_start_in_their_order(self, bench: BackendBench) -> None:
        super().test_runs_start_in_their_order(bench)


class TestRayWithoutStorage(TestRay):
    """The head node keeps what launches need, and all goes over its dashboard."""

    @pytest.fixture
    def storage(self) -> Path | None:
        return None

    def test_runs_start_in_their_order(self, bench: BackendBench) -> None:
        super().test_runs_start_in_their_order(bench)

    @NEWEST_CLUSTER
    def test_runs_in_order_end_where_ray_stops_one_or_a_driver_is_killed(
        self, bench: BackendBench
    ) -> None:
        gate = str(bench.gate)
        waits = {"function": "value", "after": ["hello"], "args": {"gate": gate}}
        hello = {"function": "hold", "args": {"gate": gate}}
        bench.declare_all({"hello": hello, "later": waits, "stopped": waits})
        jobs = f"{bench.case.fields['backend']['address']}/api/jobs"
        bench.launched()
        until(lambda: bench.status("later").get("waiting_for") == "hello#1")
        until(lambda: bench.status("stopped").get("waiting_for") == "hello#1")

        stop = f"{jobs}/{bench.record('stopped').token}/stop"
        urllib.request.urlopen(urllib.request.Request(stop, method="POST")).close()
        with urllib.request.urlopen(f"{jobs}/{bench.record('hello').token}") as answer:
            os.kill(int(json.load(answer)["driver_info"]["pid"]), signal.SIGKILL)

        later = bench.ended("later")
        assert bench.ended("stopped")["state"] == "cancelled"
        assert (later["state"], later["first_cause"]["class"]) == ("failed", "upstream_failed")
        assert later["first_cause"]["summary"].startswith("hello#1 was lost")
        assert bench.status("hello")["state"] == "lost"

"""Calls of decorated functions whose ranks run on a Ray cluster."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl import distributed, ray_launch, runtime
from sgpu_decl.errors import SgpuError
from sgpu_decl.functions.call_errors import RankFailed
from sgpu_decl.testing.ray_cluster import RayCluster
from tests.ray_versions import NEWEST_CLUSTER

pytestmark = pytest.mark.ray

DRIVER = """\
import json

from sgpu_decl import ray_launch

@ray_launch(remote=True, ray={"cluster": "existing"})
def squares(numbers):
    import ray

    ray.init()
    task = ray.remote(square)
    return ray.get([task.remote(number) for number in numbers]), len(ray.nodes())

def square(number):
    return number * number

if __name__ == "__main__":
    print(json.dumps(squares.distributed([1, 2, 3])))
"""


@pytest.fixture
def project(cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is a project whose functions run on the cluster."""
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    storage, made = tmp_path / "storage", tmp_path / "project"
    storage.mkdir()
    made.mkdir()
    (made / "sgpu.yml").write_text(
        "functions:\n"
        "  mlflow: {enabled: false}\n"
        "  env: {snapshot: false}\n"
        f"  backend: {{kind: ray, address: '{cluster.url}', storage: {storage},\n"
        "    ranks_per_node: 1}\n"
    )
    monkeypatch.setenv("SGPU_PROJECT", str(made))
    monkeypatch.chdir(made)
    return made


@pytest.mark.expensive
@NEWEST_CLUSTER
@pytest.mark.usefixtures("project")
def test_a_call_returns_what_its_ranks_return_and_raises_what_they_raise(
    capfd: pytest.CaptureFixture[str],
) -> None:
    names = ["a", "b"]

    @distributed(gpus=1, gpu_type="CPU")
    def inner() -> None: ...

    @distributed(gpus=2, gpu_type="CPU", remote=True)
    def train(bad: int | None = None) -> tuple[str, int, str | None]:
        rank = runtime.get_global_rank()
        print(f"rank {rank} speaks")
        if rank == bad:
            raise LookupError("no such row")
        refusal = None
        try:
            inner.distributed()
        except SgpuError as error:
            refusal = error.code
        return names[rank], runtime.get_node_rank(), refusal

    assert train.distributed() == [("a", 0, "nested_call"), ("b", 1, "nested_call")]
    assert "rank 0 speaks\n" in capfd.readouterr().out
    with pytest.raises(LookupError, match="no such row") as caught:
        train.distributed(bad=1)
    cause = caught.value.__cause__
    assert isinstance(cause, RankFailed)
    assert (cause.rank, cause.attempt) == (1, "train#2")


@NEWEST_CLUSTER
@pytest.mark.expensive
@pytest.mark.usefixtures("project")
def test_a_driver_has_a_cluster_of_its_own_there() -> None:
    @ray_launch(gpus=2, gpu_type="CPU", remote=True, ray={"object_store_memory": "80MB"})
    def squares(numbers: list[int]) -> tuple[list[int], int]:
        import ray

        ray.init()

        def square(number: int) -> int:
            return number * number

        task: Any = ray.remote(square)
        return ray.get([task.remote(number) for number in numbers]), len(ray.nodes())

    assert squares.distributed([1, 2, 3]) == ([1, 4, 9], 2)


@NEWEST_CLUSTER
@pytest.mark.expensive
def test_a_driver_of_the_existing_cluster_is_a_call(project: Path) -> None:
    # A program of the project: the code of its calls is sent to the cluster.
    program = project / "program.py"
    program.write_text(DRIVER)
    done = subprocess.run([sys.executable, program], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[[1, 4, 9], 2]\n")

"""What code does that does not go with the Ray cluster of its run."""

from pathlib import Path

import pytest

from sgpu_decl.diagnostics.place import Place
from sgpu_decl.staging.ray_calls import function_ray_calls, ray_calls
from sgpu_decl.staging.sources import sources


def calls(folder: Path, source: str) -> list[tuple[str, str, str]]:
    """The code, severity and place of each finding."""
    (folder / "train.py").write_text(source)
    findings = ray_calls(sources(folder, "train.py"))
    return [(one.code, str(one.severity), str(one.place)) for one in findings]


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("import ray\nray.init(num_cpus=4)\n", "train.py:2:1"),
        ("import ray\ndef main():\n    ray.init(num_gpus=1)\n", "train.py:3:5"),
        ("import ray as r\ncontext = r.init('auto', resources={'a': 1})\n", "train.py:2:11"),
        ("from ray import init as begin\nbegin(object_store_memory=10**9)\n", "train.py:2:1"),
        ("import ray\nwith ray.init(labels={}):\n    pass\n", "train.py:2:6"),
    ],
)
def test_a_size_that_ray_would_refuse(tmp_path: Path, source: str, place: str) -> None:
    assert calls(tmp_path, source) == [("ray_init_resources", "error", place)]


@pytest.mark.parametrize("address", ["'local'", "address='ray://head:10001'"])
def test_another_cluster_than_that_of_the_run(tmp_path: Path, address: str) -> None:
    source = f"import ray\nray.init({address}, num_cpus=4)\n"
    assert calls(tmp_path, source) == [("ray_init_elsewhere", "warning", "train.py:2:1")]


@pytest.mark.parametrize("source", ["from ray import serve\n", "import ray.serve as s\n"])
def test_ray_serve(tmp_path: Path, source: str) -> None:
    assert calls(tmp_path, source) == [("ray_serve", "warning", "train.py:1:1")]


@pytest.mark.parametrize(
    "source",
    [
        "import ray\nray.init()\n",
        "import ray\nray.init('auto', ignore_reinit_error=True)\n",
        "import ray\nray.init(num_cpus=None)\n",
        "import ray\nif not ray.is_initialized():\n    ray.init(num_cpus=4)\n",
        "import ray\ntry:\n    ray.init(num_cpus=4)\nexcept ValueError:\n    ray.init()\n",
        "import os, ray\nray.init(os.environ['HEAD'])\n",
        "import ray\nray.data.read_csv('x', num_cpus=4)\n",
        "def init(num_cpus): pass\ninit(num_cpus=4)\n",
        "from ray import train\n",
        "try:\n    from ray import serve\nexcept ImportError:\n    pass\n",
    ],
)
def test_what_goes_with_a_cluster_or_may_never_happen(tmp_path: Path, source: str) -> None:
    assert calls(tmp_path, source) == []


def test_of_a_called_function_only_its_own_calls_count(tmp_path: Path) -> None:
    source = """
import ray
from ray import serve
def before():
    ray.init("local")
@launched(
    ray=True,
)
def main():
    def inner():
        ray.init(num_cpus=4)
    return inner()
"""
    (tmp_path / "calls.py").write_text(source)

    def found(line: int) -> list[tuple[str, int]]:
        findings = function_ray_calls(tmp_path / "calls.py", Place("calls.py", line, 1))
        return sorted((one.code, one.place.line) for one in findings if one.place)

    assert found(4) == [("ray_init_elsewhere", 5), ("ray_serve", 3)]
    assert found(6) == [("ray_init_resources", 11), ("ray_serve", 3)]
    assert found(7) == []
    assert function_ray_calls(tmp_path / "none.py", Place("none.py", 1, 1)) == ()

"""What code does that does not go with the Ray cluster of its run."""

from pathlib import Path

import pytest

from sgpu_decl.code.command_programs import ExecutedCode, scripts_of
from sgpu_decl.code.ray_calls import ray_calls
from sgpu_decl.code.sources import function_source, sources
from sgpu_decl.diagnostics.place import Place
from tests.support import some


def calls(
    folder: Path, source: str, entrypoint: str = "train.py:main"
) -> list[tuple[str, str, str]]:
    """The code, severity and place of each finding."""
    (folder / "train.py").write_text(source)
    findings = ray_calls(sources(folder, entrypoint))
    return [(one.code, str(one.severity), str(one.place)) for one in findings]


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("import ray\nray.init(num_cpus=4)\n", "train.py:2:1"),
        ("import ray\ndef main():\n    ray.init(num_gpus=1)\n", "train.py:3:5"),
        ("import ray as r\ncontext = r.init('auto', resources={'a': 1})\n", "train.py:2:11"),
        ("from ray import init as begin\nbegin(object_store_memory=10**9)\n", "train.py:2:1"),
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
        source = function_source(Place(str(tmp_path / "calls.py"), line, 1))
        findings = ray_calls([source] if source is not None else [])
        return sorted((one.code, one.place.line) for one in findings if one.place)

    assert found(4) == [("ray_init_elsewhere", 5), ("ray_serve", 3)]
    assert found(6) == [("ray_init_resources", 11), ("ray_serve", 3)]
    assert found(7) == []
    assert function_source(Place(str(tmp_path / "none.py"), 1, 1)) is None


def test_the_body_of_a_called_function_happens_whatever_decorates_it(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text("import ray\n@launched(ray=True)\ndef main():\n    ray.init(num_cpus=4)\n")
    source = some(function_source(Place(str(file), 2, 1)))
    assert [str(one.severity) for one in ray_calls([source])] == ["error"]


INIT = "ray.init(num_cpus=3)"


@pytest.mark.parametrize("entrypoint", ["train.py:main", "train:main"])
def test_what_only_a_script_does_is_not_executed_for_a_function(
    tmp_path: Path, entrypoint: str
) -> None:
    source = f"import ray\ndef main(): pass\nif __name__ == '__main__':\n    {INIT}\n"
    assert calls(tmp_path, source, entrypoint) == []
    assert [one[1] for one in calls(tmp_path, source, "train.py")] == ["error"]


@pytest.mark.parametrize(
    ("command", "severities"),
    [
        (["python", "train.py"], ["error"]),
        (["python", "-m", "train"], ["error"]),
        (["python", "other.py"], []),
        ("python other.py && python train.py", ["error"]),
        ("python train.py && python other.py", ["error"]),
    ],
)
def test_an_imported_file_is_no_script(
    tmp_path: Path, command: list[str] | str, severities: list[str]
) -> None:
    (tmp_path / "train.py").write_text(f"import ray\nif __name__ == '__main__':\n    {INIT}\n")
    (tmp_path / "other.py").write_text("import train\n")
    findings = ray_calls(ExecutedCode(tmp_path).of(scripts_of(command)))
    assert [str(one.severity) for one in findings] == severities


@pytest.mark.parametrize(
    "source",
    [
        f"def main():\n    {INIT}\n",
        f"def main():\n    {INIT[:-1]}, ignore_reinit_error=False)\n",
        f"async def main():\n    {INIT}\n",
    ],
)
def test_a_call_that_happens_for_certain_is_an_error(tmp_path: Path, source: str) -> None:
    assert [one[1] for one in calls(tmp_path, f"import ray\n{source}")] == ["error"]


@pytest.mark.parametrize(
    "source",
    [
        f"def debug():\n    {INIT}\n",
        f"def main():\n    start()\ndef start():\n    {INIT}\n",
        f"def main():\n    try:\n        {INIT}\n    finally:\n        ray.shutdown()\n",
        f"with {INIT}:\n    pass\n",
        f"class Setup:\n    {INIT}\n",
        f"def main():\n    if ray.is_initialized(): return\n    {INIT}\n",
        f"def main():\n    for one in []:\n        {INIT}\n",
        f"@hydra.main()\ndef main():\n    {INIT}\n",
        f"def main():\n    return ready() or {INIT}\n",
        f"def main():\n    return None if ready() else {INIT}\n",
        f"def main():\n    return map(lambda _: {INIT}, [])\n",
        f"def main():\n    return [{INIT} for _ in []]\n",
        f"def main():\n    ray.init()\n    {INIT[:-1]}, ignore_reinit_error=True)\n",
        f"import sys\ndef main():\n    sys.exit(0)\n    {INIT}\n",
    ],
)
def test_a_call_that_may_not_happen_is_a_warning(tmp_path: Path, source: str) -> None:
    assert [one[1] for one in calls(tmp_path, f"import ray\n{source}")] == ["warning"]


def test_a_script_that_may_have_left_before_is_no_error(tmp_path: Path) -> None:
    source = (
        f"import ray, sys\nif not ready(): sys.exit(0)\nif __name__ == '__main__':\n    {INIT}\n"
    )
    assert [one[1] for one in calls(tmp_path, source, "train.py")] == ["warning"]


def test_what_happens_for_certain_is_shown_before_what_may_happen(tmp_path: Path) -> None:
    source = f"import ray\ndef debug():\n    {INIT}\ndef main():\n    {INIT}\n"
    assert calls(tmp_path, source) == [("ray_init_resources", "error", "train.py:5:5")]

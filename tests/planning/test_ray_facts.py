"""The Ray cluster of a run: its size, its version, and what stands in its way."""

from collections.abc import Callable
from pathlib import Path
from venv import create

import pytest

from sgpu_decl.api import PlanOptions, Session
from sgpu_decl.config.ray import Ray
from sgpu_decl.config.run import RunConfig
from sgpu_decl.diagnostics.place import Place
from sgpu_decl.model.environment import Package, PackageList
from sgpu_decl.model.ray_size import NodeShape, RaySize
from sgpu_decl.planning.ray_facts import (
    RayPackages,
    driver_findings,
    ray_cluster,
    ray_findings,
    ray_packages,
)

WHOLE = dict.fromkeys(("aiohttp", "aiohttp-cors", "opencensus", "prometheus-client"), "1.0")
TWO_NODES = NodeShape(nodes=2, gpus=4)
MACHINE = NodeShape(nodes=1, gpus=1, cpus=8, store=12 << 30, shm=16 << 30)


def packages(version: str | None, *, complete: bool = True, **others: str) -> RayPackages:
    there = {"ray": version} if version is not None else {}
    return RayPackages(versions={**WHOLE, **there, **others}, complete=complete)


def findings(
    found: RayPackages, shape: NodeShape | None = MACHINE, **options: object
) -> list[tuple[str, str]]:
    """The code and severity of each finding."""
    ray = Ray.model_validate(options)
    place = Place("run.yaml", 5, 1)
    given = list(ray_findings(ray, lambda _: place, shape=shape, packages=found))
    assert all(one.place == place and one.hint for one in given)
    return [(one.code, str(one.severity)) for one in given]


def test_ray_that_is_not_there() -> None:
    assert findings(packages(None)) == [("ray_missing", "error")]
    assert findings(packages(None, complete=False)) == []
    assert findings(packages("2.60.0")) == []


@pytest.mark.parametrize("version", ["2.48.0", "2.9.3", "2.49.0rc1", "1.13"])
def test_ray_that_is_too_old(version: str) -> None:
    assert findings(packages(version), TWO_NODES) == [("ray_too_old", "error")]


@pytest.mark.parametrize("version", ["2.49.0", "2.49.1+local", "3.0.0.dev0", "not a version"])
def test_ray_that_is_new_enough_or_unknown(version: str) -> None:
    assert findings(packages(version)) == []


def test_several_nodes_without_authentication() -> None:
    assert findings(packages("2.51.2"), TWO_NODES) == [("ray_without_token", "warning")]
    assert findings(packages("2.52.0"), TWO_NODES) == []
    assert findings(packages("2.51.2"), MACHINE) == []


def test_ray_without_its_metrics_agent() -> None:
    plain = RayPackages(versions={"ray": "2.60.0"}, complete=True)
    assert findings(plain) == [("ray_metrics_off", "info")]
    assert findings(RayPackages(versions={"ray": "2.60.0"}, complete=False)) == []


def test_a_dashboard_without_its_packages() -> None:
    plain = RayPackages(versions={"ray": "2.60.0"}, complete=True)
    found = findings(plain, dashboard=True)
    assert found == [("ray_without_dashboard", "error"), ("ray_metrics_off", "info")]
    assert findings(packages("2.60.0"), dashboard=True) == []
    unknown = RayPackages(versions={"ray": "2.60.0"}, complete=False)
    assert findings(unknown, dashboard=True) == []


def test_an_object_store_that_shared_memory_cannot_hold() -> None:
    found = packages("2.60.0")
    assert findings(found, object_store_memory="17GiB") == [("ray_shm_small", "error")]
    slow = {"RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1"}
    assert findings(found, object_store_memory="17GiB", env=slow) == [("ray_shm_small", "warning")]
    assert findings(found, object_store_memory="16GiB") == []
    assert findings(found, TWO_NODES, object_store_memory="17GiB") == []


def test_shared_memory_that_holds_no_object_store() -> None:
    """As in a container that nobody gave more."""
    container = NodeShape(nodes=1, gpus=0, cpus=2, store=2_400_000_000, shm=64 << 20)
    found = packages("2.60.0")
    (finding,) = ray_findings(Ray(), lambda _: None, shape=container, packages=found)
    assert finding.summary == (
        "the object store of 2.4 GB does not fit into /dev/shm, which has 67.1 MB free: Ray would "
        "keep it on a disk, which is slow"
    )
    for written in ({}, {"object_store_memory": "9GB"}):
        assert findings(found, container, **written) == [("ray_shm_small", "warning")]
    assert findings(found, container, object_store_memory="11GB") == [("ray_shm_small", "error")]


def test_a_node_that_is_declared_larger_than_it_is() -> None:
    found = packages("2.60.0")
    assert findings(found, num_gpus=2) == [("ray_beyond_run", "error")]
    assert findings(found, num_cpus=9) == [("ray_beyond_run", "warning")]
    assert findings(found, num_gpus=1, num_cpus=8) == []
    assert findings(found, TWO_NODES, num_gpus=5, num_cpus=900) == [("ray_beyond_run", "error")]
    assert findings(found, None, num_gpus=5, num_cpus=900) == []


def test_the_size_is_that_of_the_nodes_where_nothing_else_is_said() -> None:
    cluster = ray_cluster(Ray(), MACHINE, packages("2.60.0"))
    assert cluster == RaySize(
        nodes=1, gpus=1, cpus=8, object_store_memory=12 << 30, version="2.60.0"
    )


def test_options_are_those_of_each_node() -> None:
    ray = Ray.model_validate({"num_cpus": 16, "num_gpus": 2, "object_store_memory": "8GB"})
    cluster = ray_cluster(ray, TWO_NODES, packages("2.60.0"))
    assert cluster == RaySize(
        nodes=2, gpus=4, cpus=32, object_store_memory=8_000_000_000, version="2.60.0"
    )
    assert ray_cluster(ray, None, packages(None)) == RaySize(object_store_memory=8_000_000_000)


def test_a_plan_shows_the_cluster_and_its_mistakes_once(
    folder: Path, open_file: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("import ray\ndef main(n):\n    ray.init('local')\n")
    (folder / "run.yaml").write_text(
        "name: a\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\nentrypoint: train.py:main\n"
        "ray: {num_cpus: 3, object_store_memory: 1GB}\nargs: {}\nmatrix: {n: [1, 2]}\n"
    )
    checks = [check for check in open_file().plan(PlanOptions()).plan.checks if "ray" in check.code]

    by_code = {check.code: check for check in checks}
    assert len(checks) == len(by_code)
    assert {"ray_cluster", "ray_init_elsewhere"} <= by_code.keys()
    assert by_code["ray_cluster"].summary.startswith(
        "Ray cluster: 1 node, 3 CPUs, object store 1.0 GB"
    )
    assert str(by_code["ray_init_elsewhere"].place).endswith("train.py:3:5")


@pytest.mark.parametrize("command", ["[python, train.py]", "python -m train"])
def test_a_command_that_starts_python_is_checked_as_an_entrypoint_is(
    folder: Path, open_file: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("import ray\nray.init(num_cpus=2)\n")
    (folder / "run.yaml").write_text(
        f"name: a\ngpus: 1\ntype: CPU\nmlflow: {{enabled: false}}\ncommand: {command}\nray: true\n"
    )
    checks = {check.code: check for check in open_file().plan(PlanOptions()).plan.checks}

    assert str(checks["ray_init_resources"].place).endswith("train.py:2:1")


@pytest.mark.parametrize(
    ("version", "code"), [(None, "ray_missing"), ("2.48.0", "ray_too_old"), ("2.60.0", None)]
)
def test_the_packages_of_another_interpreter_count(
    folder: Path,
    open_file: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    code: str | None,
) -> None:
    monkeypatch.chdir(folder)
    create(folder / "venv", symlinks=True, with_pip=False)
    (site,) = (folder / "venv").glob("lib/python3*/site-packages")
    if version is not None:
        (site / f"ray-{version}.dist-info").mkdir()
    (folder / "train.py").write_text("def main(): pass\n")
    (folder / "run.yaml").write_text(
        "name: a\ngpus: 1\ntype: CPU\nmlflow: {enabled: false}\nentrypoint: train.py:main\n"
        "ray: true\nenv: {python: venv/bin/python}\n"
    )
    checks = {check.code: check for check in open_file().plan(PlanOptions()).plan.checks}

    assert {"ray_missing", "ray_too_old"} & checks.keys() == ({code} if code else set())
    assert (f"Ray {version}" in checks["ray_cluster"].summary) == (version is not None)


@pytest.mark.parametrize(
    ("backend", "complete"), [("local", True), ("ray", True), ("databricks", False)]
)
def test_what_an_environment_declares_is_all_that_ray_finds_where_there_are_no_bases(
    backend: str, complete: bool
) -> None:
    """On Databricks it is installed on top of a base, and which one is not known here."""
    fields = {"name": "a", "gpus": 1, "type": "CPU", "command": ["true"], "ray": {}}
    config = RunConfig.model_validate({**fields, "backend": {"kind": backend}})
    declared = PackageList.of([Package("numpy", "2.0")])
    folder = Path("/nonexistent")
    assert ray_packages(config, declared, folder).complete == complete
    assert not ray_packages(config, None, folder).complete


@pytest.mark.parametrize(
    ("base", "declared", "version", "complete"),
    [
        ("gpu-4", (), None, True),
        ("gpu-4", ("ray[default]",), None, False),
        ("gpu-4", ("vllm",), None, False),
        ("gpu-4", ("ray[default]==2.60.0",), "2.60.0", False),
        ("ai-4", (), "2.49.1", True),
        ("ai-4", ("numpy",), "2.49.1", False),
        ("ai-4", ("ray>=2.49",), "2.49.1", False),
        ("ai-4", ("ray>=2.50",), None, False),
        ("ai-4", ("ray==2.5.*",), None, False),
        ("ai-4", ("ray @ https://a.example/ray-2.50-py3-none-any.whl",), None, False),
        ("ai-4", ("ray==2.60.0; sys_platform == 'win32'",), "2.49.1", False),
        ("ai-4", ("Ray==2.60.0",), "2.60.0", False),
        ("gpu-6", ("ray==2.60.0",), "2.60.0", False),
        (None, ("ray==2.60.0",), "2.60.0", False),
    ],
)
@pytest.mark.parametrize("from_file", [False, True])
def test_what_the_platform_installs_on_a_base_is_known_as_far_as_it_is_declared(
    tmp_path: Path,
    base: str | None,
    declared: tuple[str, ...],
    version: str | None,
    complete: bool,
    *,
    from_file: bool,
) -> None:
    (tmp_path / "requirements.txt").write_text("\n".join(declared))
    env: dict[str, object] = {"base": base, "dependencies": declared}
    if from_file and declared:
        env = {"base": base, "requirements": "requirements.txt"}
    fields = {"name": "a", "gpus": 1, "type": "A10", "command": ["true"], "ray": {}, "env": env}
    config = RunConfig.model_validate({**fields, "backend": {"kind": "databricks"}})
    packages = ray_packages(config, None, tmp_path)
    assert (packages.ray, packages.complete) == (version, complete)
    missing = "ray_missing" in {one for one, _ in findings(packages)}
    assert missing == (version is None and complete)


THERE = NodeShape(nodes=1, gpus=0, ray="2.60.0")
DECLARED = {"dependencies": ["ray"]}


@pytest.mark.parametrize(
    ("env", "found", "shape", "expected"),
    [
        ({}, packages(None), THERE, []),  # the program has the Ray of the nodes
        ({}, packages("2.49.1"), THERE, []),
        (DECLARED, packages("2.60.0"), THERE, ["tasks_without_environment"]),
        (DECLARED, packages("2.49.1"), THERE, ["ray_differs", "tasks_without_environment"]),
        (DECLARED, packages("2.49.1"), None, ["tasks_without_environment"]),
        (DECLARED, packages(None), THERE, ["ray_missing", "tasks_without_environment"]),
        (DECLARED, packages(None, complete=False), THERE, ["tasks_without_environment"]),
        ({"secrets": {"TOKEN": "env:TOKEN"}}, packages(None), THERE, ["secrets_of_driver"]),
    ],
)
def test_what_a_driver_of_an_existing_cluster_needs(
    env: dict[str, object], found: RayPackages, shape: NodeShape | None, expected: list[str]
) -> None:
    run = {"name": "a", "gpus": 0, "type": "CPU", "command": ["x"], "env": env}
    run |= {"ray": {"cluster": "existing"}, "backend": {"kind": "ray"}}
    config = RunConfig.model_validate(run)
    findings = driver_findings(
        config, lambda _: Place("run.yaml", 5, 1), shape=shape, packages=found
    )
    assert [finding.code for finding in findings] == expected

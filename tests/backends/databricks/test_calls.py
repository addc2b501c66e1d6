"""Functions called on a workspace: what they import travels, what they return comes back."""

import re
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from venv import create

import pytest
from databricks.sdk import WorkspaceClient

import sgpu_decl
from sgpu_decl.functions import prepared_call
from sgpu_decl.testing.workspace import WorkspaceServer
from tests.support import PATIENCE


@pytest.fixture
def caller(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path of this process, with a package in it that nodes do not see."""
    name = f"mine_{uuid.uuid4().hex[:8]}"
    folder = project / "code"
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "helping.py").write_text("def double(n):\n    return 2 * n\n")
    (package / "calling.py").write_text(
        f"def work(n):\n    from {name}.helping import double\n    return double(n)\n"
        "def wait():\n    import threading\n    threading.Event().wait()\n"
        "def installed():\n    import installed_here\n    return installed_here.WORD\n"
        "def fail(n):\n    raise KeyError('not on a node', n)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(project)
    monkeypatch.setenv("SGPU_PROJECT", str(project))
    for name in ("TRACKING_URI", "EXPERIMENT_NAME", "EXPERIMENT_ID"):
        monkeypatch.delenv(f"MLFLOW_{name}", raising=False)
    (project / "run.yaml").unlink()
    (project / "sgpu.yml").write_text(
        "project: {name: p}\nfunctions:\n  env: {base: gpu-6, snapshot: false}\n  grace: 500ms\n"
    )
    yield package
    for module in [item for item in sys.modules if item.partition(".")[0] == name]:
        del sys.modules[module]


def test_a_function_is_called_on_nodes_with_what_it_imports(
    caller: Path, server: WorkspaceServer, token: str, capfd: pytest.CaptureFixture[str]
) -> None:
    calling = __import__(f"{caller.name}.calling", fromlist=["work"])
    called = sgpu_decl.distributed(gpus=2, gpu_type="A10", remote=True)(calling.work)

    assert list(called.distributed(21)) == [42, 42]

    said = re.search(r"MLflow: run (\w+) of the experiment (\S+): (\S+)\n", capfd.readouterr().err)
    assert said is not None
    identity, experiment, link = said.groups()
    client = WorkspaceClient()
    run = client.experiments.get_run(identity).run
    found = client.experiments.get_by_name(experiment).experiment
    assert run is not None
    assert run.info is not None
    assert found is not None
    assert run.info.experiment_id == found.experiment_id
    assert experiment == f"{server.tenants.of_token(token).home}/work"
    assert link == f"{server.url}/ml/experiments/{found.experiment_id}/runs/{identity}"


@pytest.mark.expensive
def test_what_is_installed_here_goes_along_unless_the_project_says_otherwise(
    caller: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    create(tmp_path / "venv", symlinks=True)
    (site,) = tmp_path.glob("venv/lib/python*/site-packages")
    (site / "installed_here.py").write_text("WORD = 'carried along'\n")
    settings = Path("sgpu.yml")
    python = f"{{base: gpu-6, python: {tmp_path}/venv/bin/python}}"
    settings.write_text(settings.read_text().replace("{base: gpu-6, snapshot: false}", python))
    calling = __import__(f"{caller.name}.calling", fromlist=["installed"])
    called = sgpu_decl.distributed(gpus=1, gpu_type="A10", remote=True)(calling.installed)

    (check,) = [item for item in called.plan().checks if item.code == "packages_captured"]
    assert re.search(r": [0-9.]+ k?B, [0-9.]+ k?B of it to stage$", check.summary)
    assert "snapshot: false" in str(check.hint)
    assert list(called.distributed()) == ["carried along"]
    assert check.summary.partition(":")[0] in capfd.readouterr().err


def test_the_platform_checks_the_code_of_a_called_function(caller: Path) -> None:
    (caller / "serving.py").write_text(
        "def other():\n    return open('/dbfs/b')\n"
        "def work():\n    from ray import serve\n    return serve, open('/dbfs/a')\n"
    )
    serving = __import__(f"{caller.name}.serving", fromlist=["work"])
    for launch in (sgpu_decl.ray_launch, sgpu_decl.distributed):
        called = launch(gpus=1, gpu_type="A10", remote=True)(serving.work)
        checks = {check.code: check for check in called.plan().checks}
        assert str(checks["ray_serve"].severity) == "error"
        assert str(checks["ray_serve"].place).endswith("serving.py:4:5")
        assert "`/dbfs/a` is below" in checks["dbfs_path"].summary


@pytest.mark.expensive
def test_what_a_rank_raises_on_a_node_is_raised_here(caller: Path) -> None:
    calling = __import__(f"{caller.name}.calling", fromlist=["fail"])
    called = sgpu_decl.distributed(gpus=1, gpu_type="A10", remote=True)(calling.fail)

    with pytest.raises(KeyError, match="not on a node"):
        called.distributed(7)


@pytest.mark.expensive
def test_calls_beyond_the_limit_wait_here_and_say_so(
    caller: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Path("sgpu.yml").open("a") as project:
        project.write("  max_parallel: 1\n")
    monkeypatch.setattr(prepared_call, "REST", 0.1)
    calling = __import__(f"{caller.name}.calling", fromlist=["wait"])
    remote = sgpu_decl.distributed(gpus=1, gpu_type="A10", remote=True, run_async=True)
    first = remote(calling.wait).distributed()
    second: list[object] = []
    thread = threading.Thread(
        target=lambda: second.append(remote(calling.work).distributed(4).result(timeout=PATIENCE))
    )
    thread.start()
    said = ""
    while "waiting: 1 call active, of 1 at once" not in said:
        assert thread.is_alive(), said
        said += capfd.readouterr().err
    first.cancel()
    thread.join()
    assert second == [[8]]

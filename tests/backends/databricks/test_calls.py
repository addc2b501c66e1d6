"""Functions called on a workspace: what they import travels, what they return comes back."""

import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import sgpu_decl
from sgpu_decl.functions import limiting


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
        "def fail(n):\n    raise KeyError('not on a node', n)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(project)
    monkeypatch.setenv("SGPU_PROJECT", str(project))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (project / "run.yaml").unlink()
    (project / "sgpu.yml").write_text(
        "project: {name: p}\nfunctions:\n  env: {base: gpu-6}\n  grace: 500ms\n"
    )
    yield package
    for module in [it for it in sys.modules if it.partition(".")[0] == name]:
        del sys.modules[module]


def test_a_function_is_called_on_nodes_with_what_it_imports(caller: Path) -> None:
    calling = __import__(f"{caller.name}.calling", fromlist=["work"])
    called = sgpu_decl.distributed(gpus=2, gpu_type="A10", remote=True)(calling.work)

    assert list(called.distributed(21)) == [42, 42]


def test_what_a_rank_raises_on_a_node_is_raised_here(caller: Path) -> None:
    calling = __import__(f"{caller.name}.calling", fromlist=["fail"])
    called = sgpu_decl.distributed(gpus=1, gpu_type="A10", remote=True)(calling.fail)

    with pytest.raises(KeyError, match="not on a node"):
        called.distributed(7)


def test_calls_beyond_the_limit_wait_here_and_say_so(
    caller: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Path("sgpu.yml").open("a") as project:
        project.write("  max_parallel: 1\n")
    monkeypatch.setattr(limiting, "REST", 0.1)
    calling = __import__(f"{caller.name}.calling", fromlist=["wait"])
    remote = sgpu_decl.distributed(gpus=1, gpu_type="A10", remote=True, run_async=True)
    first = remote(calling.wait).distributed()
    second: list[object] = []
    thread = threading.Thread(
        target=lambda: second.append(remote(calling.work).distributed(4).result(timeout=60))
    )
    thread.start()
    said = ""
    while "waiting: 1 call active, of 1 at once" not in said:
        assert thread.is_alive(), said
        said += capfd.readouterr().err
    first.cancel()
    thread.join()
    assert second == [[8]]

"""Calls from the cells of a notebook: a real kernel, told what to execute as Jupyter does."""

import os
import queue
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import PATIENCE, require

jupyter_client = pytest.importorskip("jupyter_client")
require("ipykernel")

CELL = """
from sgpu_decl import distributed, runtime
import os, threading

@distributed(gpus=2, gpu_type="CPU")
def train(x):
    print("rank", runtime.get_global_rank(), "has", x)
    return x * runtime.get_global_rank()

@distributed(gpus=2, gpu_type="CPU")
def wait(path):
    if runtime.get_global_rank() == 0:
        print("waiting")
    threading.Event().wait()

@distributed(gpus=1, gpu_type="CPU")
def fail():
    rank = runtime.get_global_rank()
    raise ValueError(f"of rank {rank}")

@distributed(gpus=1, gpu_type="CPU")
def flood():
    print("\\n".join(map(str, range(5_000))))
"""


class Kernel:
    def __init__(self, client: Any, manager: Any) -> None:
        self.client = client
        self.manager = manager
        self.traceback = ""

    def execute(self, code: str, interrupt_at: str | None = None) -> tuple[str, str, str]:
        """Return stdout, stderr, and what the cell showed: HTML, text or the name of an error."""
        asked = self.client.execute(code)
        out, err, shown = "", "", ""
        while True:
            message = self.client.get_iopub_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                if content["name"] == "stdout":
                    out += content["text"]
                else:
                    err += content["text"]
                if interrupt_at is not None and interrupt_at in out:
                    interrupt_at = None
                    self.manager.interrupt_kernel()
            elif kind == "execute_result":
                shown = content["data"].get("text/html") or content["data"]["text/plain"]
            elif kind == "error":
                shown = content["ename"]
                self.traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return out, err, shown


@pytest.fixture
def kernel(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv("SGPU_PROJECT")  # the notebook's own folder is the project
    site = tmp_path / "more" / "site-packages"
    site.mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *sys.path]))
    manager = jupyter_client.KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(project))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        made = Kernel(client, manager)
        assert made.execute(CELL) == ("", "", "")
        yield made
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_cell_calls_and_shows_a_table(kernel: Kernel, project: Path) -> None:
    (project / "sgpu.yml").unlink()  # the notebook's own folder is enough
    out, err, shown = kernel.execute("train.distributed(3)")
    assert out == "rank 0 has 3\n"
    assert "sgpu: train#1 succeeded" in err
    assert "<table>" in shown
    assert "<code>3</code>" in shown
    assert (project / ".sgpu" / "default" / "runs" / "train" / "1" / "spec.json").exists()
    _, _, shown = kernel.execute("train.plan(4)")
    assert "<details>" in shown
    assert "args.x" in shown
    out, _, shown = kernel.execute(
        "call = train.with_overrides(run_async=True).distributed(5)\nawait call"
    )
    assert "<code>5</code>" in shown
    _, _, shown = kernel.execute("call.status")
    assert "succeeded" in shown
    assert "<table>" in shown


@pytest.mark.expensive
def test_an_interrupt_of_the_kernel_stops_the_ranks(kernel: Kernel) -> None:
    _, err, shown = kernel.execute("wait.distributed('x')", interrupt_at="waiting")
    assert shown == "KeyboardInterrupt", err
    assert "sgpu: wait#1 cancelled" in err
    out, _, _ = kernel.execute("print(train.distributed(1))")
    assert out.endswith("[0, 1]\n")


def test_the_traceback_of_a_rank_has_the_lines_of_its_cell(kernel: Kernel) -> None:
    out, _, _ = kernel.execute(
        "try: fail.distributed()\nexcept ValueError as error: print(error.__cause__)"
    )
    assert "rank 0 of `fail#1` failed: ValueError: of rank 0" in out
    assert 'raise ValueError(f"of rank {rank}")' in out


@pytest.mark.expensive
def test_an_error_in_a_cell_is_the_line_and_the_message(kernel: Kernel) -> None:
    for cell, message in (
        ("fail.distributed()", "ValueError: of rank 0"),
        ("train.distributed(y=1)", "its parameters are `train(x)`; nothing was started"),
        ("train.plan(threading.Lock())", "the argument `x` holds a `_thread.lock`"),
        (
            "from sgpu_decl.api import Location, Session\nSession.open(Location()).runs.find('no')",
            "NotFound: ",
        ),
    ):
        kernel.execute(cell)
        shown = kernel.traceback
        assert message in shown
        assert "sgpu_decl/" not in shown
        assert len(shown.splitlines()) <= 20


def test_a_notebook_is_not_flooded(kernel: Kernel) -> None:
    out, err, _ = kernel.execute("flood.distributed()")
    assert out.count("\n") == 2_000
    assert "more are in its log only" in err


@pytest.mark.expensive
def test_a_package_that_is_installed_meanwhile_is_seen(kernel: Kernel, tmp_path: Path) -> None:
    kernel.execute("train.distributed(1)")
    wheel = tmp_path / "newcomer-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("newcomer.py", "")
        packed.writestr(
            "newcomer-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: newcomer\nVersion: 1.0"
        )
        packed.writestr(
            "newcomer-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any",
        )
        packed.writestr("newcomer-1.0.dist-info/RECORD", "")
    site = tmp_path / "more" / "site-packages"
    kernel.execute(f"%pip install --quiet --no-deps --no-index --target {site} {wheel}")
    _, err, shown = kernel.execute("train.plan(1)")
    assert "newcomer 1.0" in shown
    _, err, _ = kernel.execute("train.distributed(1)")
    assert "+ newcomer 1.0" in err


@pytest.mark.expensive
def test_a_kernel_that_is_killed_leaves_nothing_running(kernel: Kernel, project: Path) -> None:
    from sgpu_decl.functions.running_call import DistributedFunctionCall

    asked = kernel.client.execute("wait.distributed('x')")
    while True:
        try:
            message = kernel.client.get_iopub_msg(timeout=PATIENCE)
        except queue.Empty:
            pytest.fail("the call never began")
        if message["parent_header"].get("msg_id") == asked and "waiting" in str(message["content"]):
            break
    kernel.manager.signal_kernel(9)
    call: DistributedFunctionCall[object] = DistributedFunctionCall.from_run_id(
        "wait#1", project=str(project)
    )
    assert call.wait(timeout=PATIENCE).state == "cancelled"

"""Runs on Databricks, against the emulator as a process of its own.

What is counted is what a workspace is asked. Where time is taken, the emulator answers each request
`ROUND_TRIP` later, as a workspace that is far away: so it is the number of requests in a row that
is measured, not how fast the emulator is on this machine.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from venv import create

from measuring import Measurement, Row, alternating, measure

__all__ = ["workspaces"]

SGPU = str(Path(sys.executable).with_name("sgpu"))
REPLAY = str(Path(__file__).with_name("replaying.py"))
REQUESTS = 12  # requests
RUNS = 100
AT_ONCE = 8
ROUND_TRIP = 0.05  # seconds
PATIENCE = 10.0  # seconds
DISTANT = "192.0.2.1"  # of TEST-NET-1, which no network has
CAPTURED = ", snapshot: true, python: venv/bin/python"
ONE = f"""\
name: hello
gpus: 1
type: A10
command: ["true"]
env: {{base: gpu-6{CAPTURED}}}
grace: 500ms
backend: databricks
"""
IN_A_FOLDER = "mlflow: {experiment: /Shared/bench/hello}\n"
MANY = f"""\
name: many
gpus: 1
type: A10
command: ["true", "${{matrix.n}}"]
matrix: {{n: {list(range(RUNS))}}}
timeout: 5m
backend: databricks
"""
HERE = """\
name: hello
gpus: 1
type: CPU
command: ["true"]
env: {base: gpu-6}
"""
ASK = """\
from databricks.sdk import WorkspaceClient
client = WorkspaceClient()
client.current_user.me()
client.api_client.do("GET", "/api/2.0/ai-compute-manager/compute-options")
client.api_client.do("GET", "/api/2.0/ai-training/provisioned-capacities")
client.api_client.do("POST", "/api/2.0/ai-training/config:validate", body={"task": {}})
"""


@dataclass(frozen=True, slots=True)
class Emulated:
    """`environment` is what leads the SDK there."""

    environment: Mapping[str, str]

    def requests(self) -> list[dict[str, Any]]:
        """The requests since the last `reset`."""
        answer = self._control("GET", "requests")
        return list(answer["requests"])

    def reset(self) -> None:
        """Forget what was asked, and answer at once."""
        self._control("POST", "reset")

    def far_away(self) -> None:
        """Answer each request later."""
        rule = {"pattern": "*", "effect": "delay", "seconds": ROUND_TRIP, "times": 0}
        self._control("POST", "fault", rule)

    def _control(self, method: str, what: str, body: object = None) -> Any:
        url = f"{self.environment['DATABRICKS_HOST']}/__testserver/{what}"
        token = self.environment["DATABRICKS_TOKEN"]
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


@contextmanager
def emulated(*options: str) -> Iterator[Emulated]:
    """A workspace, which the environment of this process then leads to."""
    server = subprocess.Popen(
        (SGPU, "dev", "workspace", "-o", "json", *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert server.stdout is not None
    before = dict(os.environ)
    try:
        environment = json.loads(server.stdout.readline())["data"]["environment"]
        os.environ.update(environment)
        yield Emulated(environment)
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.terminate()
        server.communicate()


@contextmanager
def apart(scratch: Path) -> Iterator[None]:
    """Stores and caches of its own, and no profile."""
    before = dict(os.environ)
    for name in ("DATA", "CACHE", "STATE"):
        os.environ[f"XDG_{name}_HOME"] = str(scratch / name.lower())
    os.environ["DATABRICKS_CONFIG_FILE"] = str(scratch / "no-profiles")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def workspaces(scratch: Path, repeats: int) -> Iterator[Row]:
    """What is asked of a workspace, and how long that takes."""
    folder = scratch / "workspaces"
    folder.mkdir()
    with apart(folder):
        yield from unchanged(folder / "one")
        yield from many(folder / "many")
        yield from planned(folder / "planned", repeats)
        yield from unanswered(folder / "unanswered")


def unchanged(folder: Path) -> Iterator[Row]:
    """A run once more, with the code and the environment that are in the workspace."""
    create(folder / "venv", symlinks=True)
    (site,) = folder.glob("venv/lib/python*/site-packages")
    (site / "carried.py").write_text("WORD = 'carried along'\n")
    (folder / "run.yaml").write_text(ONE + IN_A_FOLDER)
    with emulated() as workspace:
        measure((SGPU, "apply", "-y", "run.yaml"), folder)
        there = {item["json"]["path"] for item in workspace.requests() if _uploads(item)}
        workspace.reset()
        measure((SGPU, "apply", "-y", "--detach", "--rerun", "hello", "run.yaml"), folder)
        requests = workspace.requests()
        measure((SGPU, "wait", "hello"), folder)
    yield Row(
        what="apply of an unchanged run: requests",
        took=f"{len(requests)}",
        against=f"{REQUESTS}",
        ratio=len(requests) / REQUESTS,
        limit=1,
    )
    again = {item["json"]["path"] for item in requests if _uploads(item)} & there
    yield Row(
        what="apply of an unchanged run: uploads of what is there",
        took=f"{len(again)}",
        against=f"{len(there)} files that are there",
        ratio=len(again),
        limit=0,
    )


def many(folder: Path) -> Iterator[Row]:
    """Many runs, submitted several at once.

    The peer sends the very same requests, run by run and as many runs at once, and does nothing
    else: no plan, no state, no file. Both begin with an interpreter and import the SDK. Nothing of
    it runs: the workspace has no GPUs, so no rank takes time from what is measured.
    """
    folder.mkdir()
    (folder / "run.yaml").write_text(MANY)
    with emulated("--gpus", "GPU_1xA10=0") as workspace:
        measure(
            (SGPU, "plan", "run.yaml"), folder
        )  # what the workspace offers is known for a while
        workspace.reset()
        workspace.far_away()
        apply = (SGPU, "apply", "-y", "--detach", "--parallelism", str(AT_ONCE), "run.yaml")
        measurement = measure(apply, folder)
        requests = workspace.requests()
        (folder / "asked.json").write_text(json.dumps(requests))
        bare = measure((sys.executable, REPLAY, "asked.json", str(AT_ONCE)), folder)
    yield Row(
        what=f"apply of {RUNS} runs, {AT_ONCE} at once, {ROUND_TRIP * 1000:.0f} ms away",
        took=f"{measurement.seconds:.2f} s, {len(requests)} asked",
        against=f"the SDK sends the same, {bare.seconds:.2f} s",
        ratio=measurement.seconds / bare.seconds,
        limit=1.25,
    )


def planned(folder: Path, repeats: int) -> Iterator[Row]:
    """Plans for a workspace: the first one, which asks it, and those of the minutes after it.

    The import of the SDK and the rest of a plan take turns at one interpreter, so the first one is
    measured against both, one after the other; what it must not do is to add to them. Medians of a
    few rounds differ by some percent.
    """
    folder.mkdir()
    (folder / "here.yaml").write_text(HERE)
    (folder / "there.yaml").write_text(ONE.replace(CAPTURED, ""))
    afresh = 'rm -rf "$XDG_CACHE_HOME"; exec "$0" "$@"'
    with emulated("--gpus", "GPU_1xA10=0"):
        (here, again, first, empty, bare), rounds = alternating(
            [
                ((SGPU, "plan", "here.yaml"), folder),
                ((SGPU, "plan", "there.yaml"), folder),
                (("sh", "-c", afresh, SGPU, "plan", "there.yaml"), folder),
                ((sys.executable, "-c", "pass"), folder),
                ((sys.executable, "-c", ASK), folder),
            ],
            max(3, repeats // 3),
            warm=True,
        )
    both = here.seconds + bare.seconds - empty.seconds
    yield Row(
        what="first plan for a workspace",
        took=f"{first.seconds * 1000:.0f} ms",
        against=f"plan here, then the SDK asks the same, {both * 1000:.0f} ms, n={rounds}",
        ratio=first.seconds / both,
        limit=1.1,
    )
    yield Row(
        what="plan for a workspace that was asked lately",
        took=f"{again.seconds * 1000:.0f} ms",
        against=f"plan here, {here.seconds * 1000:.0f} ms, n={rounds}",
        ratio=again.seconds / here.seconds,
        limit=1.5,
    )


def unanswered(folder: Path) -> Iterator[Row]:
    """Hosts that are silent: one that takes connections, and one that nobody reaches."""
    folder.mkdir()
    (folder / "run.yaml").write_text(MANY)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        silent = f"http://127.0.0.1:{listening.getsockname()[1]}"
        for what, host in (("takes connections", silent), ("is not there", f"http://{DISTANT}")):
            measurement, output = _unasked(folder, host)
            yield Row(
                what=f"plan for a host that {what} and is silent",
                took=f"{measurement.seconds:.1f} s",
                against=f"{PATIENCE:.0f} s"
                + ("" if host in output else ", and its name is not said"),
                ratio=measurement.seconds / PATIENCE if host in output else float("inf"),
                limit=1,
            )


def _unasked(folder: Path, host: str) -> tuple[Measurement, str]:
    environ = {**os.environ, "DATABRICKS_HOST": host, "DATABRICKS_TOKEN": "dapi0123456789abcdef"}
    began = time.perf_counter()
    done = subprocess.run(
        (SGPU, "plan", "run.yaml"),
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"a plan for `{host}` failed:\n{done.stderr}")
    return Measurement(seconds=time.perf_counter() - began, memory=0), done.stdout + done.stderr


def _uploads(request: Mapping[str, Any]) -> bool:
    return str(request["path"]).endswith("/workspace/import")

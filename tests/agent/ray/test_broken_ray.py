"""Clusters that do not get as far as Ray's own processes.

These tests bring a package `ray` of their own, which is broken, of another version, or slow to
import.
"""

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
from sgpu_decl.agent.ranks.rank_start import LaunchError
from sgpu_decl.agent.ray.ray_process import RayProcess
from sgpu_decl.agent.several_nodes.node_group import FIRST, Node
from sgpu_decl.agent.system.loop import Loop
from sgpu_decl.agent.system.secrets import Redactor
from sgpu_decl.rendering.spec import RaySpec
from tests.agent.ray.conftest import MAIN, SMALL, ray_folder
from tests.mounts import fill, small_disk
from tests.support import shell_program

BROKEN = "raise TypeError('Descriptors cannot be created directly.\\nDowngrade protobuf.')"
SLOW = "import time; time.sleep(3600)"
HANGS = """
import sys, time
for number in range(30): print("line", number, file=sys.stderr, flush=True)
time.sleep(3600)
"""
IMPORTED = "__version__ = '9.0'"
SLOW_START = """
import sys, time
class cli:
    def main(*_, **__):
        print("looking for the head", file=sys.stderr, flush=True)
        time.sleep(3600)
"""


Site = Callable[..., dict[str, str]]


@pytest.fixture
def ray_that(tmp_path: Path) -> Site:
    """Write a package `ray` with that source, that of its `ray start`, and those of modules; return
    the variables that lead to it."""

    def write(
        source: str, name: str = "site", start: str = "cli = None", **modules: str
    ) -> dict[str, str]:
        scripts = tmp_path / name / "ray" / "scripts"
        scripts.mkdir(parents=True)
        scripts.with_name("__init__.py").write_text(source)
        scripts.joinpath("__init__.py").touch()
        scripts.joinpath("scripts.py").write_text(start)
        for module, text in modules.items():
            path = scripts.parent / f"{module.replace('__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return {"PYTHONPATH": str(tmp_path / name)}

    return write


@pytest.fixture
def with_ray(make_attempt: Any) -> Callable[..., Any]:
    """Launch a run on one node with the package `ray` of these variables and such options of it."""

    def launch(env: dict[str, str] | None = None, *, source: str = "", **ray: Any) -> Any:
        fields = {"entry": MAIN} if source else {}
        spec = RaySpec(**{**SMALL, **ray})
        attempt = make_attempt(source, world_size=1, per="node", ray=spec, env=env or {}, **fields)
        return attempt.launch()

    return launch


def cause_of(attempt: Any) -> dict[str, Any]:
    """The first cause of a failure, whose folder is as it should be."""
    cause: dict[str, Any] = attempt.wait()["first_cause"]
    attempt.check()
    return cause


def test_a_broken_ray_is_the_users_and_its_words_are_shown(with_ray: Any, ray_that: Site) -> None:
    cause = cause_of(with_ray(ray_that(BROKEN)))
    assert cause["class"] == "launch_failed_user"
    assert cause["summary"] == (
        "cannot import Ray on node 0: Descriptors cannot be created directly."
    )
    assert cause["traceback"] == "Downgrade protobuf."


@pytest.mark.parametrize(
    ("source", "failure", "words"),
    [
        ("signal.raise_signal(signal.SIGSEGV)", "launch_failed_user",
         "cannot import Ray on node 0: its import was killed with SIGSEGV; look for"),
        ("os._exit(3)", "launch_failed_user",
         "cannot import Ray on node 0: its import exited with 3; look for"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "node_lost",
         "the parent of Ray's processes on node 0 was killed with SIGKILL"),
    ],
    ids=["a crash", "an exit", "a kill by others"],
)  # fmt: skip
def test_an_import_that_ends_the_process_is_the_users_unless_others_killed_it(
    with_ray: Any, ray_that: Site, source: str, failure: str, words: str
) -> None:
    before = "import os, signal; os.write(2, b'loading x.so\\n');"
    cause = cause_of(with_ray(ray_that(f"{before} {source}")))
    assert cause["class"] == failure
    assert cause["summary"].startswith(words)
    first, *stack = cause["traceback"].splitlines()
    assert first == "loading x.so"
    if "SEGV" in source:
        assert stack[0] == "Fatal Python error: Segmentation fault"
        assert "/ray/__init__.py" in stack[2]


def test_a_dashboard_without_its_packages_is_the_users(with_ray: Any, ray_that: Site) -> None:
    site = ray_that(IMPORTED, dashboard__optional_deps="import not_installed")
    cause = cause_of(with_ray(site, dashboard=True))
    assert cause["class"] == "launch_failed_user"
    assert cause["summary"] == (
        "Ray has no dashboard on node 0: No module named 'not_installed'; install `ray[default]`"
    )


# Tables of Ray that list the resources of a node some time after the node.
LATE_RESOURCES = """
from types import SimpleNamespace as S
class GcsClient:
    looks = 0
    def __init__(self, address): pass
    def get_all_node_info(self, timeout): return {"a": S(state=0, node_id=b"a")}
    def get_all_resource_usage(self, timeout):
        GcsClient.looks += 1
        batch = [S(node_id=b"a", resources_total={"CPU": 1.0} if self.looks > LATE else {})]
        open(FILE, "w").write(str(self.looks))
        return S(resource_usage_data=S(batch=batch))
"""


@pytest.mark.parametrize("late", [3, 1 << 30], ids=["late", "never"])
def test_a_cluster_is_complete_once_its_resources_are_known(
    with_ray: Any, ray_that: Site, tmp_path: Path, late: int
) -> None:
    site = ray_that(
        IMPORTED,
        start="class cli:\n    def main(*_, **__): pass",
        _raylet=f"LATE, FILE = {late}, {str(tmp_path / 'looks')!r}\n{LATE_RESOURCES}",
        exceptions="class RayError(Exception): pass",
    )
    source = f"def main(): return open({str(tmp_path / 'looks')!r}).read()"
    attempt = with_ray(site, source=source, worker_join_timeout=1.0 if late > 3 else 60.0)
    if late == 3:
        assert attempt.values() == ["4"]
        attempt.check()
        return
    cause = cause_of(attempt)
    assert cause["class"] == "platform"
    assert cause["summary"] == (
        "the head of the Ray cluster did not count the resources of all nodes within the "
        "worker_join_timeout of 1 s"
    )


@pytest.mark.parametrize(
    ("folder", "why"), [("/proc/x", "No such file or"), ("/dev/null/x", "Not a")]
)
def test_a_folder_that_cannot_be_made_is_named_with_its_option(
    with_ray: Any, folder: str, why: str
) -> None:
    cause = cause_of(with_ray(temp_dir=folder))
    assert cause["class"] == "launch_failed_user"
    assert cause["summary"].startswith(
        f"cannot make a folder for Ray in the `ray.temp_dir` {folder} on node 0: {why}"
    )
    assert cause["summary"].endswith(
        "; choose a folder that this user may write on each node, or leave it out"
    )


def test_a_full_disk_under_the_chosen_folder_is_a_fault_of_the_machine(
    with_ray: Any, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, 1 << 16):
        fill(disk / "filler")
        cause = with_ray(temp_dir=str(disk)).wait()["first_cause"]
    assert cause["class"] == "launch_failed"
    assert cause["summary"] == (
        f"cannot make a folder for Ray in the `ray.temp_dir` {disk} on node 0: No space left on "
        "device"
    )


def test_a_folder_of_ray_is_removed_when_everything_is_killed_during_the_import(
    with_ray: Any, ray_that: Site
) -> None:
    attempt = with_ray(ray_that(SLOW))
    attempt.until(lambda: attempt.events("ray_started"))
    assert attempt.read()["waiting_for"] == "Ray to be imported"
    folder = ray_folder(attempt)
    assert (folder / "token").exists()
    attempt.kill_both()
    attempt.until_gone()
    attempt.until(lambda: not folder.exists())


def test_an_import_that_hangs_ends_with_the_limit_of_the_head_and_its_last_lines(
    with_ray: Any, ray_that: Site
) -> None:
    cause = cause_of(with_ray(ray_that(HANGS), head_startup_timeout=1.0))
    assert cause["class"] == "platform"
    assert cause["summary"] == (
        "Ray was not imported on node 0 within the head_startup_timeout of 1 s"
    )
    last = "".join(f"\nline {number}" for number in range(10, 30))
    assert cause["traceback"] == f"node 0 wrote last:{last}"


def test_a_head_that_is_late_is_named_with_the_last_lines_of_its_start(
    with_ray: Any, ray_that: Site
) -> None:
    attempt = with_ray(ray_that(IMPORTED, start=SLOW_START), head_startup_timeout=1.5)
    attempt.until(lambda: attempt.read().get("waiting_for") == "the head of the Ray cluster")
    cause = cause_of(attempt)
    assert cause["class"] == "platform"
    assert cause["summary"] == (
        "the head of the Ray cluster was not up within the head_startup_timeout of 1.5 s"
    )
    assert cause["traceback"] == "looking for the head"


# A start of Ray that waits for a process of its own, which ends, and does not look.
DEAD_CHILD = """
import os, subprocess, sys, time
class cli:
    def main(*_, **__):
        os.symlink(sys.executable, "NAME")
        subprocess.Popen(["./NAME", "-c", "import os, sys; SOURCE"])
        time.sleep(3600)
"""
FATAL = (
    "[2026-11-29 01:45:25,480 C 1 1] (raylet) x.cc:7:  An unexpected system state has occurred. "
)
FATAL += "You have likely discovered a bug, and we'll work with you to fix it. Check failed: 5 vs 1"


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("raylet", f"sys.exit({FATAL!r})", "exited with 1: Check failed: 5 vs 1"),
        ("gcs_server", "os.kill(os.getpid(), 9)", "was killed with SIGKILL"),
    ],
)
def test_a_process_that_ends_while_ray_starts_is_named_at_once(
    with_ray: Any, ray_that: Site, name: str, source: str, words: str
) -> None:
    start = DEAD_CHILD.replace("NAME", name).replace("SOURCE", source.replace('"', '\\"'))
    cause = cause_of(with_ray(ray_that(IMPORTED, start=start), head_startup_timeout=3600.0))
    assert cause["class"] == "node_lost"
    assert cause["summary"] == f"`{name}` of Ray on node 0 {words}"


SHOWS_ENVIRONMENT = """
import os, sys
class cli:
    def main(*_, **__):
        names = ("agent_register_timeout_ms", "raylet_start_wait_time_s",
                 "TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION")
        sys.exit(" ".join(os.environ.get("RAY_" + name, "-") for name in names))
"""


@pytest.mark.parametrize(("dashboard", "reconciles"), [(False, "0"), (True, "-")])
def test_the_limit_of_the_head_is_rays_own_and_ray_train_asks_no_state_api_that_is_not_there(
    with_ray: Any, ray_that: Site, *, dashboard: bool, reconciles: str
) -> None:
    site = ray_that(IMPORTED, start=SHOWS_ENVIRONMENT, dashboard__optional_deps="")
    cause = cause_of(with_ray(site, head_startup_timeout=200.5, dashboard=dashboard))
    assert cause["summary"] == (
        f"`ray start` failed on node 0: it exited with 201000 201 {reconciles}"
    )


def test_a_run_has_ended_before_the_folder_of_ray_is_deleted(
    with_ray: Any, ray_that: Site, tmp_path: Path
) -> None:
    scratch = tmp_path / "s"
    scratch.mkdir()
    attempt = with_ray(ray_that(BROKEN), temp_dir=str(scratch))
    attempt.wait()
    attempt.check()
    assert os.listdir(scratch) == []
    outcome = attempt.folder / "outcome.json"
    assert scratch.stat().st_mtime_ns >= outcome.stat().st_mtime_ns


@pytest.mark.parametrize(
    "stopped",
    [False, pytest.param(True, marks=pytest.mark.expensive)],
    ids=["the node answers", "the node hangs"],
)
def test_nodes_that_do_not_import_ray_are_named_with_their_last_lines(
    make_nodes: Any, ray_that: Site, *, stopped: bool
) -> None:
    ray = RaySpec(**SMALL, head_startup_timeout=2.0)
    nodes = make_nodes("def main(): pass", ray=ray, nodes=3, world_size=3, per="node")
    greets = "import sys; print('from node 0', file=sys.stderr)"
    sources = [f"{IMPORTED}; {greets}", SLOW, HANGS]
    for number, source in enumerate(sources):
        variables = ray_that(source, str(number))
        nodes.start(number, "env", f"PYTHONPATH={variables['PYTHONPATH']}")
    nodes.attempt.until(lambda: nodes.events("ray_started", 2))
    if stopped:
        os.kill(nodes.supervisor(2), signal.SIGSTOP)
        nodes.attempt.until(lambda: nodes.events("ray_ended"))
        os.kill(nodes.supervisor(2), signal.SIGCONT)
    assert nodes.wait() == [1, 1, 1]
    cause = nodes.read()["first_cause"]
    assert cause["class"] == "platform"
    assert cause["summary"] == (
        "Ray was not imported on node 1, node 2 within the head_startup_timeout of 2 s"
    )
    last = "node 0 wrote last:\nfrom node 0" if stopped else "node 2 wrote last:\nline 10\n"
    assert cause["traceback"].startswith(last)
    assert not nodes.events("ray_head_starting")


@pytest.mark.parametrize(
    ("source", "customized", "words"),
    [
        ("__version__ = '9.1'", "", "node 1 has Ray 9.1 and Python 3."),
        ("__version__ = '9.0'", "import sys; sys.version = '3.99.1 (main)'",
         "node 1 has Ray 9.0 and Python 3.99.1"),
    ],
    ids=["Ray", "Python"],
)  # fmt: skip
def test_versions_that_differ_are_named_before_anything_starts(
    make_nodes: Any,
    ray_that: Site,
    source: str,
    customized: str,
    words: str,
) -> None:
    nodes = make_nodes("def main(): pass", ray=RaySpec(**SMALL), world_size=2, per="node")
    paths = [ray_that("__version__ = '9.0'", "first"), ray_that(source, "second")]
    Path(paths[1]["PYTHONPATH"], "sitecustomize.py").write_text(customized)
    for number, variables in enumerate(paths):
        nodes.start(number, "env", f"PYTHONPATH={variables['PYTHONPATH']}")
    assert nodes.wait() == [1, 1]
    cause = nodes.read()["first_cause"]
    assert cause["class"] == "launch_failed_user"
    assert words in cause["summary"]
    assert not nodes.events("ray_head_starting")


def test_a_folder_that_a_node_cannot_make_is_a_failed_launch(tmp_path: Path) -> None:
    spec = {"ray": {"temp_dir": None}, "run_dir": str(tmp_path)}
    unused: Any = None
    process = RayProcess(spec, {}, Node(1, 2), unused, unused, unused, unused)
    with pytest.raises(LaunchError, match="cannot make a folder for Ray in /tmp") as refused:
        process.join("10.77.0.1:6379", str(tmp_path / "missing" / "folder"))
    assert refused.value.failure == "launch_failed"


# A Ray node that is about to end: its end of the channel is closed already.
ENDING = """
import os, signal
os.close(int(os.environ["SGPU_RAY_FD"]))
while True: signal.pause()
"""


def test_a_ray_node_that_was_just_killed_takes_no_order_and_ends(
    make_attempt: Any, tmp_path: Path, loop: Loop
) -> None:
    """Of a cluster that is killed as a whole, the channel may be seen to close before the driver is
    seen to end, and that before the node is."""
    ending = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(ENDING)}"
    program = shell_program(tmp_path / "python", ending)
    attempt = make_attempt("", world_size=1, per="node", ray=RaySpec(**SMALL), python=str(program))
    spec = json.loads(attempt.text("spec.json")) | {"run_dir": str(attempt.folder)}
    record = AttemptRecord(str(attempt.folder), 1, "starting")
    ended: list[str] = []
    process = RayProcess(spec, {}, FIRST, loop, record, Redactor([]), lambda _message: None)
    process.start(0, [], os.environ, "127.0.0.1")
    loop.turn()

    with pytest.raises(LaunchError, match="the Ray node cannot be reached") as refused:
        process.join("127.0.0.1:6379", str(tmp_path / "folder"))
    assert refused.value.failure == "platform"
    process.end(lambda: ended.append("it"), keep=False)
    assert not ended
    os.kill(attempt.events("ray_started")[0]["pid"], signal.SIGKILL)
    while not ended:
        loop.turn()
    process.remove_folder()

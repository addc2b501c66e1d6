"""A run with a Ray cluster on one node: from its start to the end of its last process."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.agent.ray.ray_object_store import default_store
from sgpu_decl.agent.system.processes import carriers, variables
from sgpu_decl.rendering.spec import Entry, PreflightSpec, RaySpec, RetrySpec
from sgpu_decl.testing.ray_cluster import ray_cluster
from tests.agent.ray.conftest import answer_of_head, output, ray_folder, ray_pid
from tests.ray_versions import NEWEST_RAY, OLDEST_RAY
from tests.support import PATIENCE, require

pytestmark = pytest.mark.ray

# Names that tell a process that it is a rank, or where an outer Ray cluster is.
TELLING = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK",
           "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "RAY_OUTER")  # fmt: skip
WAITS = """
def main():
    import ray
    ray.init()
    leave("up", os.environ["RAY_ADDRESS"])
    while True: signal.pause()
"""

# A driver in a cluster of the user's own.
OF_THE_USER = """
import os, sys, time, ray
address, folder = sys.argv[1:]
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
@ray.remote
def work():
    open(folder + "/at work", "w").close()
    while not os.path.exists(folder + "/enough"): time.sleep(0.01)
    return "finished"
print(ray.get(work.remote()))
"""


def _check_end(attempt: Any, folder: Path) -> None:
    """Nothing of Ray is left."""
    attempt.until_gone()
    attempt.check()
    assert not folder.exists()


def _until_up(attempt: Any) -> Path:
    attempt.until(lambda: (output(attempt) / "up").exists())
    return ray_folder(attempt)


@pytest.mark.expensive
def test_a_preflight_comes_before_the_cluster(make_driver: Any) -> None:
    attempt = make_driver(
        "def main(): return 1", preflight=PreflightSpec(seconds=0.2, least=0.2)
    ).launch()
    assert attempt.values() == [1]
    (done,), (started,) = attempt.events("preflight"), attempt.events("ray_started")
    assert done["mono_ns"] < started["mono_ns"]
    attempt.check()


@pytest.mark.expensive
def test_a_cancel_of_its_preflight_starts_no_cluster(make_driver: Any, tmp_path: Path) -> None:
    hook = "import sys, time\nif sys.argv[:1] == ['-c']:\n    time.sleep(600)\n"
    (tmp_path / "sitecustomize.py").write_text(hook)
    attempt = make_driver(
        "def main(): return 1", preflight=PreflightSpec(), env={"PYTHONPATH": str(tmp_path)}
    ).launch()
    attempt.until(lambda: attempt.read().get("waiting_for") == "preflight")
    request_cancel(attempt.folder)
    assert attempt.wait()["state"] == "cancelled"
    assert attempt.events("ray_started") == []
    attempt.until_gone()
    attempt.check()


@pytest.mark.expensive
def test_tasks_import_the_code_of_the_run_and_find_no_rank(
    make_driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"""
TELLING = {TELLING}
def found():
    return [name for name in TELLING if name in os.environ]
def main():
    import ray
    ray.init()
    @ray.remote
    def task():
        import beside
        names = ["OF_RAY", "OF_RUN", "RAY_raylet_start_wait_time_s"]
        return [found(), os.getcwd(), beside.__file__, *[os.environ[name] for name in names]]
    return [found(), os.environ["NODE_RANK"], os.environ["NUM_NODES"], "OF_RAY" in os.environ,
            ray.get(task.remote()), ray.cluster_resources()]
"""
    monkeypatch.setenv("RAY_OUTER", "1")
    ray = {"resources": {"ssd": 2.0}, "env": {"OF_RAY": "a"}, "worker_join_timeout": 250.0}
    attempt = make_driver(source, ray=ray, env={"OF_RUN": "b"})
    code = attempt.folder / "code"
    (code / "beside.py").write_text("")
    ((own, node, nodes, leaked, of_task, resources),) = attempt.launch().values()
    assert (own, node, nodes, leaked) == ([], "0", "1", False)
    assert of_task == [[], str(code), str(code / "beside.py"), "a", "b", "250"]
    assert (resources["CPU"], resources["ssd"]) == (1.0, 2.0)
    assert "GPU" not in resources
    assert attempt.read()["ray"]["nodes"] == 1
    _check_end(attempt, Path("/nonexistent"))
    assert not (output(attempt) / "ray_logs").exists()


@pytest.mark.expensive
@NEWEST_RAY
def test_ray_train_warns_of_no_state_api_that_is_not_there(make_driver: Any) -> None:
    require("fsspec", "pandas", "pyarrow")
    source = """
def work():
    time.sleep(3)  # Ray Train asks each second
def main():
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
    kept = RunConfig(storage_path=os.environ["SGPU_OUTPUT_DIR"], name="kept")
    DataParallelTrainer(work, scaling_config=ScalingConfig(num_workers=1), run_config=kept).fit()
    return "trained"
"""
    env = {"RAY_TRAIN_V2_ENABLED": "1"}
    attempt = make_driver(source, ray={"num_cpus": 2}, env=env)
    assert attempt.launch().values() == ["trained"]
    logs = [attempt.text(f"ranks/0/0/{name}.log") for name in ("stdout", "stderr")]
    assert "TrainController" in "".join(logs)
    assert "State API" not in "".join(logs)
    attempt.check()


@pytest.mark.expensive
def test_options_hold_for_a_driver_that_does_not_call_init(
    make_driver: Any, ray_python: str
) -> None:
    source = """
def main():
    import ray
    task = ray.remote(lambda: ray.get_runtime_context().get_node_id())
    (node,) = ray.nodes() if ray.get(task.remote()) else ()
    return [node["RayletSocketName"], node["MetricsExportPort"], ray.cluster_resources()]
"""
    with socket.socket() as taken, TemporaryDirectory(prefix="sgpu-", dir="/tmp") as scratch:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ray = {"temp_dir": scratch, "metrics_export_port": port, "object_store_memory": None}
        attempt = make_driver(source, ray=ray).launch()
        ((socket_path, metrics_port, resources),) = attempt.values()
        assert socket_path.startswith(f"{scratch}/")
        assert metrics_port not in (0, port)
        assert resources["object_store_memory"] == pytest.approx(default_store(), rel=0.2)
        _check_end(attempt, Path("/nonexistent"))
        assert os.listdir(scratch) == []


@pytest.mark.expensive
def test_everything_listens_on_loopback_and_asks_for_a_token(
    make_driver: Any, ray_python: str
) -> None:
    newest = ray_python == sys.executable  # the dashboard of 2.49 starts nine processes
    attempt = make_driver(WAITS, ray={"dashboard": newest}).launch()
    folder = _until_up(attempt)
    pids = set(attempt.left())
    lines = subprocess.check_output(["ss", "-ltnpH"], text=True).splitlines()
    listening = [line.split()[3] for line in lines if any(f"pid={pid}," in line for pid in pids)]
    hosts = {at.rpartition(":")[0] for at in listening}
    assert hosts <= {"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"}
    if newest:
        dashboard = attempt.read()["ray"]["dashboard"]
        assert dashboard.removeprefix("http://") in listening
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{dashboard}/api/version", timeout=PATIENCE)
        refused.value.close()
        assert refused.value.code == 401
    token = folder / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("gcs_server", "raylet"):
        assert variables(ray_pid(attempt, name))["RAY_AUTH_MODE"] == "token"
    if newest:
        address = (output(attempt) / "up").read_text()
        assert "uthenticat" in answer_of_head(ray_python, address, None)
        assert answer_of_head(ray_python, address, str(token)) == "1"
    request_cancel(attempt.folder)
    assert attempt.wait()["state"] == "cancelled"
    _check_end(attempt, folder)


@pytest.mark.expensive
@NEWEST_RAY
def test_a_cluster_that_was_killed_with_its_driver_was_not_lost(make_driver: Any) -> None:
    """The end of a driver with much memory is seen after that of the small processes of Ray."""
    source = """
def main():
    import ray
    ray.init()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    held = bytearray(b"\\1") * (1 << 30)
    leave("up")
    while True: signal.pause()
"""
    attempt = make_driver(source).launch()
    _until_up(attempt)

    request_cancel(attempt.folder)

    outcome = attempt.wait()
    assert (outcome["state"], outcome["first_cause"]) == ("cancelled", None)


@pytest.mark.expensive
def test_an_exception_of_the_driver_is_the_users_and_rays_logs_are_kept(make_driver: Any) -> None:
    source = """
def main():
    import ray
    ray.init()
    @ray.remote
    def task():
        print("from a task: " + os.environ["PASSWORD"], flush=True)
    ray.get(task.remote())
    raise KeyError("mine")
"""
    attempt = make_driver(source, secrets={"PASSWORD": "env:PASSWORD"})
    status = attempt.launch({"PASSWORD": "correct-horse"}).wait()
    assert (status["class"], status["first_cause"]["rank"]) == ("exception", 0)
    assert "KeyError" in status["first_cause"]["summary"]
    kept = output(attempt) / "ray_logs" / "0" / "node_0"
    texts = [path.read_text() for path in kept.rglob("*.*") if path.is_file()]
    assert any("from a task: ***" in text for text in texts)
    assert not any("correct-horse" in text for text in texts)
    attempt.check()


@pytest.mark.expensive
@pytest.mark.parametrize("kind", ["function", "command"])
def test_a_task_that_rays_memory_monitor_kills_is_out_of_memory(
    make_driver: Any, kind: str
) -> None:
    source = """
def main():
    import ray
    ray.init()
    @ray.remote(max_retries=0)
    def task():
        time.sleep(600)
    ray.get(task.remote())
"""
    monitor = {"RAY_memory_usage_threshold": "0.0001", "RAY_memory_monitor_refresh_ms": "100"}
    fields: dict[str, Any] = {}
    if kind == "command":
        fields["entry"] = Entry(
            kind="command", command=("bash", "-c", "python -c 'import main; main.main()'")
        )
    status = make_driver(source, ray={"env": monitor}, **fields).launch().wait()
    assert status["class"] == "oom"
    summary = status["first_cause"]["summary"]
    assert summary.startswith("ray.exceptions.OutOfMemoryError: ")
    assert "killed due to the node running low on memory" in summary
    assert "in main" in status["first_cause"]["traceback"]


@pytest.mark.expensive
@NEWEST_RAY
def test_a_driver_that_waits_for_a_task_at_work_is_no_hang(make_driver: Any) -> None:
    source = """
def main():
    import ray
    ray.init()
    @ray.remote
    def task(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end: pass
    ray.get(task.remote(5))
    ray.get(task.remote(0))
    leave("worked")
    while True: signal.pause()
"""
    attempt = make_driver(source, progress_timeout=2.5).launch()
    status = attempt.wait()
    assert (output(attempt) / "worked").exists()
    assert status["class"] == "hung"


@pytest.mark.expensive
@pytest.mark.parametrize(
    ("ray_python", "name"),
    [
        *(("newest", name) for name in ("raylet", "gcs_server", "ray_node")),
        (OLDEST_RAY, "raylet"),
    ],
    indirect=["ray_python"],
)
def test_a_killed_process_of_ray_is_a_lost_node_and_a_retry_starts_a_new_cluster(
    make_driver: Any, name: str
) -> None:
    source = """
def main():
    import ray
    ray.init()
    leave("up" + os.environ.get("SGPU_TEST", ""))
    while not os.path.exists(os.environ["SGPU_OUTPUT_DIR"] + "/second"): time.sleep(0.01)
    return ray.cluster_resources()["CPU"]
"""
    attempt = make_driver(source, retry=RetrySpec(max=1, backoff=0.0)).launch()
    folder = _until_up(attempt)
    pid = attempt.events("ray_started")[0]["pid"] if name == "ray_node" else ray_pid(attempt, name)
    os.kill(pid, signal.SIGKILL)
    attempt.until(lambda: len(attempt.events("ray_started")) == 2)
    (output(attempt) / "second").touch()
    assert attempt.values() == [1.0]
    (restart,) = attempt.read()["restarts"]
    assert restart["class"] == "node_lost"
    shown = "the parent of Ray's processes" if name == "ray_node" else f"`{name}` of Ray"
    assert f"{shown} on node 0 was killed with SIGKILL" in restart["summary"]
    _check_end(attempt, folder)


@pytest.mark.expensive
def test_a_raylet_that_ends_while_the_head_starts_says_why_at_once(make_driver: Any) -> None:
    ray = {"env": {"RAY_memory_usage_threshold": "5"}, "head_startup_timeout": 3600.0}
    attempt = make_driver("def main(): pass", ray=ray).launch()
    cause = attempt.wait()["first_cause"]
    assert cause["class"] == "node_lost"
    assert cause["summary"].startswith("`raylet` of Ray on node 0 ")
    assert ": Check failed: " in cause["summary"]
    assert cause["traceback"].count("Check failed: ") == 1
    attempt.check()


@pytest.mark.expensive
@NEWEST_RAY
def test_a_taken_port_is_named_with_its_holder_before_ray_starts(make_driver: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        attempt = make_driver("def main(): pass", ray={"port": port}).launch()
        status = attempt.wait()
    assert status["class"] == "launch_failed_user"
    summary = status["first_cause"]["summary"]
    assert f"port {port} is taken by process {os.getpid()} (" in summary
    assert "leave `ray.port` out" in summary
    assert not attempt.events("ray_head_ready")
    attempt.check()


@pytest.mark.expensive
@NEWEST_RAY
def test_an_object_store_that_ray_would_not_start_with_is_refused_before(make_driver: Any) -> None:
    attempt = make_driver("def main(): pass", ray={"object_store_memory": 1 << 50})
    attempt.launch()

    assert attempt.wait()["class"] == "launch_failed_user"

    summary = attempt.read()["first_cause"]["summary"]
    assert summary.startswith("the `ray.object_store_memory` of 1,125.9 TB does not fit into")
    assert summary.endswith("on node 0")


@pytest.mark.expensive
@NEWEST_RAY
def test_a_command_may_be_the_driver_and_has_its_grace_at_a_cancel(
    make_driver: Any, ray_python: str
) -> None:
    script = (
        "import ray, signal, os; ray.init(); out = os.environ['SGPU_OUTPUT_DIR']\n"
        "def term(*_):\n"
        "    open(out + '/termed', 'w').write(str(int(ray.cluster_resources()['CPU'])))\n"
        "    raise SystemExit(3)\n"
        "signal.signal(signal.SIGTERM, term)\n"
        "assert 'RANK' not in os.environ\n"
        "open(out + '/up', 'w').close()\n"
        "while True: signal.pause()\n"
    )
    entry = Entry(kind="command", command=("python", "-c", script))
    attempt = make_driver("", entry=entry, grace=30.0).launch()
    folder = _until_up(attempt)
    request_cancel(attempt.folder)
    assert attempt.wait()["state"] == "cancelled"
    assert (output(attempt) / "termed").read_text() == "1"
    _check_end(attempt, folder)


@pytest.mark.expensive
@NEWEST_RAY
def test_a_cancel_during_the_start_leaves_nothing(make_driver: Any) -> None:
    attempt = make_driver("def main(): pass").launch()
    attempt.until(lambda: attempt.events("ray_started"))
    folder = ray_folder(attempt)
    attempt.until(lambda: (folder / "r").exists())
    request_cancel(attempt.folder)
    assert attempt.wait()["state"] == "cancelled"
    _check_end(attempt, folder)


@pytest.mark.expensive
def test_a_killed_driver_takes_its_cluster_along(make_driver: Any) -> None:
    attempt = make_driver(WAITS).launch()
    folder = _until_up(attempt)
    os.kill(attempt.rank_pid(0), signal.SIGKILL)
    assert attempt.wait()["class"] == "killed"
    _check_end(attempt, folder)


@pytest.mark.expensive
@pytest.mark.parametrize("ray_python", ["newest"], indirect=True)
def test_the_users_own_cluster_on_the_same_machine_stays_with_its_work_and_is_not_joined(
    make_driver: Any, ray_python: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = """
def main():
    import ray
    ray.init()
    return ray.cluster_resources()["CPU"]
"""
    with ray_cluster(nodes=1, cpus=7, python=ray_python) as own:
        argv = [ray_python, "-c", OF_THE_USER, own.address, str(tmp_path)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as work:
            attempt = make_driver(source)
            attempt.until(lambda: (tmp_path / "at work").exists())
            monkeypatch.setenv("RAY_ADDRESS", own.url)
            assert attempt.launch().values() == [1.0]
            _check_end(attempt, Path("/nonexistent"))
            (tmp_path / "enough").touch()
            assert work.communicate(timeout=PATIENCE)[0] == "finished\n"


@pytest.mark.expensive
def test_nothing_is_left_when_supervisor_and_guardian_are_killed(make_driver: Any) -> None:
    attempt = make_driver(WAITS).launch()
    folder = _until_up(attempt)
    attempt.kill_both()
    attempt.until(lambda: not carriers(attempt.token))
    attempt.until(lambda: not folder.exists())
    assert attempt.read()["class"] == "supervisor_lost"


def test_without_ray_in_its_environment_the_run_says_so(make_attempt: Any, tmp_path: Path) -> None:
    python = tmp_path / "bare" / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", python.parents[1]],
        check=True, timeout=PATIENCE,
    )  # fmt: skip
    attempt = make_attempt(
        "", world_size=1, per="node", python=str(python), ray=RaySpec(num_gpus=0)
    ).launch()
    status = attempt.wait()
    assert status["class"] == "launch_failed_user"
    assert "cannot import Ray on node 0: No module named 'ray'" in status["first_cause"]["summary"]
    attempt.check()

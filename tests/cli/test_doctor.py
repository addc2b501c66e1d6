"""`sgpu doctor`: each fault is made for real, and has its line with the way out."""

import json
import os
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from pwd import getpwuid
from resource import RLIMIT_AS, RLIMIT_FSIZE, RLIMIT_NOFILE, setrlimit
from typing import Any

import pytest

from sgpu_decl.model.jsonable import Json
from sgpu_decl.storing.sqlite.store import SqliteStore
from tests.cli.conftest import Answer, Shell
from tests.http_servers import QuietServer
from tests.support import COMMAND_RUN, PATIENCE

ROOT = Path(__file__).resolve().parents[2]
L4 = "NVIDIA L4:24152899584"
DOCTOR = (sys.executable, "-m", "sgpu_decl", "doctor", "-o", "json")


def findings(answer: Answer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer.json["data"]["findings"]
    return found


def lines(answer: Answer, check: str) -> list[str]:
    """The findings of a check: verdict, text and hint in one."""
    return [
        f"{finding['verdict']}: {finding['text']} | {finding['hint']}"
        for finding in findings(answer)
        if finding["check"] == check
    ]


def failed(answer: Answer) -> list[str]:
    return [finding["check"] for finding in findings(answer) if finding["verdict"] == "fail"]


def doctor(shell: Shell) -> Answer:
    return shell.here("doctor", "-o", "json")


def applied(shell: Shell, text: str = COMMAND_RUN) -> None:
    shell.write("run.yaml", text)
    shell.done("apply", "-y")


def wrapped(shell: Shell, *program: str, **options: Any) -> Answer:
    """`sgpu doctor -o json` under a program that changes the machine for it; skipped where this
    machine does not let us."""
    usable = subprocess.run([*program, "true"], capture_output=True, check=False)
    if usable.returncode:
        pytest.skip(f"this machine does not let us `{program[0]}`")
    return run(shell, *program, *DOCTOR, **options)


def run(shell: Shell, *argv: str, **options: Any) -> Answer:
    done = subprocess.run(
        argv, cwd=shell.folder, env=shell.environ, capture_output=True, text=True,
        timeout=PATIENCE, check=False, **options,
    )  # fmt: skip
    return Answer(done.returncode, done.stdout, done.stderr)


def test_a_project_in_order(sgpu: Shell) -> None:
    applied(sgpu)
    before = sgpu.written()

    answer = doctor(sgpu)

    assert failed(answer) == []
    assert answer.code == 0
    assert sgpu.written() == before
    assert {finding["check"] for finding in findings(answer)} >= {
        "file", "interpreter", "torch", "gpus", "nccl", "kernel", "memory", "processors", "limits",
        "disk", "ports", "loopback", "hostname", "uv", "git", "mlflow", "state", "clock", "store",
        "processes",
    }  # fmt: skip
    assert lines(answer, "file") == ["ok: `run.yaml` is valid; number of runs: 1 | None"]
    text = sgpu.done("doctor")
    assert "ok    interpreter" in text.out
    assert "checks: " in text.err


def test_outside_of_a_project_it_says_what_it_leaves_out(sgpu: Shell) -> None:
    answer = doctor(sgpu)
    assert answer.code == 0
    assert "no project in" in answer.err
    assert not {"file", "state", "mlflow"} & {finding["check"] for finding in findings(answer)}
    assert list(sgpu.folder.iterdir()) == []


def test_a_project_whose_file_has_another_name(sgpu: Shell) -> None:
    sgpu.write("mine.yaml", COMMAND_RUN)
    sgpu.done("apply", "-y", "mine.yaml")
    (line,) = lines(doctor(sgpu), "file")
    assert line.endswith("no `run.yaml`: the needs of its runs are not checked | None")
    assert "resources: 1" in lines(doctor(sgpu), "state")[0]


def test_a_failure_is_exit_code_1_in_text_too(sgpu: Shell) -> None:
    sgpu.write("run.yaml", COMMAND_RUN.replace("gpus: 1", "gpus: one"))
    told = sgpu.exits(1, "doctor")
    assert "fail  file" in told.out
    assert "`sgpu validate run.yaml` shows all of it" in told.out
    assert "1 check failed: `file`" in told.err
    answer = doctor(sgpu)
    assert answer.code == 1
    assert answer.json["error"]["code"] == "checks_failed"
    assert failed(answer) == ["file"]


# Interpreters and torch


def test_an_interpreter_that_is_missing(sgpu: Shell) -> None:
    sgpu.write("run.yaml", f"{COMMAND_RUN}env: {{python: '3.99'}}\n")
    (_, line) = lines(doctor(sgpu), "interpreter")
    assert line.startswith("fail: run.hello: this machine has no Python `3.99`")


def torch_of(shell: Shell, version: str) -> Shell:
    """A torch whose import would fail comes first on the path."""
    shell.write("lib/torch/__init__.py", "raise RuntimeError('torch was imported')\n")
    shell.write("lib/torch/version.py", f"from typing import Optional\n{version}")
    return replace(shell, environ={**shell.environ, "PYTHONPATH": str(shell.folder / "lib")})


def asked(shell: Shell) -> Answer:
    return run(shell, *DOCTOR)


@pytest.mark.parametrize(
    ("cuda", "driver", "said"),
    [
        ("12.8", "12040", "ok: torch 2.9.0 is built for CUDA 12.8; driver 550.54.15 has CUDA 12.4"),
        ("13.0", "12040", "fail: torch 2.9.0 is built for CUDA 13.0; driver 550.54.15 has CUDA 12"),
        (None, "12040", "warn: torch 2.9.0 is built for CPUs: ranks cannot use the GPUs"),
    ],
)
def test_torch_and_the_driver(
    on: Callable[..., Shell], cuda: str | None, driver: str, said: str
) -> None:
    shell = torch_of(
        on(L4, SGPU_TEST_CUDA=driver),
        f"__version__ = '2.9.0'\ncuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n",
    )
    answer = asked(shell)
    (line,) = lines(answer, "torch")
    assert line.startswith(said)
    if said.startswith("fail"):
        assert "a driver of 580 or newer, or a torch that is built for CUDA 12" in line
        assert answer.code == 1


@pytest.mark.parametrize(
    ("cuda", "capability", "said"),
    [
        ("12.4", "100", "warn: torch 2.9.0 is built for CUDA 12.4"),
        ("12.4", "90", "ok: "),
        ("13.0", "70", "warn: torch 2.9.0 is built for CUDA 13.0"),
        ("13.0", "75", "ok: "),
        ("11.7", "90", "warn: torch 2.9.0 is built for CUDA 11.7"),
    ],
)
def test_torch_and_the_generation_of_the_gpu(
    on: Callable[..., Shell], cuda: str, capability: str, said: str
) -> None:
    machine = on(L4, SGPU_TEST_CUDA="13000", SGPU_TEST_CAPABILITY=capability)
    shell = torch_of(machine, f"__version__ = '2.9.0'\ncuda: Optional[str] = {cuda!r}\n")
    (line,) = lines(asked(shell), "torch")
    assert line.startswith(said)
    assert ("kernels may be missing" in line) is said.startswith("warn")


def test_torch_of_another_interpreter_is_read_from_its_files(sgpu: Shell, tmp_path: Path) -> None:
    python = tmp_path / "other/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    folder = tmp_path / "other/lib/python3.11/site-packages/torch"
    folder.mkdir(parents=True)
    (folder / "version.py").write_text("__version__ = '1.2.3+cpu'\ncuda = None\n")
    sgpu.write("run.yaml", f"{COMMAND_RUN}env: {{python: '{python}'}}\n")
    (line,) = lines(doctor(sgpu), "torch")
    assert line.startswith("ok: torch 1.2.3+cpu is built for CPUs")


# GPUs


def test_another_program_on_a_gpu_is_named(on: Callable[..., Shell]) -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeping:
        shell = on(L4, L4, SGPU_TEST_USERS=f"1:{sleeping.pid}:8000000000")
        found = lines(asked(shell), "gpus")
        sleeping.kill()
    assert found[0] == "ok: 2 x NVIDIA L4 (24 GB) | None"
    assert found[1].startswith(
        f"warn: GPU 1 is used by user {getpwuid(os.getuid()).pw_name} (process {sleeping.pid}, "
        "sleep, 8.0 GB) | runs that need this GPU wait until it is free"
    )


def test_a_rank_on_a_gpu_is_no_other_program(on: Callable[..., Shell]) -> None:
    environ = {**os.environ, "SGPU_ADDRESS": "run.train", "SGPU_ATTEMPT": "3"}
    with subprocess.Popen(["sleep", "600"], env=environ) as sleeping:
        found = lines(asked(on(L4, SGPU_TEST_USERS=f"0:{sleeping.pid}:8000000000")), "gpus")
        sleeping.kill()
    assert found[1] == "ok: GPU 0 is used by run.train#3 | None"


@pytest.mark.parametrize(
    ("gpus", "environ", "said"),
    [
        (["18"], {}, "fail: the NVIDIA driver does not work: RM has detected an NVML/RM version"),
        ([L4, "LOST:0"], {}, "fail: GPU 1 does not answer: GPU is lost"),
        ([L4], {"SGPU_TEST_COMPUTE_MODE": "2"}, "fail: GPU 0 takes no processes"),
        ([L4], {"SGPU_TEST_USERS": "0:0:9000000000"}, "warn: 9.0 GB of 24.2 GB of GPU 0 are used "),
        ([L4], {"CUDA_VISIBLE_DEVICES": ""}, "warn: `CUDA_VISIBLE_DEVICES` hides all 1 GPUs"),
    ],
)
def test_gpus_that_ranks_cannot_use(
    on: Callable[..., Shell], gpus: Sequence[str], environ: dict[str, str], said: str
) -> None:
    found = lines(asked(on(*gpus, **environ)), "gpus")
    assert any(line.startswith(said) for line in found), found


def test_what_a_plan_would_say_against_runs(sgpu: Shell, on: Callable[..., Shell]) -> None:
    sgpu.write("run.yaml", f"{COMMAND_RUN}env: {{secrets: {{TOKEN: 'env:NOT_SET'}}}}\n")
    (line,) = lines(doctor(sgpu), "runs")
    assert line.startswith("warn: run.hello: secret `TOKEN` refers to `env:NOT_SET`")
    sgpu.write("run.yaml", COMMAND_RUN.replace("CPU", "A100"))
    (line,) = lines(asked(on(L4)), "runs")
    assert line.startswith("warn: run.hello: this machine has no A100: it has 1 x NVIDIA L4")
    sgpu.write("run.yaml", COMMAND_RUN)
    assert lines(doctor(sgpu), "runs") == ["ok: this machine has what the runs need | None"]


# Variables of NCCL and gloo


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("NCCL_SOCKET_IFNAME=nope0", "warn: this machine has no such interface; it has "),
        ("NCCL_SOCKET_IFNAME==l", "warn: this machine has no such interface; it has "),
        ("NCCL_SOCKET_IFNAME=^l,e,d,v,b,w,s,t,g,i", "warn: this machine has no such interface"),
        ("GLOO_SOCKET_IFNAME=lo,nope0", "fail: this machine has no such interface; it has "),
        ("NCCL_P2P_DISABLE=1", "warn: GPUs do not copy to each other directly, which is slow"),
        ("NCCL_TOPO_FILE=/no/such.xml", "warn: there is no such file"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "warn: a rank whose peer failed waits"),
    ],
)
def test_variables_that_break_or_slow_down_ranks(sgpu: Shell, variable: str, said: str) -> None:
    name, _, value = variable.partition("=")
    sgpu.environ[name] = value
    (line,) = [item for item in lines(doctor(sgpu), "nccl") if not item.startswith("ok")]
    verdict, _, text = said.partition(": ")
    assert line.startswith(f"{verdict}: `{name}={value}` (of this shell): {text}")
    assert f"unset `{name}`" in line


def test_an_interface_that_is_not_there_fails_where_there_are_gpus(
    on: Callable[..., Shell],
) -> None:
    (line,) = lines(asked(on(L4, NCCL_SOCKET_IFNAME="nope0")), "nccl")
    assert line.startswith("fail: `NCCL_SOCKET_IFNAME=nope0`")


@pytest.mark.parametrize("name", ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"])
def test_an_empty_interface_is_none(sgpu: Shell, name: str) -> None:
    sgpu.environ[name] = ""
    assert all(line.startswith("ok") for line in lines(doctor(sgpu), "nccl"))


@pytest.mark.parametrize("value", ["lo", "=lo", "l", "^docker0", "^=docker0", "nope0,lo"])
def test_interfaces_as_nccl_names_them(sgpu: Shell, value: str) -> None:
    sgpu.environ["NCCL_SOCKET_IFNAME"] = value
    (line,) = lines(doctor(sgpu), "nccl")
    assert line.startswith(f"ok: `NCCL_SOCKET_IFNAME={value}` (of this shell)")


def test_variables_of_a_run_and_of_the_file_of_nccl(sgpu: Shell) -> None:
    sgpu.write("run.yaml", f"{COMMAND_RUN}env: {{variables: {{NCCL_SHM_DISABLE: '1'}}}}\n")
    home = Path(sgpu.environ["HOME"])
    home.mkdir()
    (home / ".nccl.conf").write_text("# mine\nNCCL_SOCKET_IFNAME=nope0\nNCCL_DEBUG=WARN\n")
    found = lines(doctor(sgpu), "nccl")
    assert found[0] == f"ok: `NCCL_DEBUG=WARN` (of `{home}/.nccl.conf`) | None"
    assert f"`NCCL_SOCKET_IFNAME=nope0` (of `{home}/.nccl.conf`)" in found[1]
    assert "`NCCL_SHM_DISABLE=1` (of run.hello)" in found[2]


# Limits, memory, room


def limited(shell: Shell, limit: int, most: int) -> Answer:
    return run(shell, *DOCTOR, preexec_fn=lambda: setrlimit(limit, (most, most)))


def test_few_open_files(sgpu: Shell) -> None:
    (line,) = lines(limited(sgpu, RLIMIT_NOFILE, 200), "limits")
    assert line.startswith("fail: a process may open 200 files only")
    (line,) = lines(limited(sgpu, RLIMIT_NOFILE, 500), "limits")
    assert line.startswith("warn: a process may open 500 files only")


@pytest.mark.parametrize(
    ("limit", "most", "said"),
    [
        (RLIMIT_FSIZE, 1 << 30, "warn: no file may become larger than 1.1 GB"),
        (RLIMIT_FSIZE, 0, "fail: no file may become larger than 0 B"),
        (RLIMIT_AS, 64 << 30, "warn: a process may map 68.7 GB only"),
    ],
)
def test_limits_that_break_ranks(sgpu: Shell, limit: int, most: int, said: str) -> None:
    (line,) = lines(limited(sgpu, limit, most), "limits")
    assert line.startswith(said)


def test_a_limit_that_keeps_files_from_being_tried_out(sgpu: Shell) -> None:
    applied(sgpu)
    answer = limited(sgpu, RLIMIT_FSIZE, 0)
    (line,) = lines(answer, "kernel")
    assert line.startswith("warn: the system calls for files could not be tried: EFBIG")
    assert lines(answer, "processes")


@pytest.fixture
def closed_store() -> Iterator[Path]:
    """A folder of data that everybody may look into, with a store that only root may read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name, "sgpu/store/objects/ab")
        folder.mkdir(parents=True)
        Path(name).chmod(0o755)
        (folder / "cd").touch(mode=0o600)
        yield Path(name)


def test_a_check_that_cannot_look_hides_no_other(sgpu: Shell, closed_store: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root may become somebody else")
    other = replace(sgpu, environ={**sgpu.environ, "XDG_DATA_HOME": str(closed_store)})
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    answer = run(other, "bash", "-c", 'cd /; exec "$@"', "bash", *nobody, *DOCTOR)
    if not answer.out:
        pytest.skip("nobody may not read the tests' Python")
    assert "is not writable" in lines(answer, "disk")[0]
    (line,) = lines(answer, "store")
    assert line.startswith("fail: could not be checked: EACCES")
    assert lines(answer, "processes")


def test_little_memory_in_the_control_group(sgpu: Shell, tmp_path: Path) -> None:
    for parent in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        group = Path(parent, f"sgpu-doctor-{os.getpid()}-{tmp_path.name}")
        try:
            group.mkdir()
        except OSError:
            continue
        limit = next((item for item in (group / "memory.limit_in_bytes", group / "memory.max")
                      if item.exists()), None)  # fmt: skip
        if limit is not None:
            break
        group.rmdir()
    else:
        pytest.skip("this machine lets us make no cgroup with the memory controller")
    limit.write_text(str(190 << 20))
    script = f'echo $$ > {group}/cgroup.procs; exec "$@"'
    answer = run(sgpu, "bash", "-c", script, "bash", *DOCTOR)
    group.rmdir()
    (line,) = lines(answer, "memory")
    assert line.startswith("fail: only ")
    assert f"of the control group `{group}` free: ranks will be killed" in line


def on_small_disk(shell: Shell, options: str, script: str, tmp_path: Path) -> Answer:
    """In a project on a tmpfs of its own, in a namespace that takes it along."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = f'mount -t tmpfs -o {options} tmpfs {disk} && cd {disk} && {script}; exec "$@"'
    return wrapped(shell, "unshare", "-m", "bash", "-c", mounted, "bash")


def test_a_full_disk(sgpu: Shell, tmp_path: Path) -> None:
    answer = on_small_disk(
        sgpu, "size=4m", "mkdir .sgpu && head -c 8m /dev/zero > fill 2>/dev/null", tmp_path
    )
    (line,) = [item for item in lines(answer, "disk") if "attempts" in item]
    assert line.startswith(f"fail: only 0 B free for attempts (`{tmp_path}/disk/.sgpu`)")
    assert "`sgpu gc`" in line
    assert answer.code == 1


def test_a_disk_without_inodes(sgpu: Shell, tmp_path: Path) -> None:
    answer = on_small_disk(sgpu, "size=500m,nr_inodes=50", "mkdir .sgpu", tmp_path)
    (line,) = [item for item in lines(answer, "disk") if "attempts" in item]
    assert "but only 48 inodes: no more files" in line


def test_a_folder_of_temporary_files_that_executes_nothing(sgpu: Shell) -> None:
    # The checkout and its interpreter stay visible and executable, also below `/tmp`.
    kept = {str(ROOT), sys.prefix, sys.base_prefix}
    opened = "".join(f"exec {n}<{shlex.quote(path)}\n" for n, path in enumerate(kept, 3))
    bound = "".join(
        f"mkdir -p {path}; mount --no-canonicalize --bind /proc/self/fd/{n} {path}\n"
        for n, path in enumerate(map(shlex.quote, kept), 3)
    )
    mounted = "mount -t tmpfs -o noexec tmpfs /tmp; mkdir /tmp/here; cd /tmp/here"
    script = f'{opened}{mounted}\n{bound}exec "$@"'
    answer = wrapped(sgpu, "unshare", "-m", "bash", "-c", script, "bash")
    found = [line for line in lines(answer, "disk") if "can be executed" in line]
    assert any(item.startswith("warn: nothing on `/tmp` (temporary files)") for item in found)


def test_little_shared_memory(sgpu: Shell) -> None:
    script = 'mount -t tmpfs -o size=64m tmpfs /dev/shm; exec "$@"'
    answer = wrapped(sgpu, "unshare", "-m", "bash", "-c", script, "bash")
    (line,) = [item for item in lines(answer, "disk") if "/dev/shm" in item]
    assert line.startswith("warn: only 67.1 MB of 67.1 MB free in `/dev/shm`")
    assert "--shm-size" in line


# Kernel, network, clock


def test_system_calls_that_a_sandbox_refuses(sgpu: Shell) -> None:
    argv = ("-m", "sgpu_decl.testing.refused_calls", "EPERM", "pidfd_open,memfd_create", "--")
    found = lines(run(sgpu, sys.executable, *argv, *DOCTOR), "kernel")
    assert [line.partition(" (")[0] for line in found] == [
        "warn: `pidfd_open` is refused",
        "warn: `memfd_create` is refused",
    ]
    assert "seccomp" in found[0]


def test_a_machine_that_is_no_linux_is_no_failure(
    sgpu: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    answer = doctor(sgpu)
    assert answer.code == 0
    (line,) = lines(answer, "kernel")
    assert "runs on this machine need Linux" in line


def test_a_loopback_that_is_down(sgpu: Shell) -> None:
    (line,) = lines(wrapped(sgpu, "unshare", "-n"), "loopback")
    assert line.startswith("fail: no connection to `127.0.0.1`: ")
    assert "ip link set lo up" in line


def test_ports_that_outgoing_connections_take(sgpu: Shell) -> None:
    script = "echo '10000 60999' > /proc/sys/net/ipv4/ip_local_port_range; exec \"$@\""
    (line,) = lines(wrapped(sgpu, "unshare", "-n", "bash", "-c", script, "bash"), "ports")
    assert line.startswith("warn: outgoing connections use ports from 10000 on")


def test_a_hostname_that_does_not_resolve(sgpu: Shell) -> None:
    script = 'hostname nowhere.invalid; exec "$@"'
    answer = wrapped(sgpu, "unshare", "-u", "bash", "-c", script, "bash")
    (line,) = lines(answer, "hostname")
    assert line.startswith("warn: `nowhere.invalid` does not resolve")


def test_a_clock_that_was_set_back(sgpu: Shell) -> None:
    """The attempt was recorded in what is the future now."""
    applied(sgpu)
    with closing(sqlite3.connect(state_of(sgpu))) as db, db:
        db.execute("UPDATE attempts SET ended_at = '2099-01-01T00:00:00.000Z'")
    (line,) = lines(doctor(sgpu), "clock")
    assert "slow: `run.hello#1` is of 2099-01-01" in line or "slow: `hello#1` is of" in line


# Programs


def test_uv_is_missing_and_a_run_needs_it(sgpu: Shell) -> None:
    sgpu.write("lib/uv/__init__.py", "def find_uv_bin():\n    raise FileNotFoundError\n")
    environ = {**sgpu.environ, "PYTHONPATH": str(sgpu.folder / "lib"), "PATH": "/no/such/folder"}
    without = replace(sgpu, environ=environ)
    (line,) = lines(asked(without), "uv")
    assert line.startswith("warn: ")
    assert "no run here needs it" in line
    (line,) = lines(asked(without), "git")
    assert line.startswith("warn: there is no git on the PATH")
    sgpu.write("run.yaml", f"{COMMAND_RUN}env: {{dependencies: [idna]}}\n")
    (line,) = lines(asked(without), "uv")
    assert line.startswith("fail: declared environments are resolved and built with uv")


# MLflow


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    with QuietServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def tracked(shell: Shell, uri: str) -> list[str]:
    shell.write("run.yaml", COMMAND_RUN.replace("enabled: false", f"tracking_uri: '{uri}'"))
    return lines(doctor(shell), "mlflow")[1:]


def test_a_tracking_server_that_is_down_or_refuses(sgpu: Shell, refusing: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (line,) = tracked(sgpu, refusing)
    assert line.startswith("fail: ")
    assert "answers 403" in line
    (line,) = tracked(sgpu, f"http://127.0.0.1:{port}")
    assert "cannot be reached: Connection refused" in line
    assert "`sgpu mlflow sync`" in line
    sgpu.environ["MLFLOW_TRACKING_URI"] = f"http://me:hunter2@127.0.0.1:{port}"
    sgpu.write("run.yaml", COMMAND_RUN.replace("mlflow: {enabled: false}\n", ""))
    (_, line) = lines(doctor(sgpu), "mlflow")
    assert line.startswith("fail: ")
    assert "hunter2" not in line
    sgpu.environ["MLFLOW_TRACKING_URI"] = "http://me:hunter2@[bad"
    (_, line) = lines(doctor(sgpu), "mlflow")
    assert line.startswith("fail: the tracking URI of MLflow is malformed")
    assert "hunter2" not in line


def test_a_store_that_is_no_database_or_of_another_schema(sgpu: Shell) -> None:
    (line,) = tracked(sgpu, "sqlite:///mine.db")
    assert line == f"ok: `sqlite:///{sgpu.folder}/mine.db`: is made by the first run | None"
    sgpu.write("mine.db", "no database" * 100)
    (line,) = tracked(sgpu, "sqlite:///mine.db")
    assert line.startswith("fail: ")
    assert "file is not a database" in line
    (sgpu.folder / "mine.db").unlink()
    with closing(sqlite3.connect(sgpu.folder / "mine.db")) as db, db:
        for table in ("runs", "experiments", "alembic_version"):
            db.execute(f"CREATE TABLE {table} (version_num TEXT)")
        db.execute("INSERT INTO alembic_version VALUES ('from-tomorrow')")
    (line,) = tracked(sgpu, "sqlite:///mine.db")
    assert "schema from-tomorrow, which is unknown here" in line


@pytest.mark.expensive
def test_a_store_that_another_program_holds(sgpu: Shell) -> None:
    with closing(sqlite3.connect(sgpu.folder / "mine.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE runs (one TEXT)")
        db.execute("BEGIN EXCLUSIVE")
        (line,) = tracked(sgpu, "sqlite:///mine.db")
    assert "database is locked | another program writes to it" in line


def test_mlflow_runs_that_nobody_closes(sgpu: Shell) -> None:
    """Their tracker was killed: nothing locks their file any more."""
    applied(sgpu)
    sgpu.write("run.yaml", COMMAND_RUN.replace("mlflow: {enabled: false}\n", ""))
    sgpu.write(".sgpu/mlflow-open/a.json", "{}")
    found = lines(doctor(sgpu), "mlflow")
    assert any("MLflow runs that were left open: 1" in item for item in found)


# State and stores


def state_of(shell: Shell, target: str = "default") -> Path:
    return shell.folder / ".sgpu" / target / "state.db"


def test_a_corrupt_state(sgpu: Shell) -> None:
    applied(sgpu)
    path = state_of(sgpu)
    for name in ("state.db-wal", "state.db-shm"):
        (path.parent / name).unlink(missing_ok=True)
    data = bytearray(path.read_bytes())
    data[8192:] = os.urandom(len(data) - 8192)
    path.write_bytes(data)
    answer = doctor(sgpu)
    (line,) = lines(answer, "state")
    assert line.startswith(f"fail: the state `{path}` ")
    assert "backup" in line
    assert answer.code == 1


def test_the_state_of_another_target_is_looked_at_too(sgpu: Shell) -> None:
    applied(sgpu, f"{COMMAND_RUN}targets: {{laptop: {{gpus: 1}}}}\n")
    sgpu.done("apply", "-y", "-t", "laptop")
    state_of(sgpu, "laptop").write_bytes(b"gone" * 2000)
    (mine, other) = lines(doctor(sgpu), "state")
    assert mine.startswith("ok: ")
    (alone,) = lines(sgpu.here("doctor", "-o", "json", "-t", "laptop"), "state")
    assert alone == other
    assert other.startswith(f"fail: the state `{state_of(sgpu, 'laptop')}` is not a SQLite")


LOCKS = """\
import os, sys
from pathlib import Path
from sgpu_decl.storing.sqlite.store import SqliteStore
with SqliteStore(Path(sys.argv[1])).lock("apply", lineage="x"):
    os._exit(0)
"""


def test_a_lock_and_who_holds_it(sgpu: Shell) -> None:
    applied(sgpu)
    with SqliteStore(state_of(sgpu)).lock("apply", lineage="x"):
        (_, line) = lines(doctor(sgpu), "state")
        assert line.startswith("ok: locked by `apply` of ")
        assert f"process {os.getpid()}" in line
    subprocess.run([sys.executable, "-c", LOCKS, state_of(sgpu)], check=True)
    (_, line) = lines(doctor(sgpu), "state")
    assert line.startswith("warn: `apply` (process ")
    assert "sgpu state unlock " in line


def test_a_state_that_others_may_read(sgpu: Shell) -> None:
    applied(sgpu)
    state_of(sgpu).chmod(0o644)
    (_, line) = lines(doctor(sgpu), "state")
    assert line.endswith(f"| `chmod 600 {state_of(sgpu)}`")


def stored(shell: Shell) -> list[Path]:
    return [
        path for path in Path(shell.environ["HOME"]).rglob("store/objects/*/*") if path.is_file()
    ]


def test_one_object_of_the_store_is_counted_as_one(sgpu: Shell) -> None:
    sgpu.write("train.py", "print('hello')\n")
    applied(sgpu)
    (line,) = lines(doctor(sgpu), "store")
    assert "1 sampled object is whole" in line


def test_a_damaged_object_of_the_store(sgpu: Shell) -> None:
    sgpu.write("train.py", "print('hello')\n")
    applied(sgpu)
    (path,) = stored(sgpu)
    path.chmod(0o600)
    path.write_text("print('hellO')\n")
    answer = doctor(sgpu)
    (line, _) = lines(answer, "store")
    assert line.startswith(f"fail: `{path}` does not match its checksum")


def test_code_that_is_no_longer_in_the_store(sgpu: Shell) -> None:
    sgpu.write("train.py", "print('hello')\n")
    applied(sgpu)
    (path,) = stored(sgpu)
    path.unlink()
    (line, _) = lines(doctor(sgpu), "store")
    assert line.startswith("warn: the code of hello#1 lacks `train.py`")
    shutil.rmtree(path.parents[2] / "manifests")
    (line, _) = lines(doctor(sgpu), "store")
    assert line.startswith("warn: the code of hello#1 is missing")


# What attempts leave


def test_an_interrupted_launch(sgpu: Shell) -> None:
    """The state has the intent of an apply that was killed before it launched anything."""
    sgpu.write("run.yaml", COMMAND_RUN)
    killed = run(
        sgpu, sys.executable, "-c",
        "import os, sys\nfrom sgpu_decl.storing.sqlite import writer\n"
        "from sgpu_decl.cli.main import main\n"
        "begin = writer.SqliteWriter.begin\n"
        "def dying(self, intent):\n    begin(self, intent)\n    os._exit(9)\n"
        "writer.SqliteWriter.begin = dying\nmain(['apply', '-y'])\n",
    )  # fmt: skip
    assert killed.code == 9, killed.err
    found = lines(doctor(sgpu), "state")
    assert any("a crash interrupted a change of `run.hello`" in line for line in found)


def test_processes_of_others_are_left_alone(sgpu: Shell) -> None:
    """A process with the cookie of an attempt that has ended is named, and lives on."""
    applied(sgpu)
    folder = sgpu.folder / ".sgpu/default/runs/hello/1"
    spec: dict[str, Json] = json.loads((folder / "spec.json").read_text())
    environ = {
        **os.environ, "SGPU_COOKIE": str(spec["token"]), "SGPU_RUN_DIR": str(folder),
        "SGPU_ADDRESS": "run.hello", "SGPU_ATTEMPT": "1",
    }  # fmt: skip
    with subprocess.Popen(["sleep", "600"], env=environ) as left:
        found = [item for item in lines(doctor(sgpu), "processes") if str(folder) in item]
        assert left.poll() is None
        left.send_signal(signal.SIGKILL)
    (line,) = found
    assert line.startswith(f"warn: run.hello#1 (`{folder}`) has no supervisor any more, and left ")
    assert f"processes: {left.pid} | `sgpu cancel 'run.hello#1'` in its project stops" in line
    assert f"`kill {left.pid}`" in line

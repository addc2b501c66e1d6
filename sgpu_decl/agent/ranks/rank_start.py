"""Starting ranks: their environment, and the fork that ends in exec or in an errno."""

from __future__ import annotations

import errno
import os

from sgpu_decl.agent.attempt.attempt_files import write_atomic
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.processes import die_with_parent
from sgpu_decl.agent.system.secrets import without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from sgpu_decl.agent.several_nodes.node_group import Node

_PARAMETERS = "parameters.yaml"
_PARAMETERS_VARIABLE = (
    "HYPERPARAMETERS_PATH"  # the name of AI Runtime of Databricks (evidence: B, F)
)
# The flight recorder of torch: the second name is that of versions before 2.5. 2000 is its default
# for NCCL (torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp).
_RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_RECORDED = "2000"
_OOM_SCORE = b"500"
_START, _ENTER, _ENTERED = 0, 1, 2  # the step of a forked child that failed
_OF_THE_USER = frozenset(
    {errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
     errno.E2BIG, errno.EPERM, errno.EINVAL}
)  # fmt: skip


class LaunchError(Exception):
    """A rank could not be started; `failure` is its class, the text its summary."""

    def __init__(self, failure: str, summary: str, traceback: str | None = None) -> None:
        super().__init__(summary)
        self.failure = failure
        self.traceback = traceback


def write_parameters(spec: Mapping[str, Any]) -> None:
    """Write the run's parameters to their file; ranks of an earlier start may have changed it.

    Raises:
        LaunchError: the disk is full.
    """
    if not spec.get("parameters"):
        return
    try:
        write_atomic(spec["run_dir"], _PARAMETERS, spec["parameters"].encode())
    except OSError as error:
        reason = f"cannot write the file of `parameters`: {error.strerror}"
        raise LaunchError("launch_failed", reason) from error


def rank_folder(run_dir: str, rank: int, restart: int) -> str:
    return os.path.join(run_dir, "ranks", str(rank), str(restart))


def rank_address(token: str, rank: int, restart: int) -> str:
    """The address at which a rank answers the monitor, after the NUL of abstract ones (unix(7))."""
    return f"sgpu/{token}/{rank}/{restart}"


def argv_of(spec: Mapping[str, Any]) -> list[str]:
    """Return the command line of a rank; only commands run without Python.

    Raises:
        LaunchError: a command came with keyword arguments.
    """
    entry = spec["entry"]
    args = entry.get("args") or []
    if entry["kind"] not in ("command", "shell"):
        return [spec["python"], os.path.join(spec["run_dir"], "_air.py")]
    if not isinstance(args, list):
        raise LaunchError("launch_failed_user", "a command takes `args` as a list, not a mapping")
    extra = [str(arg) for arg in args]
    if entry["kind"] == "command":
        return [*map(str, entry["command"]), *extra]
    return ["bash", "-euo", "pipefail", "-c", entry["shell"], "bash", *extra]


def rank_environment(
    spec: Mapping[str, Any],
    *,
    inherited: Mapping[str, str],
    secrets: Mapping[str, str],
    rank: int,
    restart: int,
    node: Node,
    port: int,
    devices: Sequence[str],
) -> dict[str, str]:
    """Return the environment of one rank, torchrun's names included.

    Later ones win: the variables of apply, our defaults, the run's own variables, its secrets, and
    last those that tell a rank its place. `per: node` starts one process on each node, which starts
    its ranks itself: LOCAL_WORLD_SIZE is their number, and RANK that of the first.
    """
    each = node.local_world_size(spec)
    local = 0 if spec["per"] == "node" else rank - node.number * each
    world, global_ = str(spec["world_size"]), str(node.number * each + local)
    environment = {
        name: value
        for name, value in inherited.items()
        if not name.startswith(("SGPU_", "TORCHELASTIC_"))
    }
    driver = spec.get("ray_driver", False)
    if not spec.get("ray") and not driver:  # Ray sets it for each task
        environment.setdefault("OMP_NUM_THREADS", "1")
    if node.count == 1 and not driver:  # its tasks may run on other nodes
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        environment.setdefault("NCCL_SOCKET_IFNAME", "lo")
    if spec["gpus"]["need"]:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        # We number devices in the order of the bus; CUDA would put the fastest first.
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        if "HIP_VISIBLE_DEVICES" in environment:  # where it is set, ROCm looks at no other
            environment["HIP_VISIBLE_DEVICES"] = ",".join(devices)
    elif spec["gpus"]["devices"]:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    environment.update({name: str(value) for name, value in spec["env"].items()})
    environment.update(secrets)
    if spec.get("flight_recorder"):
        if not any(name in environment for name in _RECORDER_SIZES):
            environment[_RECORDER_SIZES[0]] = _RECORDED
        environment["SGPU_ASKED_AT"] = rank_address(spec["token"], rank, restart)
    if spec.get("parameters"):
        environment[_PARAMETERS_VARIABLE] = os.path.join(spec["run_dir"], _PARAMETERS)
    environment.update(
        RANK=global_,
        LOCAL_RANK=str(local),
        WORLD_SIZE=world,
        LOCAL_WORLD_SIZE=str(each),
        NODE_RANK=str(node.number),
        GROUP_RANK=str(node.number),
        GROUP_WORLD_SIZE=str(node.count),
        ROLE_RANK=global_,
        ROLE_WORLD_SIZE=world,
        ROLE_NAME="default",
        NUM_NODES=str(node.count),
        REPLICA_RANK="0",
        MASTER_ADDR=node.address,
        MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID=spec["token"],
        TORCHELASTIC_RESTART_COUNT=str(restart),
        TORCHELASTIC_MAX_RESTARTS=str(spec["retry"]["max"]),
        TORCHELASTIC_ERROR_FILE=os.path.join(
            rank_folder(spec["run_dir"], rank, restart), "error.json"
        ),
        PYTHONUNBUFFERED="1",
        SGPU_ADDRESS=spec["address"],
        SGPU_RUN_NAME=spec["name"],
        SGPU_ATTEMPT=str(spec["attempt"]),
        SGPU_RUN_DIR=spec["run_dir"],
        SGPU_OUTPUT_DIR=spec["output_dir"],
        SGPU_COOKIE=spec["token"],
    )
    if spec["project_dir"]:  # other machines than that of apply have none
        environment["SGPU_PROJECT_DIR"] = spec["project_dir"]
    return environment


_OF_ONE_RANK = frozenset(
    {"RANK", "LOCAL_RANK", "ROLE_RANK", "TORCHELASTIC_ERROR_FILE", "SGPU_ASKED_AT"}
)


def shared_environment(
    environment: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Return what a rank's environment shares with those of its peers, without secrets."""
    shared = without_secrets(environment, secrets)
    return {name: value for name, value in shared.items() if name not in _OF_ONE_RANK}


def spawn(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    cwd: str,
    logs: tuple[str, str],
    reset: Callable[[], None],
    stdin: int | None = None,
    raise_oom_score: bool = True,
    keep: int | None = None,
    guarded: bool = True,
    instead: Callable[[], NoReturn] | None = None,
) -> tuple[int, int]:
    """Fork a process in a session of its own; return its pid and a pipe for `exec_error`.

    Args:
        logs: its stdout and stderr files, opened for appending.
        reset: resets signals in the child.
        keep: a descriptor that survives exec.
        guarded: the process ends with this one.
        instead: called in the fork instead of a program. It has to close all descriptors that are
            not its own, `exec_error`'s pipe included.

    Raises:
        LaunchError: the machine could not fork.
    """
    parent = os.getpid()
    try:
        failure, failed = os.pipe2(os.O_CLOEXEC)
    except OSError as error:
        raise LaunchError("launch_failed", f"cannot make a pipe: {error.strerror}") from error
    # A signal between fork and exec would run our handlers in the child; `reset` lets it through.
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    try:
        pid = os.fork()
    except OSError as error:
        os.close(failure)
        os.close(failed)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        raise LaunchError("launch_failed", f"cannot fork: {error.strerror}") from error
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(failed)
        return pid, failure
    step = _START
    try:
        os.setsid()
        reset()
        if guarded:
            die_with_parent(parent)
        if raise_oom_score:
            _raise_oom_score()
        _wire(stdin, logs, keep)
        os.umask(0o022)
        step = _ENTER
        os.chdir(cwd)
        step = _START
        if instead is None:
            os.execvpe(argv[0], list(argv), dict(environment))  # noqa: S606
        step = _ENTERED
    except OSError as error:
        os.write(failed, b"%d %d" % (error.errno or errno.EIO, step))
    except ValueError:
        os.write(failed, b"%d %d" % (errno.EINVAL, step))  # a NUL in an argument or a variable
    finally:
        if instead is None or step != _ENTERED:
            os._exit(127)
    return instead()


def _wire(stdin: int | None, logs: tuple[str, str], keep: int | None) -> None:
    source = os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin
    os.dup2(source, 0)
    for target, path in zip((1, 2), logs, strict=True):
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(log, target)
    if keep is not None:
        os.set_inheritable(keep, True)  # noqa: FBT003


def _raise_oom_score() -> None:
    """Let the kernel kill a rank before its supervisor, if it allows that."""
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(_OOM_SCORE)
    except OSError:
        return


def exec_error(failure: int, program: str, cwd: str) -> LaunchError | None:
    """Wait until the child has executed its program; return why it could not, or None."""
    text = os.read(failure, 16)
    os.close(failure)
    if not text:
        return None
    code, step = map(int, text.split())
    if step == _ENTER:
        return start_error(code, f"in `{cwd}`")
    return start_error(code, f"`{program}`", os.path.join(cwd, program))


def first_line_error(path: str) -> str:
    """What is wrong with the first line of a script, which names its interpreter."""
    try:
        with open(path, "rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    if not line.startswith(b"#!"):
        return ": it has no `#!` line, such as `#!/usr/bin/env bash`"
    if line.endswith(b"\r\n"):
        return ": its lines end as on Windows (CRLF), so its `#!` line names no program"
    return ""


def start_error(code: int, what: str, path: str | None = None) -> LaunchError:
    """Return the failure of a start, of the program at `path`, that ended with this errno."""
    failure = "launch_failed_user" if code in _OF_THE_USER else "launch_failed"
    of_script = code == errno.ENOEXEC or (code == errno.ENOENT and "/" in what)
    why = first_line_error(path) if path is not None and of_script else ""
    return LaunchError(failure, f"cannot start {what}: {os.strerror(code)}{why}")

"""A real Slurm of two nodes on this machine, for tests.

    with slurm_cluster() as cluster:
        ...  # commands of Slurm use it with the variables `cluster.environ`

    n1, n2    16 processors and 2 GPUs of the type h100 each, which are any device files
    main      the partition of both, and the default one
    low       the same nodes; what runs there makes room for what comes to `main`
    closed    the same nodes; it is down

It lies in a folder of its own, with ports of its own, beside any other Slurm of the machine, and
keeps no accounts. It belongs to the user of the tests. A keeper, which is this module as a program,
starts its daemons in the foreground, and ends them and all that they have started when the program
of the tests closes its input, or dies. All of them are its descendants: it adopts orphans.

Debian's packages are enough: `slurm-wlm slurmctld slurmd munge`. The settings:
https://slurm.schedmd.com/slurm.conf.html, https://slurm.schedmd.com/gres.conf.html; several slurmd
on one machine: https://slurm.schedmd.com/programmer_guide.html#multiple_slurmd_support
"""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sgpu_decl.agent.host.ports import claim_port
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.agent.system.kernel_features import PR_SET_CHILD_SUBREAPER, prctl
from sgpu_decl.agent.system.processes import related

__all__ = ["NODES", "SlurmCluster", "missing_programs", "slurm_cluster"]

NODES = ("n1", "n2")

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
_DAEMONS = ("munged", "slurmctld", "slurmscriptd", "slurmd", "slurmstepd")
_PATIENCE = 60.0  # seconds until all nodes must have joined, on however busy a machine
_LEAVING = 15.0
_PAUSE = 0.05
_READY = b"ready\n"

# By these settings jobs start within a second, and not within a minute. `config_overrides` believes
# the processors, `cred_expire` has a job that starts again wait for five seconds, not two minutes.
_SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge={remembers}
GresTypes=gpu
MpiDefault=none
SlurmctldPort={ports[0]}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} {node}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} {node}
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=low Nodes=n1,n2 MaxTime=60 State=UP PriorityTier=1
PartitionName=closed Nodes=n1,n2 State=DOWN
"""
_NODE = "CPUs=16 Sockets=1 CoresPerSocket=16 RealMemory=4000 Gres=gpu:h100:2 State=UNKNOWN"
_DEVICES = "NodeName=n[1-2] Name=gpu Type=h100 Count=2 File=/dev/null,/dev/zero\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCluster:
    """`folder` has its settings, logs and state; `storage` is a folder in it for what its nodes
    and this machine share. `environ` are the variables by which commands find it. `keeper` is the
    pid of what keeps it."""

    folder: Path
    keeper: int

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    @property
    def environ(self) -> Mapping[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def command(self, *words: str) -> str:
        """What a command of Slurm says. Raises subprocess.CalledProcessError."""
        environ = {**os.environ, **self.environ}
        return subprocess.run(
            words, env=environ, capture_output=True, text=True, check=True, timeout=_PATIENCE
        ).stdout

    def processes(self, *names: str) -> list[int]:
        """The pids of its processes with the names given, such as `slurmd`."""
        return [pid for pid in related(self.keeper) if _name(pid) in names]

    def job_processes(self) -> list[int]:
        """The pids of what jobs run."""
        return [pid for pid in related(self.keeper) if _name(pid) not in (*_DAEMONS, "")]

    @contextmanager
    def controller(self) -> Iterator[None]:
        """A controller for the block, after the test has killed that of the cluster."""
        with _daemon(self.folder, "again", "slurmctld", "-D") as daemon:
            yield
            daemon.kill()

    def resume(self, node: str) -> None:
        """Have a node take jobs again that was made to take none."""
        with suppress(subprocess.CalledProcessError):  # it does, once its daemon has registered
            self.command("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def leftovers(self) -> list[str]:
        """What a test that shares it leaves to the next one: jobs that go on, nodes that do not
        work."""
        left = self.command("squeue", "--noheader", "--format=%i %j %T").split("\n")
        nodes = self.command("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %t")
        busy = ("idle", "mix", "alloc", "comp")
        left += [line for line in nodes.split("\n") if line and line.split()[1] not in busy]
        return [line for line in left if line]


def missing_programs() -> tuple[str, ...]:
    """The programs that it needs and that are not here."""
    return tuple(name for name in _PROGRAMS if _program(name) is None)


@contextmanager
def slurm_cluster(*, remembers: int = 300) -> Iterator[SlurmCluster]:
    """A cluster that ends with the block, with all that runs there.

    Args:
        remembers: the seconds after which it forgets a job that ended.

    Raises:
        RuntimeError: it does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="sgpu-slurm-"))  # the paths of sockets must be short
    with ExitStack() as ends:
        ports = []
        for number in range(1 + len(NODES)):
            port, lock = claim_port(host_lock_folder("ports"), os.getpid() * 16 + number)
            ends.callback(os.close, lock)
            ports.append(port)
        _write_settings(folder, ports, remembers)
        keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        ends.callback(_end, keeper)
        assert keeper.stdout is not None  # noqa: S101  a pipe of ours
        said = keeper.stdout.read(len(_READY))
        if said != _READY:
            said += keeper.stdout.read()
            raise RuntimeError(f"Slurm did not start:\n{said.decode()[-4000:]}")
        yield SlurmCluster(folder=folder, keeper=keeper.pid)


def _name(pid: int) -> str:
    """The name of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _end(keeper: "subprocess.Popen[bytes]") -> None:
    keeper.communicate(timeout=2 * _LEAVING)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _write_settings(folder: Path, ports: list[int], remembers: int) -> None:
    for name in ("state", "storage", "log", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    text = _SETTINGS.format(
        folder=folder,
        host=socket.gethostname().partition(".")[0],
        user=pwd.getpwuid(os.getuid()).pw_name,
        ports=ports,
        node=_NODE,
        remembers=remembers,
    )
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text(_DEVICES)
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(128))


def _keep(folder: Path) -> None:
    """Keep a cluster until nobody needs it any more: its input ends then."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    daemons = []
    try:
        daemons.append(_munge(folder))
        _await(folder, daemons, (folder / "munge.sock").exists)
        daemons.append(_daemon(folder, "slurmctld", "slurmctld", "-D", "-i"))
        daemons += [_daemon(folder, name, "slurmd", "-D", "-N", name) for name in NODES]
        _await(folder, daemons, lambda: _idle(folder) == len(NODES))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them any more
        os.write(1, _READY)
        os.read(0, 1)
    except RuntimeError as error:
        os.write(1, str(error).encode())
    finally:
        _kill_all()
        shutil.rmtree(folder, ignore_errors=True)


def _munge(folder: Path) -> "subprocess.Popen[bytes]":
    names = {"socket": "sock", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
    words = [f"--{option}={folder}/munge.{name}" for option, name in names.items()]
    return _daemon(folder, "munged", "munged", "--foreground", "--force", *words)


def _daemon(folder: Path, log: str, program: str, *words: str) -> "subprocess.Popen[bytes]":
    with (folder / f"log/{log}.log").open("ab") as output:
        return subprocess.Popen(
            [_program(program) or program, *words],
            env={**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder,
            start_new_session=True,
        )  # fmt: skip


def _await(
    folder: Path, daemons: "list[subprocess.Popen[bytes]]", happened: Callable[[], bool]
) -> None:
    """Wait for something. Raises RuntimeError: a daemon ended, or it takes too long."""
    deadline = time.monotonic() + _PATIENCE
    while not happened():
        ended = [daemon for daemon in daemons if daemon.poll() is not None]
        if ended or time.monotonic() > deadline:
            logs = sorted((folder / "log").iterdir())
            raise RuntimeError("\n".join(f"{log.name}:\n{_tail(log)}" for log in logs))
        time.sleep(_PAUSE)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1000:]


def _idle(folder: Path) -> int:
    """How many nodes take jobs."""
    environ = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
    words = ["sinfo", "--noheader", "--Node", "--partition=main", "--states=idle", "--format=%N"]
    answer = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    return len(answer.stdout.split())


def _kill_all() -> None:
    """Kill all descendants until there are none."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that none stays as a zombie
    deadline = time.monotonic() + _LEAVING
    while (pids := related(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its end comes by its input alone
    _keep(Path(sys.argv[1]))

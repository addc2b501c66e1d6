"""The warm parent of a run: imports installed modules once, and forks the ranks from there.

It forks when the supervisor asks. No code of the run itself is imported here.

    supervisor ─▶ warm parent ─▶ forker (forks the ranks, says who they are, ends)
              ◀──────────────────── rank 0 ... rank N

The forker's end makes the ranks children of the supervisor, which adopts orphans: so pidfds, exit
statuses and verdicts are those of ranks that were started cold. A rank waits until the supervisor
says `go`; if it or the launch is gone by then, the rank leaves without a trace.

Each rank gets its own session, logs, `os.environ` and C environment, seeds of `random`, NumPy and
torch, key of multiprocessing, and fault log. Each log repeats the output of the imports.
`/proc/self/environ` and the string hash seed stay those of the parent. Secrets reach a rank in a
memory file that only ranks read. The parent's environment has neither their names nor their values.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import warnings

from sgpu_decl.rank.fork_safety import cuda_is_bad, open_descriptors, unsafe
from sgpu_decl.rank.process_exit import prepare_exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

_PR_SET_PDEATHSIG = 1
_DESCRIPTORS = 4
_OURS = "sgpu_decl.rank"


class _MissingModules:
    """The last finder: it notes the names of modules that no other finder has."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if path is None:
            self.names.add(name)


class Imports:
    """What this process imports ahead.

    Args:
        early: the modules that a rank has loaded before it can see the user's code.
        logs: the folder of this process's own logs.

    Attributes:
        names: the top-level modules that were imported or looked for in vain.
        output: what the imports printed, for stdout and stderr.
    """

    def __init__(self, early: "Collection[str]", logs: str) -> None:
        self._early = early
        self._logs = logs
        self.names: frozenset[str] = frozenset()
        self.output = ("", "")

    def carry_out(self, spec: "Mapping[str, Any]") -> None:
        """Import what the spec names.

        Raises:
            BaseException: whatever an import raises.
        """
        prepare_exit()
        missing = _MissingModules()
        sys.meta_path.append(missing)
        for name, names in spec["warm"]["imports"]:
            __import__(name, {}, {}, names)
        sys.meta_path.remove(missing)
        imports = {name for name in sys.modules if not name.startswith(_OURS)} - set(self._early)
        self.names = frozenset({name.partition(".")[0] for name in imports} | missing.names)
        texts = []
        for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
            stream.flush()
            with open(f"{self._logs}/{name}.log", "rb") as file:
                texts.append(file.read().decode("utf-8", "replace"))
        self.output = texts[0], texts[1]


class ForkServer:
    """Talks to the supervisor by the socket `channel`."""

    def __init__(self, channel: int, spec: "Mapping[str, Any]") -> None:
        self._channel = socket.socket(fileno=channel)
        self._supervisor = os.getppid()
        self._spec = spec
        self._descriptors = open_descriptors()
        modules = _modules_of_the_run(spec)
        for name, _ in spec["warm"]["imports"]:
            self._refuse({name.partition(".")[0]} & modules)

    def serve(self, imports: "Imports") -> tuple[str, str]:
        """Fork a group of ranks for every request.

        Returns in the ranks alone: the output of the imports, which each rank's log repeats.
        """
        self._refuse(imports.names & _modules_of_the_run(self._spec))
        self._tell(ready=True)
        while True:
            message, descriptors, _, _ = socket.recv_fds(
                self._channel, 4096, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
            if not message:
                os._exit(0)  # the supervisor is done with us
            reason = unsafe(self._descriptors, descriptors)
            if reason is not None:
                self._tell(unsafe=reason)
            else:
                rank = self._fork_group(json.loads(message)["ranks"])
                if rank is not None:
                    self._become(rank, *descriptors)
                    return imports.output
            for descriptor in descriptors:
                os.close(descriptor)

    def _refuse(self, names: "Collection[str]") -> None:
        if names:
            self._tell(own=min(names))
            os._exit(0)

    def _tell(self, **message: object) -> None:
        self._channel.send(json.dumps(message).encode())

    def _fork_group(self, ranks: int) -> int | None:
        """Return the rank in each rank; None in the warm parent, once it has sent their pids."""
        reader, writer = os.pipe()
        gc.freeze()  # so that collections in ranks leave these pages shared
        try:
            forker = _fork()
        except OSError as error:
            os.close(reader)
            os.close(writer)
            self._tell(errno=error.errno)
            return None
        if forker:
            os.close(writer)
            _, status = os.waitpid(forker, 0)
            report = os.read(reader, 1 << 20)
            os.close(reader)
            self._channel.send(report or json.dumps({"forker": status}).encode())
            return None
        self._channel.close()
        os.close(reader)
        answer: dict[str, object] = {"pids": (pids := [])}
        if cuda_is_bad():
            answer = {"unsafe": "CUDA was used by an import, and does not survive a fork"}
            ranks = 0
        for rank in range(ranks):
            try:
                pid = _fork()
            except OSError as error:
                answer = {"errno": error.errno}
                break
            if pid == 0:
                os.close(writer)
                return rank
            pids.append(pid)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)

    def _become(self, rank: int, environments: int, go: int, ready: int, failures: int) -> None:
        """Make this process the rank that the supervisor would have started by itself."""
        if os.read(go, 1) != b"g":
            os._exit(0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != self._supervisor:
            os._exit(128 + signal.SIGKILL)
        try:
            os.setsid()
            size = os.fstat(environments).st_size
            environment = json.loads(os.pread(environments, size, 0))[rank]
            folder = os.path.dirname(environment["TORCHELASTIC_ERROR_FILE"])
            for descriptor, name in ((1, "stdout"), (2, "stderr")):
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                log = os.open(f"{folder}/{name}.log", flags, 0o600)
                os.dup2(log, descriptor)
                os.close(log)
        except OSError as error:
            os.write(failures, b"%d %d\n" % (rank, error.errno or 5))
            os._exit(127)
        os.environ.clear()
        os.environ.update(environment, SGPU_READY_FD=str(ready))
        for descriptor in (environments, go, failures):
            os.close(descriptor)
        _renew_randomness()


def _fork() -> int:
    """Fork without the warning of native threads, which `unsafe` has checked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _renew_randomness() -> None:
    """Give this rank seeds of its own, as an import of its own would have.

    `random` does it by itself.
    """
    loaded: Mapping[str, Any] = sys.modules
    if "numpy.random" in loaded:
        loaded["numpy.random"].seed()
    if "torch" in loaded:
        loaded["torch"].default_generator.seed()
    if "multiprocessing.process" in loaded:
        loaded["multiprocessing.process"].current_process().authkey = os.urandom(32)


def _modules_of_the_run(spec: "Mapping[str, Any]") -> set[str]:
    """Return the names of modules that the code of this run has at the top of its import path."""
    call = spec["entry"]["call"]
    folders = {spec["code_dir"]}
    if call is not None:
        folders.update(filter(os.path.isdir, call["path"]))
    path = spec["entry"]["path"]
    if path:
        folders.add(os.path.dirname(os.path.join(spec["code_dir"], path)))
    modules = set()
    for folder in folders:
        for name in os.listdir(folder):
            base, dot, _ = name.partition(".")
            package = os.path.join(folder, name, "__init__.py")
            if name.endswith((".py", ".so", ".pyc")) if dot else os.path.exists(package):
                modules.add(base)
    return modules

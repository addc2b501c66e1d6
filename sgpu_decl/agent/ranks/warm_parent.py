"""The warm parent of an attempt: a process that imported once, and forks the ranks on request.

    absent ─▶ importing ─▶ ready ─▶ forking ─▶ ready ...        `retry` forks again
       └──────────┴──────────┴─────────┴────▶ gone              the ranks are started cold

Until ranks are released, they run no code of the user. If the parent dies before, they end by
themselves and the group is started cold. Once released, they are our children like any others
(their parent has ended, and we adopt orphans), and the next restart is cold. The parent dies with
the supervisor.

In a warm server (`launch_servers.serve`), which has imported already, the parent is a fork of the
supervisor: all frames of the agent are left by `BecomeParent`.

Under `auto`, a failed import makes the ranks start cold, and they report it with the user's line in
the traceback: `auto` never changes a verdict. A module that `launch.warm` names must be importable:
its exception, or the stack of its crash, is the first cause.
"""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socketpair

from sgpu_decl.agent.attempt.attempt_files import encode, parse_object, say
from sgpu_decl.agent.attempt.error_file import read_error, read_stack
from sgpu_decl.agent.ranks.rank_start import LaunchError, argv_of, exec_error, spawn
from sgpu_decl.agent.system.fast_stdlib import signal, signal_name
from sgpu_decl.agent.system.kernel_features import CHILD_SUBREAPER, available
from sgpu_decl.agent.system.processes import until_one_ends
from sgpu_decl.agent.system.secrets import memory_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.system.loop import Loop

_FOLDER = "warm"
_OWN_FAULT = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS}
)
_PATIENCE = 1.0  # seconds for the end of a process that was killed
_SHORT = 0.5  # seconds of importing before the status shows it
_LEAVING = 5.0  # seconds for the end of a process that closed its channel
_forks_parents = False


class BecomeParent(BaseException):
    """Raised in a fork of a supervisor, which is the warm parent of the attempt in the folder
    `attempt` from now on: with `channel` to the supervisor, `logs` and `environment`."""

    def __init__(
        self, attempt: str, channel: int, logs: str, environment: Mapping[str, str]
    ) -> None:
        super().__init__(attempt)
        self.attempt = attempt
        self.channel = channel
        self.logs = logs
        self.environment = environment


def fork_parents() -> None:
    """Fork warm parents from now on: this process has imported what they import."""
    global _forks_parents
    _forks_parents = True


class WarmParent:
    """Calls `on_forked(pids)`, `on_refused(error)`, or `on_cold()` if there is no warm start.

    Only a module that the user names and that cannot be imported is refused. A cold start meets all
    other errors too, and reports them.
    """

    on_forked: Callable[[list[int]], None]
    on_cold: Callable[[], None]
    on_refused: Callable[[LaunchError], None]
    _request: Callable[[], tuple[list[dict[str, str]], int, int]]

    def __init__(
        self, spec: Mapping[str, Any], records: str, loop: Loop, record: AttemptRecord
    ) -> None:
        self._spec = spec
        self._folder = os.path.join(records, _FOLDER)
        self._loop = loop
        self._record = record
        self._warm: Mapping[str, Any] = spec["warm"] or {}
        self._state = "absent" if self._warm else "gone"
        self._channel: Any = None
        self._go = -1
        self._announced: str | None = None
        self.pid = -1

    @property
    def usable(self) -> bool:
        return self._state != "gone"

    def fork(
        self,
        environment: Mapping[str, str],
        request: Callable[[], tuple[list[dict[str, str]], int, int]],
    ) -> None:
        """Fork a rank for each environment of `request()`, called once the parent is ready.

        Args:
            environment: the variables that all ranks share, without secrets.
            request: returns the environments and two descriptors, which are closed here: ranks
                write to the first when they are up, and `rank errno` to the second if they cannot
                be set up.
        """
        self._request = request
        if self._warm["refused"] is not None:
            self._turn_cold(self._warm["refused"])
        elif not available(CHILD_SUBREAPER):
            self._turn_cold("this kernel lets no process adopt the ranks that another has forked")
        elif self._state == "absent":
            self._start(environment)
        elif self._channel is None:
            self._turn_cold("the warm parent hung up")
        else:
            self._ask()

    def release(self, ranks: int) -> None:
        """Let the forked ranks go on."""
        os.write(self._go, b"g" * ranks)
        self._drop_go()
        self._state = "ready"

    def close(self) -> None:
        """Kill the parent, and end the ranks that were not released."""
        self._leave()
        self._kill()

    def finish(self) -> None:
        """Close it, and wait until its memory is freed."""
        self.close()
        if self.pid < 0:
            return
        try:
            until_one_ends([self.pid], _PATIENCE)
        except OSError:
            return  # out of descriptors: it ends all the same

    def _kill(self) -> None:
        if self.pid > 0:
            os.kill(self.pid, signal.SIGKILL)

    def _start(self, environment: Mapping[str, str]) -> None:
        folder = self._folder
        argv = argv_of(self._spec)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._channel, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
            self._loop.read(self._channel.fileno(), self._hear)
        except OSError as error:
            self._turn_cold(f"no warm parent could be started: {error.strerror}")
            return

        def become() -> NoReturn:
            raise BecomeParent(self._spec["run_dir"], theirs.detach(), folder, environment)

        try:
            self.pid, failure = spawn(
                argv,
                {**environment, "SGPU_WARM_FD": str(theirs.fileno()), "SGPU_WARM_DIR": folder},
                cwd=self._spec["code_dir"],
                logs=(os.path.join(folder, "stdout.log"), os.path.join(folder, "stderr.log")),
                reset=self._loop.close,
                keep=theirs.fileno(),
                instead=become if _forks_parents else None,
            )
        except LaunchError as error:
            self._turn_cold(str(error))
            return
        finally:
            theirs.close()
        self._state = "importing"
        self._record.event("warm_started", pid=self.pid)
        self._loop.after("warm_imports", _SHORT, self._announce)
        self._loop.watch(self.pid, self._ended)
        problem = exec_error(failure, argv[0], self._spec["code_dir"])
        if problem is not None:
            self._turn_cold(str(problem))

    def _announce(self) -> None:
        names = ", ".join(name for name, _ in self._warm["imports"])
        self._announced = f"its imports ({names})"
        self._record.update(waiting_for=self._announced)

    def _end_imports(self) -> None:
        self._loop.cancel("warm_imports")
        if self._announced and self._record.snapshot["waiting_for"] == self._announced:
            self._record.update(waiting_for=None)

    def _ask(self) -> None:
        """Send the request. Environments, with secrets, are in memory that only ranks read."""
        descriptors: list[int] = []
        try:
            environments, *descriptors = self._request()
            descriptors.insert(0, memory_file(encode(environments)))
            wait, self._go = os.pipe2(os.O_CLOEXEC)
            descriptors.insert(1, wait)
            rights = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
            message = encode({"ranks": len(environments)})
            self._state = "forking"
            self._loop.hold_orphans()
            self._channel.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, rights)])
        except OSError as error:
            self._turn_cold(f"the warm parent could not be asked: {error.strerror}")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _hear(self) -> None:
        try:
            message = parse_object(self._channel.recv(1 << 20))
        except ConnectionResetError:
            message = None
        if message is None:
            self._hang_up()  # its end, which comes next, says more
            self._loop.after("warm", _LEAVING, self._kill)
        elif "ready" in message:
            self._state = "ready"
            self._end_imports()
            self._record.event("warm_ready")
            self._ask()
        elif "pids" in message:
            self.on_forked(message["pids"])
            self._loop.release_orphans()
        elif "own" in message:
            name = message["own"]
            if self._warm["required"]:
                self._leave()
                summary = (
                    f"`launch.warm` cannot import `{name}` ahead: the code of this run has a module"
                    " of that name"
                )
                self.on_refused(LaunchError("launch_failed_user", summary))
            else:
                self._turn_cold(f"the code of this run has a module `{name}` of its own")
        elif "errno" in message:
            self._turn_cold(f"the warm parent cannot fork: {os.strerror(message['errno'])}")
        elif "unsafe" in message:
            self._turn_cold(message["unsafe"])
        else:
            self._turn_cold("the fork of the ranks was cut short")

    def _ended(self, status: int, _now: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        importing, gone = self._state == "importing", self._state == "gone"
        self.pid = -1
        self._loop.cancel("warm")
        if gone:
            return
        how = f"was killed with {signal_name(-code)}" if code < 0 else f"exited with {code}"
        if self._state == "ready":
            self._leave()
            self._say(f"the warm parent {how}", event="warm_ended")
        elif importing and self._warm["required"] and (code >= 0 or -code in _OWN_FAULT):
            self._leave()
            self.on_refused(self._import_error(code, how))
        else:
            self._turn_cold(f"the warm parent {how}")

    def _import_error(self, code: int, how: str) -> LaunchError:
        """Return the failure of an import that the user asked for, with its traceback."""
        folder = self._folder
        error = read_error(folder)
        if error is not None:
            return LaunchError(error["class"], error["summary"], error["traceback"])
        names = ", ".join(f"`{name}`" for name, _ in self._warm["imports"])
        failure = "signal_self" if code < 0 else "exit_code"
        summary = f"an import of {names}, asked for by `launch.warm`, {how}"
        return LaunchError(failure, summary, read_stack(folder))

    def _turn_cold(self, reason: str) -> None:
        self.close()
        self._say(reason)
        self.on_cold()

    def _say(self, reason: str, event: str = "cold_start") -> None:
        self._record.event(event, reason=reason)
        say(f"{event.replace('_', ' ')}: {reason}")

    def _leave(self) -> None:
        """Give the parent up; ranks that still wait for `go` end."""
        self._state = "gone"
        self._end_imports()
        self._drop_go()
        self._loop.release_orphans()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._loop.forget(self._channel.detach())
            self._channel = None

    def _drop_go(self) -> None:
        if self._go >= 0:
            os.close(self._go)
            self._go = -1

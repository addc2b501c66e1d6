"""The monitor from the supervisor's side: a process that is forked once ranks have run a while."""

from __future__ import annotations

import _socket
import os

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.monitor_files import LONGEST, monitored
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from sgpu_decl.agent.attempt.attempt_record import AttemptRecord
    from sgpu_decl.agent.several_nodes.node_group import Node
    from sgpu_decl.agent.system.loop import Loop

_LATE = 2.0  # seconds: shorter runs are not measured
_PATIENCE = 2.0  # seconds for the last look; a driver that hangs may hold it for ever
_WAITING = 64  # connections that the kernel keeps

# Programs that report their progress look for these: see `progress_server`.
_URL = "KUBEFLOW_TRAINER_SERVER_URL"
_TOKEN_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105  the name of a variable
_TOKEN_FILE = "progress.token"  # noqa: S105  the name of a file


class MonitorProcess:
    """`folder` holds the records of the `node`."""

    def __init__(
        self, spec: Mapping[str, Any], folder: str, node: Node, loop: Loop, record: AttemptRecord
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._node = node
        self._loop = loop
        self._record = record
        self._socket: _socket.socket | None = None
        self._token = ""
        self._hearing = self._reading = -1
        self._pid = -1
        self._link: _socket.socket | None = None
        self.on_message: Callable[[dict[str, Any]], None] = lambda _: None
        self._then: Callable[[], None] | None = None

    def variables(self) -> dict[str, str]:
        """The variables by which ranks find where to report their progress: none if they have such
        a place already, or if there is no port."""
        if _URL in os.environ or _URL in self._spec["env"]:
            return {}
        if self._socket is None:
            try:
                self._socket = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
                self._socket.bind(("127.0.0.1", 0))
                self._socket.listen(_WAITING)
                self._token = os.urandom(16).hex()
                attempt_files.write_atomic(self._folder, _TOKEN_FILE, self._token.encode())
            except OSError as error:
                self._close_socket()
                self._record.event("progress_not_served", reason=str(error))
                return {}
        return {
            _URL: f"http://127.0.0.1:{self._socket.getsockname()[1]}/progress",
            _TOKEN_VARIABLE: os.path.join(self._folder, _TOKEN_FILE),
        }

    def begin(self, restart: int, living: Mapping[int, int], devices: Sequence[str]) -> None:
        """Measure these ranks soon: at once if one of them reports its progress."""
        self._stop_waiting()
        self._what = (restart, dict(living), tuple(devices))
        self._loop.after("monitor", _LATE, self._start)
        if self._socket is not None:
            self._hearing = os.dup(self._socket.fileno())
            self._loop.read(self._hearing, self._start)

    def _start(self) -> None:
        self._stop_waiting()
        if self._pid > 0:
            return
        parent = os.getpid()
        try:
            self._link, other = _socket_pair()
        except OSError as error:
            self._record.event("not_measured", reason=str(error))
            return
        try:
            self._pid = os.fork()
        except OSError as error:
            self._close_link()
            self._record.event("not_measured", reason=str(error))
        else:
            if self._pid == 0:
                self._be_monitor(parent, other.detach())
            self._loop.watch(self._pid, self._ended)
            self._reading = os.dup(self._link.fileno())
            self._loop.read(self._reading, self._read)
        finally:
            other.close()

    def _read(self) -> None:
        """Hear what the monitor says."""
        try:
            data = self._link.recv(LONGEST) if self._link is not None else b""
        except OSError:
            return
        if not data:
            self._close_link()
            return
        message = attempt_files.parse_object(data)
        if message is not None:
            self.on_message(message)

    def send(self, message: dict[str, Any]) -> None:
        """Tell the monitor something; it is dropped where nobody listens."""
        data = attempt_files.encode(message)
        if self._link is not None and len(data) <= LONGEST:
            try:
                self._link.send(data)
            except OSError:
                return

    def _be_monitor(self, parent: int, supervisor: int) -> None:
        try:
            self._loop.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            processes.die_with_parent(parent)
            listening = -1 if self._socket is None else self._socket.fileno()
            _close_all_but({0, 1, 2, supervisor, listening})
            import socket

            from sgpu_decl.agent.monitor.monitor import Monitor

            restart, living, devices = self._what
            monitor = Monitor(
                self._spec, self._folder, node=self._node.number,
                restart=restart, living=living, devices=devices, listening=listening,
                token=self._token, supervisor=socket.socket(fileno=supervisor),
            )  # fmt: skip
            monitor.run()
        except Exception as error:  # noqa: BLE001  the run goes on without it
            attempt_files.say(f"this run is measured no more: {type(error).__name__}: {error}")
        finally:
            os._exit(0)

    @property
    def pids(self) -> set[int]:
        return {self._pid} if self._pid > 0 else set()

    def last_seen(self, others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What the record of an attempt that ends has of its monitors. `others` is the usage of the
        other nodes."""
        seen = monitored(self._folder)
        seen.pop("idle", None)
        seen.pop("rank_wait", None)
        if others:
            from sgpu_decl.agent.monitor.usage_sums import side_by_side

            own = [seen["usage"]] if "usage" in seen else []
            seen["usage"] = side_by_side([*own, *others])
        return seen

    def finish(self, then: Callable[[], None]) -> None:
        """Call `then` once the monitor has looked for the last time; at once if there is none."""
        self._stop_waiting()
        if self._pid < 0:
            then()
            return
        self._then = then
        self._close_link()
        self._loop.after("monitor", _PATIENCE, self._give_up)

    def _give_up(self) -> None:
        processes.send_signal(self._pid, processes.start_time(self._pid), signal.SIGKILL)
        self._go_on()

    def _ended(self, _status: int, _now: int) -> None:
        self._pid = -1
        self._close_link()
        if self._then is None:
            self._close_socket()  # nobody would answer there
        self._go_on()

    def _go_on(self) -> None:
        self._loop.cancel("monitor")
        then, self._then = self._then, None
        if then is not None:
            then()

    def _stop_waiting(self) -> None:
        self._loop.cancel("monitor")
        if self._hearing >= 0:
            self._loop.forget(self._hearing)
        self._hearing = -1

    def _close_link(self) -> None:
        if self._reading >= 0:
            self._loop.forget(self._reading)
        if self._link is not None:
            self._link.close()
        self._link, self._reading = None, -1

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def _socket_pair() -> tuple[_socket.socket, _socket.socket]:
    """Two ends that keep messages apart."""
    one, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    for each in (one, other):
        each.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, 2 * LONGEST)
    one.setblocking(False)  # noqa: FBT003
    return one, other


def _close_all_but(kept: Collection[int]) -> None:
    """Close what was inherited: locks among it, whose holder is the supervisor alone."""
    first = 0
    for descriptor in (*sorted(one for one in kept if one >= 0), 65_536):
        if first < descriptor:  # an empty range from 0 would be everything
            os.closerange(first, descriptor)
        first = descriptor + 1

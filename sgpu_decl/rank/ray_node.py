"""One node of a run's Ray cluster: the parent of all of Ray's processes on this machine.

    agent ─▶ this process ─▶ gcs_server (on the first node), raylet ─▶ workers

`_air.py` runs this in place of a rank if the agent asks for it. It imports the code of `ray start`
at once, and runs it here when the agent sends the plan of the node. A command `ray start` would
import it only then.

    to the agent     imported {ray, python} · ready · complete · failed {summary} · lost {process}
    from the agent   start {arguments, address, nodes, folders, dashboard} · end

Ray's processes end with SIGKILL. `ray stop` ends every Ray process of the machine by its name, and
a raylet drains for up to 30 s after SIGTERM. Orphans stay below this process, so it finds all of
them. If the agent is gone, its end of the channel is closed: that counts as `end`.
"""

import faulthandler
import json
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

# What the module of `ray start` imports for the other commands of Ray. A plain `ray` comes without
# their dependencies, so it does without them; where pandas and fastapi are installed, they would
# triple the time of the import.
OTHER_COMMANDS = (
    "ray.dashboard.modules.job.cli",
    "ray.serve.scripts",
    "ray.util.state.state_cli",
)
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
_WATCHED = ("gcs_server", "raylet")  # without one of these, the node is lost
_ALIVE = 0  # GcsNodeInfo.ALIVE of Ray's gcs.proto
_LOOK = 0.02  # seconds between two looks at Ray's table of nodes
_START_LOOK = 0.1  # seconds between two looks at Ray's processes while they start
_ANSWER = 5  # seconds for an answer of the GCS
_LONGEST = 1 << 20  # bytes of a message
_LINES = 20  # of an exception


def be_ray_node(descriptor: int) -> "NoReturn":
    """Be a Ray node for the agent at the other end of this socket, until the agent ends it."""
    _Node(socket.socket(fileno=descriptor)).run()


class _Node:
    def __init__(self, channel: socket.socket) -> None:
        channel.set_inheritable(False)
        self._channel = channel
        self._plans: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._watched: dict[int, str] = {}
        self._lock = threading.Lock()  # over children that have ended, and `_watched`
        # Removed if the agent dies: nobody else could. The token of the cluster lies in the first.
        self._folders = [os.path.dirname(os.environ["RAY_AUTH_TOKEN_PATH"])]

    def run(self) -> "NoReturn":
        # A handler, because Ray's processes and their children would inherit an ignored signal.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        _adopt_orphans()
        faulthandler.enable(2, all_threads=False)  # the log shows what crashed
        threading.Thread(target=self._listen, daemon=True).start()
        sys.modules.update(dict.fromkeys(OTHER_COMMANDS))  # type: ignore[arg-type]  # None: no import
        try:
            from ray import __version__
            from ray.scripts.scripts import cli
        except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
            self._send(failed={"summary": "cannot import Ray", "user": True, **_words(error)})
            _rest()
        self._send(imported={"ray": __version__, "python": sys.version.partition(" ")[0]})
        plan = self._plans.get()
        self._folders += plan["folders"]
        os.environ["PYTHONPATH"] = plan["python_path"]
        if plan["dashboard"]:
            self._check_dashboard()
        if plan["address"] is not None:
            plan["arguments"].append(f"--address={plan['address']}")
        self._start(cli, plan["arguments"])
        self._watch()
        if plan["address"] is None:
            self._await_nodes(plan)
        else:
            self._send(ready={})
        while True:
            self._wait()

    def _check_dashboard(self) -> None:
        """Import what the dashboard needs, as `ray start` does, whose error names no package."""
        try:
            import ray.dashboard.optional_deps  # noqa: F401
        except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
            words = _words(error)
            words["reason"] += "; install `ray[default]`"
            self._send(failed={"summary": "Ray has no dashboard", "user": True, **words})
            _rest()

    def _start(self, cli: "Any", arguments: "Sequence[str]") -> None:
        started = threading.Event()
        threading.Thread(target=self._watch_start, args=(started,), daemon=True).start()
        try:
            cli.main(["start", *arguments], standalone_mode=False)
        except BaseException as error:  # noqa: BLE001 - Ray exits here, and raises what it likes
            sys.stderr.flush()
            if not self._report_dead():
                self._send(failed={"summary": "`ray start` failed", "user": False, **_words(error)})
            _rest()
        finally:
            started.set()
        sys.stdout.flush()

    def _watch_start(self, started: threading.Event) -> None:
        """Report a process that ends while `ray start` waits for it: `ray start` itself does not
        look, and waits for its whole limit."""
        while not started.wait(_START_LOOK):
            if self._report_dead():
                return

    def _report_dead(self) -> bool:
        """Report the first process of those to be watched that has ended, and say whether there is
        one. It is not reaped, because `ray start` may ask for its exit code."""
        for pid in _children(os.getpid()):
            name = _text(f"/proc/{pid}/comm").strip()
            if name not in _WATCHED:
                continue
            try:
                ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                continue  # `ray start` has reaped it, and says so
            if ended is not None:
                by_itself = ended.si_code == os.CLD_EXITED
                self._report_lost(name, ended.si_status if by_itself else -ended.si_status)
                return True
        return False

    def _watch(self) -> None:
        """Note which children are to be watched; all of them have been started by now."""
        for pid in _children(os.getpid()):
            name = _text(f"/proc/{pid}/comm").strip()
            if name in _WATCHED:
                self._watched[pid] = name

    def _await_nodes(self, plan: "Mapping[str, Any]") -> None:
        """Say when the head is ready, and when all nodes are there with their resources. Ray's own
        tables say so. A connection as a driver would stand in the way of the user's `ray.init`."""
        from ray._raylet import GcsClient  # type: ignore[attr-defined]  # an extension module
        from ray.exceptions import RayError

        client = GcsClient(address=plan["head"])
        ready = False
        while True:
            self._reap()
            try:
                nodes = client.get_all_node_info(timeout=_ANSWER).values()
                alive = {node.node_id for node in nodes if node.state == _ALIVE}
                usable = _nodes_with_resources(client) if len(alive) >= plan["nodes"] else set()
            except RayError:
                continue  # it has died, or it is busy: the agent has a limit for the start
            if alive and not ready:
                self._send(ready={})
                ready = True
            if len(alive & usable) >= plan["nodes"]:
                self._send(complete={})
                return
            time.sleep(_LOOK)

    def _wait(self) -> None:
        """Wait until a child ends. Orphans that this process adopted are reaped, too."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            _rest()
        self._reap()

    def _reap(self) -> None:
        """Reap the children that have ended; report the watched ones among them."""
        with self._lock:
            try:
                while (child := os.waitpid(-1, os.WNOHANG))[0]:
                    self._lost(*child)
            except ChildProcessError:
                return

    def _lost(self, pid: int, status: int) -> None:
        name = self._watched.pop(pid, None)
        if name is not None:
            self._report_lost(name, os.waitstatus_to_exitcode(status))

    def _report_lost(self, name: str, code: int) -> None:
        how = f"exited with {code}" if code >= 0 else f"was killed with {_signal_name(-code)}"
        self._send(lost={"process": name, "how": how, "time_ns": time.monotonic_ns()})

    def _listen(self) -> None:
        """Read what the agent sends, in a thread of its own: Ray's start takes seconds."""
        while True:
            try:
                data = self._channel.recv(_LONGEST)
            except OSError:
                data = b""
            message = json.loads(data) if data else {}
            if "start" in message:
                self._plans.put(message["start"])
                continue
            self._reap()
            with self._lock:
                self._watched.clear()  # they are not lost: we kill them
            _kill_all()
            if not data:  # the agent is gone
                for folder in self._folders:
                    shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)

    def _send(self, **message: object) -> None:
        try:
            self._channel.send(json.dumps(message).encode())
        except OSError:
            return  # the agent is gone: the other thread ends everything


def _nodes_with_resources(client: "Any") -> set[bytes]:
    """Return the nodes whose resources the head knows: what `ray.cluster_resources()` counts."""
    usage = client.get_all_resource_usage(timeout=_ANSWER)
    return {one.node_id for one in usage.resource_usage_data.batch if one.resources_total}


def _words(error: BaseException) -> dict[str, str]:
    """Return what an exception says: its first line, and the last of the others."""
    if isinstance(error, SystemExit):
        return {"reason": f"it exited with {error.code}", "details": ""}
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return {"reason": lines[0], "details": "\n".join(lines[1:][-_LINES:])}


def _rest() -> "NoReturn":
    """Leave the rest to the other thread."""
    while True:
        signal.pause()


def _adopt_orphans() -> None:
    """Ask for the orphans among our descendants; without that, the agent gets them."""
    import ctypes

    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _kill_all() -> None:
    """Kill all descendants, round by round: one that was just starting another is found again.
    Those of other users (setuid programs) stay."""
    while sum(_kill(pid) for pid in _descendants(os.getpid())):
        time.sleep(0.005)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _descendants(root: int) -> list[int]:
    found: list[int] = []
    pending = [root]
    while pending:
        children = _children(pending.pop())
        found += children
        pending += children
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    texts = (_text(f"/proc/{pid}/task/{thread}/children") for thread in threads)
    return [int(word) for text in texts for word in text.split()]


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"

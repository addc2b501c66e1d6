"""Warm servers: later calls fork from what was imported once, and nothing outlives the caller.

The caller is a process of its own, which launches the attempts that it is told to.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sgpu_decl.agent.system import processes
from sgpu_decl.rendering.spec import Entry, Warm
from tests.support import until

Make = Callable[..., Any]
SECRET = "s3cr-et-value"
CALLER = """
import json, os, signal, sys, time
from pathlib import Path
from sgpu_decl.agent.launching import warm_calls
from sgpu_decl.agent.launching.agent_launch import launch

for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):  # as under `nohup`, or by `&`
    signal.signal(ignored, signal.SIG_IGN)
for line in sys.stdin:
    order = json.loads(line)
    if order["folder"] is None:
        while not all(server.imported() for server in warm_calls._servers.values()):
            time.sleep(0.005)
        print("imported", flush=True)
        continue
    os.environ.update(order["variables"])
    spec = json.loads(Path(order["folder"], "spec.json").read_bytes())
    server = warm_calls.warm_server(spec, order["secrets"], order["idle"])
    launch(Path(order["folder"]), secrets=order["secrets"], server=server)
    print("warm" if server else "cold", flush=True)
"""
AHEAD = "import os\npid = os.getpid()\ntext = {text!r}\nseen = []\n"
PORTRAIT = """
import os, signal, sys, threading, ahead

def main():
    ahead.seen.append(1)
    places = ["/proc/self/fd/" + number for number in os.listdir("/proc/self/fd")]
    links = [os.readlink(place) for place in places if os.path.exists(place)]
    return {
        "imported by": ahead.pid,
        "text": ahead.text,
        "seen": len(ahead.seen),
        "secret": os.environ.get("TOKEN"),
        "cookie": os.environ["SGPU_COOKIE"].encode() in open("/proc/self/environ", "rb").read(),
        "attempt": [os.environ["SGPU_ATTEMPT"], os.environ["SGPU_RUN_DIR"], sys.argv[0],
                    sys.modules["__main__"].__file__],
        "open": sorted(os.path.basename(link) for link in links if "/" in link),
        "handlers": [str(signal.getsignal(n)).partition(" at ")[0] for n in range(1, 32)],
        "agent": [name for name in sys.modules if name.startswith("sgpu_decl.agent")],
        "leads": os.getsid(0) == os.getpid(),
    }
"""


class Calls:
    """A caller, and the attempts that it launches."""

    def __init__(self, make: Make, folder: Path) -> None:
        self.idle = 60.0
        self._make = make
        self._installed, self._code = folder / "installed", folder / "code"
        self._installed.mkdir()
        self._code.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-c", CALLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.install("one")

    def install(self, text: str, more: str = "") -> None:
        """Install the module that is imported ahead."""
        (self._installed / "ahead.py").write_text(AHEAD.format(text=text) + more)

    def _order(self, folder: str | None, **order: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"folder": folder, **order}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().decode().strip()
        assert answer, "the caller has ended"
        return answer

    def launch(self, source: str = PORTRAIT, **variables: str) -> tuple[Any, str]:
        """Launch an attempt; say whether it is `warm` or `cold`."""
        (self._code / "main.py").write_text(source)
        attempt = self._make(
            entry=Entry(kind="file_function", path="main.py", function="main"),
            warm=Warm(imports=(("ahead", ()),)),
            code_dir=str(self._code),
            env={"PYTHONPATH": str(self._installed)},
            secrets={"TOKEN": "env:TOKEN"},
        )
        start = self._order(
            str(attempt.folder), secrets={"TOKEN": SECRET}, idle=self.idle, variables=variables
        )
        return attempt, start

    def values(self, **variables: str) -> tuple[list[dict[str, Any]], str]:
        attempt, start = self.launch(**variables)
        found = attempt.values()
        assert not attempt.events("cold_start")
        attempt.check()
        attempt.until_gone()
        return found, start

    def first(self) -> list[dict[str, Any]]:
        """Make a first call, and wait until its server is up."""
        found, start = self.values()
        assert start == "cold"
        assert self._order(None) == "imported"
        return found

    def servers(self) -> list[int]:
        """The processes that the caller keeps warm."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            kept = processes.variables(int(name)).get("SGPU_WARM_KEPT")
            if kept and json.loads(kept)["pid"] == self._process.pid:
                found.append(int(name))
        # Guardians, warm parents and ranks are forks of them in sessions of their own.
        return [pid for pid in found if _session(pid) not in found]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return pid  # it has ended


@pytest.fixture
def calls(make_attempt: Make, tmp_path: Path) -> Iterator[Calls]:
    made = Calls(make_attempt, tmp_path)
    yield made
    made.kill()
    until(lambda: not made.servers())


def test_later_calls_fork_from_what_was_imported_once(calls: Calls) -> None:
    cold = calls.first()
    assert len({rank["imported by"] for rank in cold}) == 1
    (server,) = calls.servers()
    portraits = [calls.values() for _ in range(2)]
    for found, start in portraits:
        assert start == "warm"
        for own, other in zip(found, cold, strict=True):
            assert own.pop("imported by") == server
            assert own["seen"] == 1
            assert own["cookie"]
            assert own["secret"] == SECRET
            assert not own["agent"]
            paths = own.pop("attempt")
            assert {os.path.dirname(path) for path in paths[2:]} == {paths[1]}
            assert own == {name: other[name] for name in own}
    assert calls.servers() == [server]
    assert SECRET.encode() not in Path(f"/proc/{server}/environ").read_bytes()


def test_a_changed_module_is_never_run_as_it_was(calls: Calls) -> None:
    calls.first()
    (before,) = calls.servers()
    calls.install("another")
    found, start = calls.values()
    assert (start, [rank["text"] for rank in found]) == ("cold", ["another"] * 2)
    calls._order(None)
    assert before not in calls.servers()
    found, start = calls.values()
    assert (start, [rank["text"] for rank in found]) == ("warm", ["another"] * 2)


def test_other_variables_are_another_import(calls: Calls) -> None:
    calls.first()
    _, start = calls.values(COLOUR="red")
    assert start == "cold"
    assert calls._order(None) == "imported"
    assert calls.values()[1] == "warm"
    assert len(calls.servers()) == 2


def test_no_more_than_two_servers_are_kept(calls: Calls) -> None:
    for colour in ("red", "green", "blue"):
        assert calls.values(COLOUR=colour)[1] == "cold"
        assert calls._order(None) == "imported"
    until(lambda: len(calls.servers()) == 2)


def test_a_server_ends_with_its_caller(calls: Calls) -> None:
    calls.first()
    assert calls.servers()
    calls.kill()
    until(lambda: not calls.servers())


def test_a_call_goes_on_when_its_caller_is_killed(calls: Calls) -> None:
    calls.first()
    attempt, start = calls.launch(
        "import os, time\ndef main():\n    while not os.path.exists('go'): time.sleep(0.01)\n"
    )
    assert start == "warm"
    attempt.until(lambda: attempt.read()["state"] == "running")
    calls.kill()
    until(lambda: not calls.servers())
    (Path(attempt.folder).parent / "code" / "go").touch()
    assert attempt.wait()["state"] == "succeeded"
    attempt.until_gone()


def test_a_server_ends_after_some_time_without_a_call(calls: Calls) -> None:
    calls.idle = 0.3
    calls.first()
    until(lambda: not calls.servers())
    assert calls.values()[1] == "cold"


@pytest.mark.parametrize(
    "code",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGSEGV)",
        "raise ValueError('x')",
    ],
)
def test_a_rank_that_died_leaves_the_next_call_as_it_was(calls: Calls, code: str) -> None:
    calls.first()
    attempt, start = calls.launch(
        "import os, signal\ndef main():\n"
        f"    if os.environ['RANK'] == '1': {code}\n    signal.pause()\n"
    )
    status = attempt.wait()
    assert (start, status["state"], status["first_cause"]["rank"]) == ("warm", "failed", 1)
    shown = str(status["first_cause"]["traceback"])
    assert "rank.zip" not in shown
    assert "_air.py" not in shown
    attempt.until_gone()
    found, start = calls.values()
    assert (start, [rank["seen"] for rank in found]) == ("warm", [1, 1])


def test_a_killed_supervisor_of_a_warm_call_takes_everything_with_it(calls: Calls) -> None:
    calls.first()
    attempt, start = calls.launch("import signal\nmain = signal.pause")
    assert start == "warm"
    attempt.until(lambda: attempt.read()["state"] == "running")
    os.kill(attempt.supervisor, signal.SIGKILL)
    assert attempt.wait()["class"] == "supervisor_lost"
    attempt.until_gone()
    assert calls.values()[1] == "warm"


def test_a_killed_server_is_replaced(calls: Calls) -> None:
    calls.first()
    (server,) = calls.servers()
    os.kill(server, signal.SIGKILL)
    until(lambda: server not in calls.servers())
    assert calls.values()[1] == "cold"
    assert calls._order(None) == "imported"
    assert calls.values()[1] == "warm"


def test_what_does_not_survive_a_fork_is_not_kept(calls: Calls) -> None:
    calls.install(
        "one",
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
    )
    for _ in range(2):
        attempt, start = calls.launch()
        assert (start, attempt.wait()["state"]) == ("cold", "succeeded")
        until(lambda: not calls.servers())
        assert "calls are not kept warm" in "".join(
            path.read_text() for path in attempt.folder.parent.glob("*/kept/stderr.log")
        )
    assert len(list(attempt.folder.parent.glob("*/kept"))) == 1

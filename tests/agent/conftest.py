"""Attempt folders for the tests of the agent: real processes, short graces."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from sgpu_decl.agent.attempt.attempt_status import clear_remains, read_attempt
from sgpu_decl.agent.launching.agent_launch import launch
from sgpu_decl.agent.system.host_locks import host_lock_folder
from sgpu_decl.agent.system.locks import create_held, held
from sgpu_decl.agent.system.loop import Loop
from sgpu_decl.agent.system.processes import carriers, send_signal, start_time
from sgpu_decl.backends.host.host_spec import write_entrypoint
from sgpu_decl.backends.launch_spec import call_entry, write_call
from sgpu_decl.functions.pickles import PicklePart, pickled
from sgpu_decl.model.call import Call
from sgpu_decl.rendering.spec import Entry, Gpus, LaunchSpec, Parallel, Warm
from tests.agent.event_log import read_events
from tests.agent.several_nodes import make_nodes
from tests.network_hosts import two_hosts
from tests.support import until

__all__ = ["make_nodes", "two_hosts"]  # fixtures, for all tests below

# With SGPU_WARM set, the faults meet ranks that were forked from a warm parent.
ALL_WARM = "SGPU_WARM" in os.environ
ENDED = {"succeeded", "failed", "cancelled", "lost"}
# What the scripts of faults begin with.
PRELUDE = """
import atexit, os, signal, sys, time
rank = int(os.environ["RANK"])
out = os.environ["SGPU_OUTPUT_DIR"]
errors = os.environ["TORCHELASTIC_ERROR_FILE"]
def leave(name, text=""):
    temporary = "%s/%s.%d" % (out, name, os.getpid())
    with open(temporary, "w") as file:
        file.write(text)
    os.rename(temporary, out + "/" + name)
def mark():
    leave("moment", str(time.monotonic_ns()))
def up():
    leave("up%d" % rank, str(os.getpid()))
def await_file(path):
    while not os.path.exists(path):
        time.sleep(0.001)
def block():
    up()
    while True:
        signal.pause()
def stubborn():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    block()
def daemon(then, *, new_session=True):
    if os.fork() == 0:
        if new_session:
            os.setsid()
            if os.fork():
                os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        leave("daemon")
        then()
        os._exit(0)
    await_file(out + "/daemon")
def leave_the_rest_to_a_thread():
    import ctypes, threading
    threading.Thread(target=time.sleep, args=(600,)).start()
    ctypes.CDLL(None).pthread_exit(None)
"""


@dataclass(frozen=True)
class Attempt:
    folder: Path
    token: str

    def launch(self, secrets: Mapping[str, str] | None = None) -> "Attempt":
        launch(self.folder, secrets=secrets or {})
        return self

    def read(self) -> dict[str, Any]:
        return read_attempt(self.folder)

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, lambda: (self.read(), self.text("agent.log")))

    def wait(self) -> dict[str, Any]:
        self.until(lambda: self.read()["state"] in ENDED)
        return self.read()

    def values(self) -> list[Any]:
        """Wait for success; return what each rank returned."""
        status = self.wait()
        assert status["state"] == "succeeded", self.log(0, "stderr")
        ranks = range(len(status["ranks"]))
        return [json.loads(self.text(f"ranks/{rank}/output.json")) for rank in ranks]

    def text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def log(self, rank: int = 0, stream: str = "stdout", restart: int = 0) -> str:
        return self.text(f"ranks/{rank}/{restart}/{stream}.log")

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in read_events(self.folder) if event["event"] == name]

    @property
    def supervisor(self) -> int:
        return int(json.loads(self.text("identity.json"))["pid"])

    @property
    def guardian(self) -> int:
        return int(json.loads(self.text("identity.json"))["guardian"])

    def up(self, rank: int) -> bool:
        """Whether the rank has left its `up` file."""
        return (self.folder / "output" / f"up{rank}").exists()

    def rank_pid(self, rank: int) -> int:
        return int(self.events("rank_started")[rank]["pid"])

    def seen_signal(self, count: int) -> None:
        """Wait until the supervisor has seen that many signals, or is done."""
        self.until(lambda: self.read()["state"] in ENDED or len(self.events("signal")) >= count)

    def mark(self) -> None:
        """Note the moment of a fault, as ranks do that bring it with them."""
        (self.folder / "output" / "moment").write_text(str(time.monotonic_ns()))

    def check(self, *, crash: bool = False, dropped: bool = False) -> None:
        """The folder of an ended attempt tells one story, and nobody holds on to it."""
        locks = [self.folder / name for name in ("supervisor.lock", "guardian.lock")]
        self.until(lambda: not any(held(str(path)) for path in locks))
        identity = json.loads(self.text("identity.json"))
        assert not identity["cgroup"] or not Path(identity["cgroup"]).exists()
        status = self.read()
        data = (self.folder / "events.log").read_bytes()
        events = read_events(self.folder)
        assert data.endswith(b"\n")
        if not dropped:
            assert len(events) == data.count(b"\n")
        assert [event["mono_ns"] for event in events] == sorted(
            event["mono_ns"] for event in events
        )
        assert (status["started_at"] or "") <= (status["ended_at"] or "9")
        if crash:
            return
        # First: a supervisor that broke leaves a snapshot that was not the last one.
        assert "Traceback" not in self.text("agent.log"), self.text("agent.log")
        outcome = json.loads(self.text("outcome.json"))
        last = json.loads(self.text("status.json"))
        assert outcome["state"] == status["state"] == last["state"], (outcome, events[-5:])
        left = {path.name for path in self.folder.iterdir()}
        assert not {name for name in left if name.endswith(".tmp") or name == "reserve"}
        for name in ("outcome.json", "status.json", "events.log", "identity.json"):
            assert (self.folder / name).stat().st_mode & 0o777 == 0o600

    def kill_both(self) -> None:
        """Kill supervisor and guardian so that neither sees the other go."""
        guardian, supervisor = self.guardian, self.supervisor
        os.kill(guardian, signal.SIGSTOP)
        os.kill(supervisor, signal.SIGKILL)
        os.kill(guardian, signal.SIGKILL)
        # Their ranks may be gone before they have let go of their locks.
        self.until(lambda: start_time(supervisor) is None and start_time(guardian) is None)

    def facts(self) -> dict[str, object]:
        """What the table of faults shows: times in ms from the fault's moment, now it is over."""
        moment = int(self.text("output/moment") or self.events("rank_started")[0]["mono_ns"])
        told = ("rank_ended", "signal", "node_lost", "cold_start", "warm_ended", "state")
        noticed = [
            event["mono_ns"]
            for event in read_events(self.folder)
            if event["mono_ns"] > moment and event["event"] in told
            if event.get("state") not in ("starting", "running")
        ]
        return {
            "verdict": self.read(),
            "noticed": (noticed[0] - moment) / 1e6 if noticed else None,
            "over": (time.monotonic_ns() - moment) / 1e6,
            "left": len(self.left()),
        }

    def until_up(self) -> "Attempt":
        self.until(lambda: self.up(0) and self.up(1))
        return self

    def carriers(self) -> list[tuple[int, int]]:
        return carriers(self.token)

    def left(self) -> list[int]:
        return [pid for pid, _ in self.carriers()]

    def until_gone(self) -> None:
        self.until(lambda: not self.left())


@pytest.fixture
def record_fault(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Record what the table of faults shows of an attempt, and anything that it shows instead."""

    def record(attempt: Attempt, **instead: object) -> None:
        for name, value in {**attempt.facts(), **instead}.items():
            record_property(name, value)

    return record


@pytest.fixture
def loop() -> Iterator[Loop]:
    """An event loop of this process, whose signals are given back."""
    signals = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    before = {number: signal.getsignal(number) for number in signals}
    yield Loop(lambda _number: None)
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture
def make_faulty(make_attempt: Callable[..., Attempt]) -> Callable[..., Attempt]:
    """Make an attempt whose source can say what it does in the words of the prelude."""
    return lambda source, **fields: make_attempt(PRELUDE + source, **fields)


@pytest.fixture
def make_queued(
    make_faulty: Callable[..., Attempt], tmp_path: Path
) -> Callable[..., tuple[Attempt, int]]:
    """Launch an attempt that waits for its turn, which comes when the descriptor is closed."""

    def make(source: str, **fields: Any) -> tuple[Attempt, int]:
        parallel = Parallel(lock_dir=str(tmp_path / "slots"), limit=1)
        (tmp_path / "slots").mkdir()
        turn = create_held(str(tmp_path / "slots" / "slot-0"))
        attempt = make_faulty(source, parallel=parallel, **fields).launch()
        attempt.until(lambda: attempt.read().get("waiting_for") == "max_parallel")
        return attempt, turn

    return make


@pytest.fixture
def make_attempt(tmp_path: Path) -> Iterator[Callable[..., Attempt]]:
    made: list[Attempt] = []

    def make(source: str = "", **fields: Any) -> Attempt:
        number = len(made) + 1
        folder = tmp_path / f"attempt-{number}"
        code = folder / "code"
        (folder / "output").mkdir(parents=True)
        code.mkdir()
        (code / "main.py").write_text(source)
        token = f"test-{os.getpid()}-{time.monotonic_ns()}"
        spec = LaunchSpec(
            token=token,
            address="run.test",
            name="test",
            attempt=number,
            lineage="lineage",
            project_dir=str(tmp_path),
            run_dir=str(folder),
            output_dir=str(folder / "output"),
            code_dir=str(code),
            world_size=2,
            entry=Entry(kind="script", path="main.py"),
            python=sys.executable,
            gpus=Gpus(lock_dir=str(tmp_path / "gpus")),
            port_lock_dir=host_lock_folder("ports"),
            grace=0.4,
            control_key=f"key-of-{token}",
        )
        if ALL_WARM and getattr(fields.get("entry"), "kind", None) not in ("command", "shell"):
            fields.setdefault("warm", Warm(imports=(("decimal", ()),)))
        write_entrypoint(folder, replace(spec, **fields), tmp_path / "shared")
        attempt = Attempt(folder, token)
        made.append(attempt)
        return attempt

    yield make
    for attempt in made:
        for pid, started in carriers(attempt.token):
            send_signal(pid, started, signal.SIGKILL)
        clear_remains(attempt.folder, grace=0.0)


@pytest.fixture
def make_call(make_attempt: Callable[..., Attempt]) -> Callable[..., Attempt]:
    """Make an attempt that calls a function, which travels by value with what it is given.

    `given` are its arguments, `call` other fields of the call.
    """

    def make(
        function: object, *given: object, call: Mapping[str, Any] | None = None, **fields: Any
    ) -> Attempt:
        packed, inputs = pickled(
            PicklePart(value=function, what="it"),
            PicklePart(value=(given, {}), what="its arguments"),
        )
        taken = Call(
            name=getattr(function, "__name__", "function"),
            function=packed,
            inputs=inputs,
            python="{}.{}".format(*sys.version_info[:2]),
            cloudpickle=cloudpickle.__version__,
            folder=Path.cwd(),
        )
        entry = call_entry(taken)
        assert entry.call is not None
        entry = replace(entry, call=replace(entry.call, **(call or {})))
        attempt = make_attempt(entry=entry, **fields)
        write_call(attempt.folder, taken)
        return attempt

    return make

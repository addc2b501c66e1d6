"""A project whose runs go to one backend, for the tests of `backend_contract`: the command line in
this process, programs for ranks, and the backend itself."""

import io
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sgpu_decl.api import Location, Session
from sgpu_decl.backends.base import Backend
from sgpu_decl.backends.launch_request import LaunchRequest
from sgpu_decl.cli.main import main
from sgpu_decl.model.address import Address
from sgpu_decl.model.attempt import AttemptRef
from sgpu_decl.model.jsonable import Spec
from sgpu_decl.model.launch import LaunchInputs, LaunchRecord
from sgpu_decl.testing.contracts.killed_commands import dying

__all__ = ["BackendBench", "BackendCase", "CommandAnswer", "until"]

PATIENCE = 300.0
"""Seconds after which what is waited for will not come any more."""

RECORDED = "sgpu_decl.storing.sqlite.writer,SqliteWriter"

PROGRAM = '''\
import os, pathlib, time

RANK = int(os.environ["RANK"])
RESTART = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def value(gate, n=0):
    """Count the launches."""
    with open(f"{gate}/launches", "a") as file:
        file.write(f"{RANK}\\n")
    return {"rank": RANK, "n": n}


def hold(gate, n=0):
    """Run until the test lets it go."""
    pathlib.Path(gate, f"up-{n}-{RANK}").touch()
    print(f"up {n}", flush=True)
    while not pathlib.Path(gate, f"go-{n}").exists():
        time.sleep(0.01)
    return {"rank": RANK, "n": n}


def fail(at):
    if RANK == at:
        raise ModuleNotFoundError("No module named 'no_such_thing'")
    time.sleep(600)


def leave_with(code):
    print("these words are my last", flush=True)
    os._exit(code)


def again(gate):
    """Fail at first, once all ranks have said something."""
    print(f"start {RESTART} of rank {RANK}", flush=True)
    pathlib.Path(gate, f"said-{RANK}").touch()
    while RESTART == 0:
        if RANK == 0 and pathlib.Path(gate, "said-1").exists():
            raise ValueError("the first start fails")
        time.sleep(0.01)


def tell():
    print("the word is", os.environ["WORD"], flush=True)
    return len(os.environ["WORD"])


def make(gate):
    """Leave a file, once the test lets it."""
    hold(gate)
    leave(["made"])


def found(folder, gate):
    """The names of the files in a folder of another run."""
    return sorted(path.name for path in pathlib.Path(folder).iterdir())


def leave(names):
    for name in names:
        pathlib.Path(os.environ["SGPU_OUTPUT_DIR"], name).write_text(name)


def go_on(leave, fail=False):
    """What earlier starts left; leave something, and fail the first time if asked."""
    folder = os.environ.get("SGPU_PREVIOUS_OUTPUT_DIR")
    found = sorted(path.name for path in pathlib.Path(folder).iterdir()) if folder else None
    if leave:
        pathlib.Path(os.environ["SGPU_OUTPUT_DIR"], f"{leave}-{RESTART}").write_text(leave)
    if fail and RESTART == 0:
        raise ValueError("the first start fails")
    return found
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCase:
    """What the suite has to know of a backend. Its ranks must see the files of this machine.

    Attributes:
        fields: of the YAML, for one rank of a run.
        pair: the same for two ranks; on two nodes, where it can have several.
        many: the same for at least eleven ranks.
        environ: variables of the environment that `sgpu` needs.
        staging: folders of this machine below which it keeps what it was given; the project's own
            is one by itself.
        secret: what `env.secrets` can name there, and its value; `missing` names none.
        tells_restarts: whether `sgpu logs --restart` can pick the lines of one start of ranks.
        elsewhere: whether attempts and what they left outlive the project's `.sgpu` folder.
        queues: whether an attempt can wait for an earlier one.
        resumes: whether it has the field `resume`.
        orders: whether it has the field `after`.
        lose_answer: makes it carry out the next launch and lose the answer.
    """

    fields: Mapping[str, Any]
    pair: Mapping[str, Any]
    many: Mapping[str, Any]
    environ: Mapping[str, str] = field(default_factory=dict)
    staging: tuple[Path, ...] = ()
    secret: tuple[str, str]
    missing: str
    tells_restarts: bool = True
    elsewhere: bool = False
    queues: bool = True
    resumes: bool = True
    orders: bool = False
    lose_answer: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What it says under `-o json`."""
        return json.loads(self.out)["data"]

    @property
    def error(self) -> Any:
        """The error that it says under `-o json`."""
        return json.loads(self.out)["error"]


class BackendBench:
    """An empty project below `folder`, and a `gate` that ranks of `hold` wait at."""

    def __init__(self, case: BackendCase, folder: Path) -> None:
        self.case = case
        self.gate = folder / "gate"
        self.project = folder / "project"
        for made in (self.gate, self.project):
            made.mkdir(parents=True)
        (self.project / "train.py").write_text(PROGRAM)
        stores = {
            f"XDG_{item.upper()}_HOME": str(folder / item) for item in ("cache", "data", "state")
        }
        self._environ = {
            **os.environ,
            **stores,
            "NO_COLOR": "1",
            **case.environ,
        }

    def beside(self, name: str) -> "BackendBench":
        """Another project of the same user, with the same code."""
        other = BackendBench(self.case, self.project.parent / name)
        other._environ = self._environ
        return other

    # The command line

    def declare(self, function: str, *, like: str = "fields", **fields: Any) -> None:
        """Write the run file of `hello`, whose ranks call a function of `PROGRAM`."""
        common = getattr(self.case, like)
        if "env" in fields:
            fields["env"] = {**common.get("env", {}), **fields["env"]}
        named = {"name": "hello", "entrypoint": f"train.py:{function}", "grace": "500ms"}
        (self.project / "run.yaml").write_text(json.dumps({**named, **common, **fields}))

    def declare_all(self, runs: Mapping[str, Mapping[str, Any]]) -> None:
        """Write a project file with runs that call functions of `PROGRAM`: their `function` names
        one."""
        declared = {
            name: {
                "grace": "500ms",
                **self.case.fields,
                "entrypoint": f"train.py:{fields['function']}",
                **{key: value for key, value in fields.items() if key != "function"},
            }
            for name, fields in runs.items()
        }
        (self.project / "sgpu.yml").write_text(
            json.dumps({"project": {"name": "contract"}, "runs": declared})
        )

    def __call__(self, *words: str) -> CommandAnswer:
        """Call `sgpu` in the project."""
        out, err = io.StringIO(), io.StringIO()
        with self._here(), redirect_stdout(out), redirect_stderr(err):
            code = main(words)
        answer = CommandAnswer(code=code, out=out.getvalue(), err=err.getvalue())
        assert "internal error" not in answer.err, answer.err
        return answer

    def done(self, *words: str) -> CommandAnswer:
        """Call `sgpu`, which must succeed."""
        answer = self(*words)
        assert answer.code == 0, answer
        return answer

    def killed(self, step: str, *words: str) -> None:
        """Call `sgpu` in a process of its own, which dies by SIGKILL at a step (`dying`)."""
        died = subprocess.run(
            dying(step, *words), cwd=self.project, env=self._environ, capture_output=True,
            check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert died.returncode == -signal.SIGKILL, died

    def launched(self) -> None:
        """Apply, and see the run under way."""
        self.done("apply", "-y", "--detach")

    def ended(self, name: str = "hello") -> dict[str, Any]:
        """Wait for the end of a run; its `status` object."""
        waited = self("wait", name, "--timeout", f"{PATIENCE:.0f}s")
        assert waited.code in (0, 5), waited
        return self.status(name)

    def ran(self) -> dict[str, Any]:
        """Apply, and wait for the end; the `status` object of the run."""
        self.launched()
        return self.ended()

    def status(self, name: str = "hello") -> dict[str, Any]:
        (run,) = self.done("status", name, "-o", "json").data["runs"]
        return dict(run)

    def results(self, name: str = "hello") -> list[Any]:
        found = self.done("results", name, "-o", "json").data["results"]
        return [(item["rank"], item["value"]) for item in found]

    # Ranks that run `hold`

    def up(self, n: int = 0, ranks: int = 1) -> None:
        """Wait until ranks are running. A test that fails here says what became of the run."""
        up = [self.gate / f"up-{n}-{rank}" for rank in range(ranks)]
        try:
            until(lambda: all(file.exists() for file in up))
        except AssertionError as never:
            raise AssertionError(self("status", "-o", "json"), self("logs", "hello")) from never

    def running(self) -> dict[str, Any]:
        """The status of ranks that are up: a backend may say so a moment later."""
        until(lambda: self.status()["state"] != "starting")
        return self.status()

    def go(self, n: int = 0) -> None:
        """Let ranks end."""
        (self.gate / f"go-{n}").touch()

    @property
    def launches(self) -> int:
        """How many ranks of `value` there ever were."""
        return len((self.gate / "launches").read_text().splitlines())

    # The backend

    @contextmanager
    def backend(self) -> Iterator[Backend]:
        """The backend, opened anew, as by another process."""
        with self._here(), self._session() as session:
            yield session._project.backend(self._kind)

    def request(self) -> LaunchRequest:
        """Have an apply die when it has written down what it will launch; return that launch."""
        self.killed(f"{RECORDED},begin,after,1", "apply", "-y", "--detach")
        return LaunchRequest(record=self.record("hello"))

    def step(self, name: str, when: str) -> str:
        """A step of `dying`: `before` or `after` the first call of a method of the launcher."""
        with self.backend() as backend:
            made = type(backend.launcher)
        return f"{made.__module__},{made.__qualname__},{name},{when},1"

    def record(self, name: str, number: int = 1) -> LaunchRecord:
        """A launch of a run, as the state has it."""
        with self._here(), self._session() as session:
            return session.runs.record(AttemptRef(Address.run(name), number))

    def unknown(self) -> LaunchRecord:
        """A launch that never was."""
        spec = {"entrypoint": "train.py:value", **self.case.fields}
        if isinstance(spec.get("backend"), str):
            spec["backend"] = {"kind": spec["backend"]}
        return LaunchRecord(
            ref=AttemptRef(Address.run("nowhere"), 1),
            backend=self._kind,
            token="unknown",  # noqa: S106  no password
            lineage="unknown",
            owner="run.yaml",
            inputs=LaunchInputs(spec=Spec.of(spec), fingerprint=""),
        )

    def _session(self) -> Session:
        return Session.open(Location(project=self.project))

    @property
    def _kind(self) -> str:
        block = self.case.fields.get("backend", "local")
        return block if isinstance(block, str) else block["kind"]

    @contextmanager
    def _here(self) -> Iterator[None]:
        with patch.dict(os.environ, self._environ, clear=True), chdir(self.project):
            yield

    def close(self) -> None:
        """Leave nothing running."""
        for n in range(3):
            self.go(n)
        for run in self("status", "-o", "json").data["runs"]:
            if run["state"] in ("queued", "staging", "starting", "running", "stopping"):
                self("cancel", f"{run['name']}#{run['attempt']}")


def until(happened: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    end, pause = time.monotonic() + PATIENCE, threading.Event()
    while not happened():
        assert time.monotonic() < end, "it never happened"
        pause.wait(0.1)

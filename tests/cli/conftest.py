"""A real `sgpu` in a process of its own, as a user runs it."""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    chdir,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import pytest

from sgpu_decl.agent.attempt.attempt_status import request_cancel
from sgpu_decl.cli.main import main
from sgpu_decl.testing.contracts.killed_commands import dying
from tests.support import PATIENCE


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        loaded: dict[str, Any] = json.loads(self.out)
        assert loaded["v"] == 1
        return loaded


@dataclass(frozen=True)
class Shell:
    """`host` is the name of another machine than this one, for commands in this process."""

    folder: Path
    environ: dict[str, str]
    host: str | None = None

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        assert self.host is None
        return subprocess.Popen(
            [sys.executable, "-m", "sgpu_decl", *arguments],
            cwd=options.pop("cwd", self.folder),
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def __call__(self, *arguments: str, cwd: Path | None = None) -> Answer:
        with self.start(*arguments, cwd=cwd or self.folder) as process:
            out, err = process.communicate(timeout=PATIENCE)
        assert "internal error" not in err, err
        return Answer(process.returncode, out, err)

    def ran(self, *arguments: str, cwd: Path | None = None) -> Answer:
        """A process of its own that succeeds."""
        answer = self(*arguments, cwd=cwd)
        assert answer.code == 0, answer.out + answer.err
        return answer

    def here(self, *arguments: str, cwd: Path | None = None) -> Answer:
        """The same in this process, where another process would show no more."""
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, self.environ, clear=True),
            named(self.host),
            chdir(cwd or self.folder),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(arguments)
        assert "internal error" not in err.getvalue(), err.getvalue()
        return Answer(code, out.getvalue(), err.getvalue())

    def exits(self, code: int, *arguments: str, cwd: Path | None = None) -> Answer:
        """`here`, where the command ends with this exit code."""
        answer = self.here(*arguments, cwd=cwd)
        assert answer.code == code, answer.out + answer.err
        return answer

    def done(self, *arguments: str, cwd: Path | None = None) -> Answer:
        """`here`, where the command succeeds."""
        return self.exits(0, *arguments, cwd=cwd)

    def data(self, *arguments: str, cwd: Path | None = None) -> dict[str, Any]:
        """What the command says as JSON."""
        data: dict[str, Any] = self.here(*arguments, "-o", "json", cwd=cwd).json["data"]
        return data

    def error(self, *arguments: str, cwd: Path | None = None) -> dict[str, Any]:
        """The error that the command says as JSON."""
        error: dict[str, Any] = self.here(*arguments, "-o", "json", cwd=cwd).json["error"]
        return error

    def checks(self, *arguments: str, **values: str) -> list[dict[str, Any]]:
        """The checks of a plan that have these values, such as `id="active_run"`."""
        found = self.data("plan", *arguments)["checks"]
        return [check for check in found if values.items() <= check.items()]

    def refusal(self, *arguments: str, cwd: Path | None = None) -> tuple[int, str]:
        """The exit code and the error's code of a command that is refused."""
        answer = self.here(*arguments, "-o", "json", cwd=cwd)
        return answer.code, answer.json["error"]["code"]

    def kill_at(self, step: str, *arguments: str) -> None:
        """Have a command killed at a step, see `dying`."""
        died = subprocess.run(
            dying(step, *arguments),
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            check=False,
        )
        assert died.returncode == -signal.SIGKILL, died.stderr.decode()

    def written(self) -> dict[Path, int]:
        """When each file was written, but for the journal of the state, which readers touch too."""
        return {
            path: path.stat().st_mtime_ns
            for path in self.folder.rglob("*")
            if path.is_file() and not path.name.startswith("state.db-")
        }

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def edit(self, name: str, before: str, after: str) -> None:
        """Replace a text of a file by another one."""
        self.write(name, self.read(name).replace(before, after))

    @contextmanager
    def edited_state(self) -> Iterator[dict[str, Any]]:
        """What `state pull` prints. It is pushed with what the test has changed in it."""
        pulled: dict[str, Any] = json.loads(self.here("state", "pull").out)
        yield pulled
        self.write("pulled.json", json.dumps(pulled))
        self.done("state", "push", "pulled.json")


@contextmanager
def named(host: str | None) -> Iterator[None]:
    """Let this process take its machine for another one; None for the one that it is."""
    system, name, *more = os.uname()
    found = os.uname_result((system, host or name, *more))
    with patch.object(os, "uname", lambda: found):
        yield


class Terminal:
    """The person's side of a pseudo-terminal."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self._master = master
        self._process = process
        self.controller = master
        self.pid = process.pid
        self._half = b""
        self.seen = ""
        self.all = ""

    def settings(self) -> list[Any]:
        """How the terminal is set, as termios has it."""
        return termios.tcgetattr(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        waiting = select.poll()  # select() takes no descriptor above 1,023
        waiting.register(self._master, select.POLLIN)
        while text not in self.seen:
            ready = waiting.poll(1000 * max(0.0, deadline - time.monotonic()))
            assert ready, f"`{text}` did not come; seen: {self.seen}"
            try:
                came = os.read(self._master, 4096)
            except OSError:  # the other side has closed
                assert text in self.seen, self.seen
            else:
                self._take(came)
        self.seen = self.seen.partition(text)[2]

    def press_until_ended(self) -> int:
        """Ctrl-C, again where one fell between the question and the reading of the answer."""
        for _ in range(20):
            self.type("\x03")
            try:
                return self._process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
        return self.ended()

    def ended(self) -> int:
        """Read on until the program has closed its side; its exit code."""
        with contextlib.suppress(OSError):
            while came := os.read(self._master, 4096):
                self._take(came)
        self.seen = ""
        return self._process.wait(timeout=PATIENCE)

    def screen(self, width: int) -> list[str]:
        """The lines that stand on a terminal of that width after what was waited for, the ones
        that scrolled away included."""
        written = self.all.removesuffix(self.seen)
        rows, row, column = [[" "] * width], 0, 0
        for code, text in re.findall(r"\x1b\[([?0-9;]*[A-Za-z])|([^\x1b])", written):
            if text == "\r":
                column = 0
            elif text == "\n" or (text and column == width):
                row, column = row + 1, 0
                rows += [[" "] * width] if row == len(rows) else []
            if text >= " ":
                rows[row][column] = text
                column += 1
            if code == "2K":
                rows[row] = [" "] * width
            elif code.endswith("A"):
                row -= int(code[:-1])
                assert row >= 0
        return ["".join(cells).rstrip() for cells in rows]

    def _take(self, came: bytes) -> None:
        self._half += came
        text = self._half.decode(errors="ignore")
        self._half = self._half[len(text.encode()) :]
        self.seen += text
        self.all += text


@pytest.fixture
def sgpu(tmp_path: Path) -> Iterator[Shell]:
    """`sgpu(...)` runs one command in an empty project; runs left active are cancelled after."""
    home = tmp_path / "home"
    environ = {
        **os.environ,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_DATA_HOME": str(home / "data"),
        "NO_COLOR": "1",
    }
    project = tmp_path / "project"
    project.mkdir()
    shell = Shell(project, environ)
    yield shell
    for spec in project.rglob(".sgpu/*/runs/*/*/spec.json"):
        request_cancel(spec.parent)


AtTerminal = Callable[..., AbstractContextManager[Terminal]]


@pytest.fixture
def at_terminal(sgpu: Shell) -> AtTerminal:
    """`with at_terminal(...)` runs one command in a pseudo-terminal of `width` columns."""

    @contextmanager
    def opened(
        *arguments: str,
        width: int = 80,
        environ: Mapping[str, str] | None = None,
        stdout: IO[str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "sgpu_decl"),
    ) -> Iterator[Terminal]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        # the size is the terminal's, not what the runner of the tests was told of its own
        inherited = {k: v for k, v in sgpu.environ.items() if k not in ("COLUMNS", "LINES")}
        process = subprocess.Popen(
            [*program, *arguments],
            cwd=sgpu.folder,
            env={**inherited, "TERM": "xterm-256color", **(environ or {})},
            stdin=slave,
            stdout=stdout or slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
        )
        os.close(slave)
        try:
            yield Terminal(master, process)
        finally:
            process.kill()
            process.wait()
            os.close(master)

    return opened


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml_standin.c")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", target, source], check=True)
    return folder


@pytest.fixture
def on(sgpu: Shell, nvml_library: Path) -> Callable[..., Shell]:
    """`on(H100, H100)` is a shell on a machine with these GPUs."""

    def machine(*gpus: str, **environ: str) -> Shell:
        shown = {name: value for name, value in sgpu.environ.items()
                 if name != "CUDA_VISIBLE_DEVICES"}  # fmt: skip
        told = {"LD_LIBRARY_PATH": str(nvml_library), "SGPU_TEST_GPUS": ";".join(gpus)}
        return replace(sgpu, environ={**shown, **told, **environ})

    return machine

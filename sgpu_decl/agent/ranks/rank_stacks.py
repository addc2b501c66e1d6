"""The Python stacks of running ranks on this machine. The ranks go on.

A rank that runs Python writes them itself, into `stacks.log` in its folder, on a real-time signal:
`faulthandler` has a handler in C for it, which also works while the rank is in C code
(https://docs.python.org/3/library/faulthandler.html#faulthandler.register). That signal would end a
program without the handler. So a rank gets it only if the kernel says that it handles it: not
before its handler is installed, and not after it has executed another program.

A rank that is a command is read from outside by `py-spy`, if that is installed: on the PATH, or
beside this interpreter. It pauses the process for the moment of reading
(https://github.com/benfred/py-spy#how-does-py-spy-work).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.attempt.error_file import own_frames_left_out
from sgpu_decl.agent.ranks.rank_start import rank_folder
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.safe_files import regular_opener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

SIGNAL = signal.SIGRTMIN + 9  # as `rank.main` registers it

_LOG = "stacks.log"
_PATIENCE = 2.0  # seconds until a rank that does not answer is given up
_PAUSE = 0.02
_SETTLED = 3  # looks at a log that does not grow any more
_LARGEST = 1 << 18  # bytes of the stacks of one rank
_FRAME = re.compile(r' +File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
_PY_SPY_SECONDS = 20  # for all ranks together


def rank_stacks(folder: str, ranks: Collection[int] | None) -> list[dict[str, Any]]:
    """Return `rank`, `pid`, `stack` and `reason` of each running rank in `ranks` (`None`: all).

    `stack` is None where there is none; then `reason` says why.
    """
    if os.path.exists(os.path.join(folder, attempt_files.OUTCOME)):
        return []  # the status may say for a moment more that they run
    spec = attempt_files.read_json(folder, attempt_files.SPEC) or {}
    status = attempt_files.read_json(folder, attempt_files.STATUS) or {}
    restart = status.get("restart") or 0
    cookie = b"SGPU_COOKIE=" + str(spec.get("token")).encode()
    answers = [
        {"rank": rank["rank"], "pid": rank["pid"], "stack": None, "reason": None}
        for rank in status.get("ranks") or ()
        if rank["state"] == "running" and "pid" in rank and (ranks is None or rank["rank"] in ranks)
    ]
    readable = [answer for answer in answers if processes.carries(answer["pid"], cookie)]
    for answer in answers:
        if answer not in readable:
            answer["reason"] = "its process is starting or ending, or belongs to another user now"
    if spec.get("entry", {}).get("kind") in ("command", "shell"):
        until = time.monotonic() + _PY_SPY_SECONDS
        for answer in readable:
            answer["stack"], answer["reason"] = _seen_by_py_spy(answer["pid"], until)
        return answers
    logs = [_Log(rank_folder(folder, answer["rank"], restart)) for answer in readable]
    asked = [log for answer, log in zip(readable, logs, strict=True) if _ask(answer["pid"])]
    _await(asked)
    for answer, log in zip(readable, logs, strict=True):
        text = log.text() if log in asked else ""
        if text:
            answer["stack"] = own_frames_left_out(text, spec)
        elif log in asked:
            answer["reason"] = f"it did not answer within {_PATIENCE:g} s"
        else:
            answer["reason"] = "it has not started its Python code yet, or runs another program"
    return answers


def stack_of_rank(run_dir: str, rank: int, restart: int, pid: int) -> list[tuple[str, str, int]]:
    """Return the function, file and line of each frame of the main thread of a Python rank, the
    innermost first; empty where it does not answer."""
    log = _Log(rank_folder(run_dir, rank, restart))
    if not _ask(pid):
        return []
    _await([log])
    _, _, current = log.text().partition("Current thread ")
    frames = (_FRAME.match(line) for line in current.partition("\n\n")[0].splitlines())
    return [(one["name"], one["file"], int(one["line"])) for one in frames if one is not None]


def places_of_rank(pid: int, until: float) -> str:
    """Where a rank is that does not write its stacks itself: those of its Python programs, if
    py-spy is there, may read them, and does by that time; else what the kernel tells."""
    stacks, _ = _seen_by_py_spy(pid, until)
    return stacks or processes.places_of_processes(pid)


def _ask(pid: int) -> bool:
    """Ask a rank for its stacks; False if it would not survive that."""
    started = processes.start_time(pid)
    return processes.handles(pid, SIGNAL) and processes.send_signal(pid, started, SIGNAL)


class _Log:
    """What a rank adds to its log from now on."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, _LOG)
        self._before = self._last = self.size()
        self._same = 0

    def size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0

    def is_complete(self) -> bool:
        """Whether something was added, and nothing more is. Called once in a while."""
        last, self._last = self._last, self.size()
        self._same = self._same + 1 if self._last == last else 0
        return self._last > self._before and self._same >= _SETTLED

    def text(self) -> str:
        try:
            with open(self._path, "rb", buffering=0, opener=regular_opener) as log:
                log.seek(self._before)
                return log.read(_LARGEST).decode("utf-8", "replace")
        except OSError:
            return ""


def _await(logs: list[_Log]) -> None:
    until = time.monotonic() + _PATIENCE
    waiting = logs
    while waiting and time.monotonic() < until:
        time.sleep(_PAUSE)
        waiting = [log for log in waiting if not log.is_complete()]


def _seen_by_py_spy(pid: int, until: float) -> tuple[str | None, str | None]:
    """Return the stacks of the Python programs of a command as far as they are read by a time, or
    why there are none."""
    beside = os.path.dirname(sys.executable)
    program = shutil.which("py-spy", path=f"{os.environ.get('PATH', '')}{os.pathsep}{beside}")
    if program is None:
        return None, "it is a command: install `py-spy` to see the stacks of its Python programs"
    import subprocess

    parent = os.getpid()
    texts, refusal = [], ""
    for each in (pid, *processes.descendants(pid)):
        try:
            done = subprocess.run(
                [program, "dump", "--pid", str(each)],
                capture_output=True, text=True, check=False,
                timeout=max(0.0, until - time.monotonic()),
                preexec_fn=lambda: processes.die_with_parent(parent),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            refusal = f"`py-spy` did not end within {_PY_SPY_SECONDS} s, of all ranks together"
            break
        except OSError as error:
            refusal = f"`py-spy` cannot be started: {error}"
            break
        if done.returncode == 0:
            texts.append(done.stdout)
        elif "permission" in done.stderr.lower():
            refusal = "`py-spy` may not read it: run it as root, or allow `ptrace`"
    if texts:
        return "\n".join(texts), None
    return None, refusal or "it runs no Python program"

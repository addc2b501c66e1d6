"""The process that tells of the end of an attempt (`notices/program.py`), and what became of it.

On this machine the guardian starts it once there is an outcome, whoever wrote that; the supervisor
does if the guardian is gone. On a platform the node program of node 0 starts it, once no further
start of the ranks follows. So a run tells once. If all of these were killed, nobody tells.
"""

from __future__ import annotations

import os
import sys

from sgpu_decl.agent.attempt import attempt_files
from sgpu_decl.agent.system import processes
from sgpu_decl.agent.system.fast_stdlib import signal
from sgpu_decl.agent.system.secrets import WEBHOOK_KEY, WEBHOOK_URL, split_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NOTICES = "notices.json"
"""The results, in the attempt folder: `{"notices": [{"way", "ok", "tries", "summary", "at"}]}`."""
LONGEST = 75.0
"""Seconds after which the process has ended in any case."""

_AGENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # a folder, or an archive
_LOG = "agent.log"


class NoticeProcess:
    """For the attempt in `folder`; `secrets` are those of the run. What is for the webhook alone is
    taken out of them."""

    def __init__(self, spec: Mapping[str, Any], folder: str, secrets: dict[str, str]) -> None:
        self._needed = spec.get("on_finish") is not None
        self._folder = folder
        self._secrets = dict(secrets) if self._needed else {}
        self._pid = 0
        for name in (WEBHOOK_URL, WEBHOOK_KEY):
            secrets.pop(name, None)

    def start(self) -> float:
        """Start it if there is somebody to tell; return the seconds that it may take. An error is
        written to the log."""
        if not self._needed:
            return 0.0
        try:
            self._pid = self._spawn()
        except OSError as error:
            attempt_files.say(f"nobody was told of the end: {error.strerror}")
            return 0.0
        return LONGEST

    def _spawn(self) -> int:
        environment, rest = split_secrets({**os.environ, **self._secrets}, self._secrets)
        log, flags = os.path.join(self._folder, _LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            os.set_inheritable(rest, True)  # noqa: FBT003
            return os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", _AGENT, "tell", self._folder],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP),
            )
        finally:
            os.close(rest)

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most that long."""
        if self._pid and processes.until_one_ends([self._pid], seconds):
            os.waitpid(self._pid, 0)
            self._pid = 0


def read_notices(folder: str) -> list[dict[str, Any]]:
    """Return who was told, and what became of that, as far as it is known."""
    from sgpu_decl.agent.attempt.report_check import are_notices

    found = (attempt_files.read_json(folder, NOTICES) or {}).get("notices")
    return found if isinstance(found, list) and are_notices(found) else []

"""Launching an attempt: a detached process tree that outlives whoever asked for it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

from sgpu_decl.agent.secret_environ import startup_variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["launch"]

_AGENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")


def launch(folder: Path, *, secrets: Mapping[str, str]) -> None:
    """Start the agent for a prepared attempt folder and return once its supervisor is up.

    The folder holds `spec.json`, `_air.py` and `code/`. Secret values travel by pipe, and so
    does our environment, which ranks inherit: it may hold secrets that nobody declared.

    Raises:
        OSError: the attempt cannot be launched, or was launched before; says why.
    """
    path = os.path.abspath(folder)
    given = {"secrets": dict(secrets), "environ": dict(os.environ)}
    log = os.open(
        os.path.join(path, "agent.log"),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
        0o600,
    )
    try:
        starter = subprocess.Popen(
            [sys.executable, "-I", "-S", _AGENT, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            env=startup_variables(os.environ),
            start_new_session=True,
            umask=0o077,
        )
    finally:
        os.close(log)
    answer, _ = starter.communicate(json.dumps(given).encode())
    if answer != b"ok":
        reason = answer.decode("utf-8", "replace") or f"the agent died; see `{path}/agent.log`"
        raise OSError(errno.ECHILD, reason)

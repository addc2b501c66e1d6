"""Commands of the user of a box, such as those of a scheduler there."""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache

from sgpu_decl.agent.system.marked_answer import MARK
from sgpu_decl.agent.system.plain_command import run_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LOGIN = 20.0  # seconds for the files that a login shell reads


def command(_: str, message: dict[str, Any], __: object) -> tuple[dict[str, Any], bytes]:
    """Run a command, as `run_command` does, which gets the `how`. `ended` has its exit code and
    what it wrote; else `failed` says that it is `missing` or did not end (`late`).

    What is not on the PATH of the connection may be on that of a login shell. Whoever asks knows
    whether the command may be run twice.
    """
    words, patience, how = message["words"], message["patience"], message["how"]
    try:
        try:
            ended = run_command(words, patience, **how)
        except FileNotFoundError:
            ended = run_command(words, patience, environ=_login_variables(), **how)
    except FileNotFoundError:
        return {"failed": "missing"}, b""
    except subprocess.TimeoutExpired:
        return {"failed": "late"}, b""
    return {"ended": ended}, b""


@lru_cache(None)
def _login_variables() -> dict[str, str]:
    """The variables of a login shell, whatever its files print; those of this process where there
    is none."""
    words = ["bash", "-lc", f"printf '%s' '{MARK}'; exec env -0"]
    try:
        said = run_command(words, _LOGIN)[1].rpartition(MARK)[2]
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return dict(os.environ)
    found = dict(pair.partition("=")[::2] for pair in said.split("\0") if "=" in pair)
    return found or dict(os.environ)


OPERATIONS = {"command": command}

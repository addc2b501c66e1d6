"""The results of a probe, as files beside the launch and as lines of the log.

Nodes may be unable to write to the launch folder, so each record is also a line of the log.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LINE = "sgpu-probe "
"""The beginning of a log line with a record; JSON follows."""

LONG_LINE_MARK = "sgpu-longest"
"""The beginning and end of the longest line that a probe writes to the log."""


class ProbeRecord:
    """The records of one node in one attempt of the platform. Each node makes its folder in the
    next numbered one below `out`."""

    def __init__(self, out: str, node: int) -> None:
        self._node = node
        self.attempt, self._folder, self.problem = _claimed(out, node)

    def say(self, name: str, values: Mapping[str, Any]) -> None:
        """Record values under a name, with `at`, the time of this node."""
        head = {"name": name, "node": self._node, "attempt": self.attempt, "at": time.time()}
        line = json.dumps({**head, **values}, sort_keys=True)
        _write(f"{LINE}{line}\n".encode())
        if self._folder is not None:
            try:
                # Written under another name first: a reader must not see a part of it.
                temporary = os.path.join(self._folder, f".{name}")
                with open(temporary, "w") as file:
                    file.write(line)
                os.replace(temporary, os.path.join(self._folder, f"{name}.json"))
            except OSError as error:
                self.problem = self.problem or str(error)

    def await_file(self, path: str, seconds: float) -> bool:
        """Wait until a file is visible here and not empty; return whether it is."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                with open(path, "rb") as file:
                    if file.read(1):
                        return True
            except OSError:
                pass  # not yet
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)


def write_line(size: int) -> None:
    """Write one line of that many bytes to the log, with `LONG_LINE_MARK` at both ends."""
    body = LONG_LINE_MARK.encode()
    _write(body + b" " + b"x" * (size - 2 * len(body) - 2) + b" " + body + b"\n")


def _claimed(out: str, node: int) -> tuple[int, str | None, str | None]:
    """Return the number of this attempt, its folder, and why there is none."""
    number = 0
    while True:
        folder = os.path.join(out, str(number), f"node_{node}")
        try:
            os.makedirs(folder)
        except FileExistsError:
            number += 1
        except OSError as error:
            return number, None, f"{type(error).__name__}: {error.strerror}"
        else:
            return number, folder, None


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]

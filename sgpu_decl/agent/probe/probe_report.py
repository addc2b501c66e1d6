"""What a probe found, on its way back: as files beside the launch, and as lines of the log.

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

__all__ = ["LINE", "LONG_LINE_MARK", "ProbeRecord", "write_line"]

LINE = "sgpu-probe "
"""What a line of the log with a record begins with; JSON follows."""

LONG_LINE_MARK = "sgpu-longest"
"""What the longest line that a probe writes to the log begins and ends with."""


class ProbeRecord:
    """The records of one node in one attempt of the platform. Node 0 claims the next folder below
    `out`; the others take that of the same number, as they count their own."""

    def __init__(self, out: str, node: int) -> None:
        self._node = node
        self.attempt, self._folder, self.problem = _claimed(out, node)

    def say(self, name: str, values: Mapping[str, Any]) -> None:
        """Bring values back under a name; `at` is added, this node's clock."""
        told = {"name": name, "node": self._node, "attempt": self.attempt, "at": time.time()}
        told |= values
        line = json.dumps(told, sort_keys=True)
        _write(f"{LINE}{line}\n".encode())
        if self._folder is not None:
            try:
                with open(os.path.join(self._folder, f"{name}.json"), "w") as file:
                    file.write(line)
            except OSError as error:
                self.problem = self.problem or str(error)

    def await_file(self, path: str, seconds: float) -> bool:
        """Wait until a file is to be seen here, with something in it."""
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
    """The number of this attempt, its folder, and why there is none."""
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

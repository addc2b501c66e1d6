"""What the emulator's user decides about how runs are executed."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ExecutionSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSettings:
    """How runs are executed.

    `capacity` says how many GPUs there are of an accelerator type (`{"GPU_1xA10": 4}`); of a type
    that is not named there are enough. A run waits for them for `queue_timeout` seconds at most, or
    for as long as its own timeout lets it. `python` is the interpreter that nodes find first on
    their PATH: declared dependencies are not installed, it has to have them. A stopped node gets
    `grace` seconds between SIGTERM and SIGKILL. `rooted` says whether nodes get a root folder of
    their own with `/Workspace` and `/Volumes` in it; by itself it is tried out.
    """

    capacity: Mapping[str, int] = field(default_factory=dict)
    queue_timeout: float | None = None
    python: str = sys.executable
    grace: float = 10.0
    rooted: bool | None = None
